"""Resources of a process that a leak makes more of."""

import os
from pathlib import Path
from typing import Self

from msgspec import Struct


class Held(Struct, frozen=True):
    """Open file descriptors, threads and resident memory of a process (Linux, proc(5))."""

    descriptors: int
    threads: int
    resident_bytes: int

    @classmethod
    def by(cls, pid: int) -> Self:
        proc = Path("/proc", str(pid))
        return cls(
            len(os.listdir(proc / "fd")), len(os.listdir(proc / "task")), resident_bytes(pid)
        )


def resident_bytes(pid: int) -> int:
    """The resident memory of a process (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
