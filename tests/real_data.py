"Real data for tests: read where INVARIANT_METRICS_DATA points, never copied into the project."
import os
from pathlib import Path

import pytest


def data_path(relative: str) -> Path:
    "A file or folder of the real data; skips the test where there is none, fails where INVARIANT_METRICS_REQUIRE_DATA=1 promised it."
    root = os.environ.get("INVARIANT_METRICS_DATA")
    required = os.environ.get("INVARIANT_METRICS_REQUIRE_DATA") == "1"
    if root and (Path(root)/relative).exists(): return Path(root)/relative
    reason = f"{relative} is not in INVARIANT_METRICS_DATA" if root else "INVARIANT_METRICS_DATA is unset: no real data to test on"
    if required: pytest.fail(reason)
    pytest.skip(reason)
