"The free search: every property once more, on examples that are drawn anew at each run."
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_properties_hold_for_new_examples():
    command = [sys.executable, "-m", "pytest", "-m", "hypothesis and not slow", "--hypothesis-profile", "free", "-n", "0", str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout[-6000:]
