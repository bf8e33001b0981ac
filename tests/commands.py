"Commands for tests: in this process, which is fast, or in one of their own, as a user would start them."
import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

HUNG = 1800 # seconds after which a process hangs, on any machine


def _settings(cwd, env) -> dict:
    return {"COLUMNS": "120", "INVARIANT_METRICS_CACHE": str(Path(cwd)/"cache"), "HF_HUB_OFFLINE": "1", **env}


def cli(*words, cwd, **env) -> subprocess.CompletedProcess:
    "What a command prints and returns, run in this process."
    from invariant_metrics.commands.shell import main
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        for name, value in _settings(cwd, env).items(): patch.setenv(name, str(value))
        code = main([str(w) for w in words])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def own_process(*words, cwd, **env) -> subprocess.CompletedProcess:
    "The same in a process of its own."
    return subprocess.run([sys.executable, "-m", "invariant_metrics", *map(str, words)], cwd=cwd, capture_output=True, text=True,
                          timeout=HUNG, env={**os.environ, **_settings(cwd, env)})
