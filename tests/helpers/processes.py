"""Processes of this machine, found in /proc; zombies do not count, nor servers of forks."""

import time
from pathlib import Path

from tests.helpers import preloaded

PATIENCE_S = 30


def _state_and_parent(stat: Path) -> tuple[str, int]:
    state, parent = stat.read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return _state_and_parent(Path(f"/proc/{pid}/stat"))[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Wait for the end of a process; False if it outlives the patience."""
    deadline = time.monotonic() + PATIENCE_S
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = _state_and_parent(stat)
            name = stat.with_name("comm").read_text().strip()
        except OSError:
            continue
        if parent == pid and state != "Z" and name != preloaded.NAME:
            found.append(int(stat.parent.name))
    return found
