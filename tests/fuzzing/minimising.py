"""Makes the files of a failing case smaller while it fails in the same way."""

import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.fuzzing.case import Case
from tests.fuzzing.workers import run_once

_PATIENCE_S = 60.0


def minimised(case: Case) -> tuple[Case, str]:
    """The smaller case, and what is wrong with it (empty if nothing is)."""
    with tempfile.TemporaryDirectory(prefix="decodescope-fuzz-") as name:
        root = Path(name)
        problem = run_once(case, root)
        deadline = time.monotonic() + _PATIENCE_S
        for name in case.files if problem else ():
            size = len(case.files[name]) // 2
            while size and time.monotonic() < deadline:
                at = 0
                while at < len(case.files[name]) and time.monotonic() < deadline:
                    data = case.files[name]
                    less = replace(case, files={**case.files, name: data[:at] + data[at + size :]})
                    if _alike(run_once(less, root), problem):
                        case = less
                    else:
                        at += size
                size //= 2
    return case, problem


def _alike(one: str, other: str) -> bool:
    return re.sub(r"\d+", "", one) == re.sub(r"\d+", "", other)
