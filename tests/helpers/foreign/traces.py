"""Where the traces recorded by others lie on this machine, if anywhere."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from platformdirs import user_cache_path

REPOSITORY = Path(__file__).resolve().parents[3]
# Beside a checkout, or where `python -m tools.foreign_traces` writes them.
FOLDERS = (
    REPOSITORY.parent / "shared" / "traces",
    user_cache_path("decodescope") / "foreign-traces",
)
MISSING = "needs the foreign trace"
COMMAND = "python -m tools.foreign_traces"


class TraceFolder(type(Path())):  # type: ignore[misc]
    """A folder of traces. A trace that it lacks skips the test that asks for it."""

    def __truediv__(self, name: str) -> Path:
        path = Path(self, name)
        if not path.is_file():
            pytest.skip(f"{MISSING} {name}, which is not in {self}")
        return path


def trace_folder(folders: Iterable[Path] = FOLDERS) -> TraceFolder:
    """The first of `folders` that exists, else the last one."""
    folder = Path()
    for folder in folders:
        if folder.is_dir():
            break
    return TraceFolder(folder)


def missing_traces_line(reasons: Iterable[str]) -> str | None:
    """How many of these reasons of skipped tests are a missing trace, and what to do about it."""
    count = sum(MISSING in reason for reason in reasons)
    if count == 0:
        return None
    tests = "1 test" if count == 1 else f"{count} tests"
    return f"{tests} skipped for want of traces by others; {COMMAND} gets those that are public"
