"""One command that is ended at some moment: its processes, and how long they outlive the signal."""

import contextlib
import os
import pty
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Every process that a command starts inherits this variable.
_MARK = "DECODESCOPE_TRIAL"
_POLL_S = 0.01
_READ_BYTES = 1 << 16
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A command that got a signal `at_s` after its start, one process of `processes`: its own, or a
    child of it. `gone_s` after that none of them was left, at most `LIMIT_S`. `code` is the
    command's exit code, `printed` the end of what it printed."""

    at_s: float
    processes: int
    child: bool
    gone_s: float
    code: int
    printed: str


class Running:
    """`decodescope ARGUMENTS` in `folder`, in a terminal or not, and all that it starts (Linux).
    Its standard input has `given`, at most what a pipe holds, and then no end; without it, it is
    empty."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        folder: Path,
        variables: Mapping[str, str],
        terminal: bool,
        given: bytes = b"",
    ) -> None:
        mark = secrets.token_hex(8)
        self._mark = f"{_MARK}={mark}".encode()
        self._output, theirs = pty.openpty() if terminal else os.pipe()
        os.set_blocking(self._output, False)
        self.printed = b""
        ours, self._given = os.pipe()
        os.write(self._given, given)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "decodescope", *arguments],
            stdin=theirs if terminal else ours if given else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, **variables, _MARK: mark},
            start_new_session=True,
        )
        os.close(theirs)
        os.close(ours)
        self._began_s = time.monotonic()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *error: object) -> None:
        """Kill what still runs."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._output)
        os.close(self._given)

    def pids(self) -> list[int]:
        """The processes that run, the command's own first."""
        found = []
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and self._mark in Path(entry, "environ").read_bytes():
                    found.append(int(entry.name))
        return sorted(found, key=lambda pid: pid != self.process.pid)

    def wait_until(self, moment_s: float) -> bool:
        """Wait until so long after the start; False if the command has ended by then."""
        while time.monotonic() < self._began_s + moment_s:
            self._read()
            if self.process.poll() is not None:
                return False
            time.sleep(_POLL_S)
        return True

    def wait_gone(self, limit_s: float = LIMIT_S) -> float:
        """Seconds until no process is left, at most `limit_s`."""
        began_s = time.monotonic()
        while (now_s := time.monotonic() - began_s) < limit_s:
            self._read()
            if self.process.poll() is not None and not self.pids():
                return now_s
            time.sleep(_POLL_S)
        return limit_s

    def end(self, number: signal.Signals, at_s: float, chosen: int) -> Trial | None:
        """Send a signal after `at_s` to the process at `chosen` (from 0, counted on from the first
        after the last); None if the command has ended by then. Where that leaves the command
        running, as a child's death may, SIGTERM ends it, which does not count."""
        if not self.wait_until(at_s):
            return None
        if not (pids := self.pids()):
            return None
        child = pids[chosen % len(pids)] != self.process.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[chosen % len(pids)], number)
        if child:
            self.process.terminate()
        gone_s = self.wait_gone()
        printed = self.printed.decode(errors="replace")[-300:]
        code = self.process.poll()
        return Trial(at_s, len(pids), child, gone_s, -1 if code is None else code, printed)

    def _read(self) -> None:
        """Take what was printed, so that no command waits for a reader."""
        with contextlib.suppress(OSError):
            while data := os.read(self._output, _READ_BYTES):
                self.printed = (self.printed + data)[-_READ_BYTES:]
