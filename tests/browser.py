"A real browser for tests, driven over the WebDriver protocol with the standard library alone; tests skip where there is none."
import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--hide-scrollbars"]


class Page:
    "One open page: run a script in it, resize it, choose light or dark, take its picture, read its console."
    def __init__(self, send): self.send = send
    def cdp(self, command, **params): return self.send("POST", "/goog/cdp/execute", {"cmd": command, "params": params})
    def script(self, code): return self.send("POST", "/execute/sync", {"script": code, "args": []})
    def console(self): return self.send("POST", "/se/log", {"type": "browser"})

    def view(self, width, dark=False, media=""):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, path):
        whole = self.script("const e = document.documentElement; return [e.clientWidth, Math.min(e.scrollHeight, 12000)]")
        clip = {"x": 0, "y": 0, "width": whole[0], "height": whole[1], "scale": 1}
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, format="png", clip=clip)
        Path(path).write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(page: Path):
    "The page opened in headless Chromium; skips the test, saying so, where Chromium or its driver is not on the PATH."
    chrome = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if not chrome or not driver: pytest.skip("no chromium and chromedriver on the PATH: the page is not looked at in a browser")
    with socket.socket() as free: free.bind(("127.0.0.1", 0)); port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root, session = f"http://127.0.0.1:{port}", ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(root + session + path, data, {"Content-Type": "application/json"}, method=method)
        with opener.open(request, timeout=60) as answer: return json.load(answer)["value"]

    with tempfile.TemporaryDirectory() as profile:
        try:
            for _ in range(100):
                try: send("GET", "/status"); break
                except OSError: time.sleep(0.1)
            options = {"binary": chrome, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
            session = "/session/" + send("POST", "/session", {"capabilities": wanted})["sessionId"]
            send("POST", "/url", {"url": page.as_uri()})
            yield Page(send)
        finally:
            if session:
                try: send("DELETE", "")
                except OSError: pass
            process.terminate()
            process.wait(10)
