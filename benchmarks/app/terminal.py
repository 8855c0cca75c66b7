"""Runs the app in a pseudo-terminal, as a person would; for the benchmarks and make_recordings."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect

APP_QUIT_S = 30
READ_BYTES = 1 << 16


class AppRun:
    """`decodescope ARGUMENTS` in a terminal of 120 by 40 cells, whose output is read and kept."""

    def __init__(self, *arguments: str) -> None:
        self.started = time.monotonic()
        self.output = b""
        self._app = pexpect.spawn(
            sys.executable,
            ["-m", "decodescope", *arguments],
            dimensions=(40, 120),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )
        # A key is timed from the moment it is typed.
        self._app.delaybeforesend = None

    def read_until(self, done: Callable[[], bool], limit_s: float) -> float:
        """Keep reading until `done()`; returns the seconds since the start, at most `limit_s`.

        Raises:
            TimeoutError: it was not done in time.
            RuntimeError: the app ended.
        """
        while not done():
            if time.monotonic() - self.started > limit_s:
                raise TimeoutError(f"not there after {limit_s} s; last: {self.output[-300:]!r}")
            with contextlib.suppress(pexpect.TIMEOUT):
                try:
                    self.output += self._app.read_nonblocking(READ_BYTES, timeout=0.02)
                except pexpect.EOF:
                    raise RuntimeError(f"the app ended; last: {self.output[-300:]!r}") from None
        return time.monotonic() - self.started

    def read_for(self, seconds: float) -> None:
        """Keep the terminal drained for some time."""
        end = time.monotonic() + seconds
        self.read_until(lambda: time.monotonic() >= end, limit_s=float("inf"))

    def press(self, keys: str) -> None:
        """Type."""
        self._app.send(keys)

    def cpu_s(self) -> float:
        """User and system seconds that the app's process has used (Linux)."""
        fields = Path(f"/proc/{self._app.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        """What the app's process holds in memory now (Linux)."""
        pages = Path(f"/proc/{self._app.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """End the app at once, whatever it shows."""
        self._app.close(force=True)

    def quit(self) -> int:
        """Press q and wait; returns the exit code."""
        self.press("q")
        self._app.expect(pexpect.EOF, timeout=APP_QUIT_S)
        self._app.close()
        return int(self._app.exitstatus if self._app.exitstatus is not None else -1)


def record_live(options: list[str], seconds: float, recording: Path, limit_s: float = 180) -> float:
    """Run `live` with `options` for `seconds` after its first figures, recording to `recording`;
    returns the share of one core that the app's own process used in that time (Linux)."""
    app = AppRun("live", *options, "--record", str(recording))
    app.read_until(lambda: b"tok/s" in app.output and b"running" in app.output, limit_s)
    before_s = app.cpu_s()
    app.read_for(seconds)
    core_share = (app.cpu_s() - before_s) / seconds
    code = app.quit()
    if code or not recording.is_file():
        raise RuntimeError(f"the app ended with {code}: {app.output[-500:]!r}")
    return core_share
