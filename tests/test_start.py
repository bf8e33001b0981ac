"The first seconds of a command: Ctrl-C ends in one line, what is named in the current folder is found, completion works."
import configparser
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import HUNG

ROOT = Path(__file__).parent.parent


def entry() -> str:
    "The script that pip makes of the entry point."
    config = configparser.ConfigParser(delimiters=["="])
    config.read(ROOT/"settings.ini", encoding="utf-8")
    module, name = config["DEFAULT"]["console_scripts"].partition("=")[2].split(":")
    return f"import sys; sys.path.remove(''); from {module} import {name}; sys.exit({name}())"


@pytest.mark.parametrize("moment", ["numpy", "rich.table", "torch"])
def test_ctrl_c_while_libraries_are_imported_is_one_line(moment, tmp_path):
    (tmp_path/"a.txt").write_text("a dog\n"*12)
    words = [sys.executable, "-X", "importtime", "-c", entry(), "score", "bleu", "--pred", "a.txt", "--target", "a.txt"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**os.environ, "INVARIANT_METRICS_CACHE": str(tmp_path)})
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("import time:") and line.split("|")[-1].strip() == moment: break
    else: pytest.fail(f"{moment} was not imported: {''.join(said[-5:])}")
    os.killpg(process.pid, signal.SIGINT) # as a terminal does
    out, rest = process.communicate(timeout=HUNG)
    lines = [line for line in [*said, *rest.splitlines()] if not line.startswith("import time:")]
    assert process.returncode == 130 and out == "" and len(lines) == 1 and lines[0].startswith("interrupted"), (process.returncode, lines)
