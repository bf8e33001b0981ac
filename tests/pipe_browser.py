"A real browser over Chromium's own debugging pipe: it needs Chromium alone, no driver; tests skip where there is none."
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from browser import FLAGS

LEVELS = {"error": "SEVERE", "warning": "WARNING"}


class PipePage:
    "One open page: run a script in it, resize it, choose light or dark, read its console."
    def __init__(self, process, to, back):
        self.process, self.to, self.back = process, to, back
        self.rest, self.count, self.heard, self.session = b"", 0, [], {}

    def _next(self, until: float) -> dict:
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]: raise TimeoutError("Chromium does not answer")
            piece = os.read(self.back, 1 << 16)
            if not piece: raise OSError("Chromium has ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def cdp(self, command, **params):
        self.count += 1
        os.write(self.to, json.dumps({"id": self.count, "method": command, "params": params, **self.session}).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            said = self._next(until)
            if said.get("id") == self.count:
                assert "error" not in said, said["error"]
                return said["result"]
            self.heard.append(said)

    def script(self, code):
        found = self.cdp("Runtime.evaluate", expression=f"(() => {{ {code} }})()", returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def view(self, width, dark=False, media="", height=900):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.script("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, event):
        until = time.monotonic() + 60
        while not any(said.get("method") == event for said in self.heard): self.heard.append(self._next(until))

    def console(self) -> list[dict]: # level, message
        "What the page complained about so far: entries of the log, of the console, and exceptions."
        self.script("return 0")
        found = []
        for said in self.heard:
            params = said.get("params", {})
            if said.get("method") == "Log.entryAdded": found.append((params["entry"]["level"], params["entry"]["text"]))
            if said.get("method") == "Runtime.consoleAPICalled": found.append((params["type"], str(params["args"])))
            if said.get("method") == "Runtime.exceptionThrown": found.append(("error", str(params["exceptionDetails"])))
        return [{"level": LEVELS.get(level, "INFO"), "message": text} for level, text in found]


@contextmanager
def browser(page: Path):
    "The page opened in headless Chromium; skips the test, saying so, where Chromium is not on the PATH."
    chrome = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if not chrome: pytest.skip("no chromium on the PATH: the page is not looked at in a browser")
    theirs, to = os.pipe()
    back, answers = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 60) for fd in (theirs, answers)]  # free ones: Chromium reads at 3 and writes at 4
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shell = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]}'
        words = [chrome, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(["/bin/bash", "-c", shell, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=high, start_new_session=True)
        for fd in (theirs, answers, *high): os.close(fd)
        try:
            opened = PipePage(process, to, back)
            target = opened.cdp("Target.createTarget", url="about:blank")["targetId"]
            opened.session = {"sessionId": opened.cdp("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
            for domain in ("Page", "Runtime", "Log"): opened.cdp(f"{domain}.enable")
            opened.heard.clear()
            opened.cdp("Page.navigate", url=page.as_uri())
            opened.wait("Page.loadEventFired")
            yield opened
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # its own group: nothing else is in it
            try: process.wait(10)
            except subprocess.TimeoutExpired: os.killpg(process.pid, signal.SIGKILL)
            for fd in (to, back): os.close(fd)
