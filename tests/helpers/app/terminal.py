"""A process on a pseudo-terminal."""

import os
import re
import sys
import time
from pathlib import Path

import pyte
import pytest

pexpect = pytest.importorskip("pexpect")
ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0


class Terminal:
    """A process on a pseudo-terminal, and its screen."""

    def __init__(
        self, arguments: list[str], width: int, height: int, program: str = sys.executable
    ) -> None:
        self.raw = b""
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        environment = os.environ | {
            "TERM": "xterm-256color",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        environment.pop("NO_COLOR", None)
        self.child = pexpect.spawn(
            program,
            arguments,
            dimensions=(height, width),
            env=environment,
        )

    def until(self, condition, patience_s: float = PATIENCE_S) -> None:
        """Read until `condition` holds or patience ends.

        A frame arrives in pieces, and a condition sees each of them: what a test expects of one
        frame belongs into one condition, and not into an assertion after it.
        """
        end = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < end, "\n".join(self.screen.display)
            self._read()

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen.display)

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(height, width)
        self.child.setwinsize(height, width)

    def _read(self) -> bool:
        """Read what there is; False if there was nothing."""
        try:
            data = self.child.read_nonblocking(65536, 0.05)
        except pexpect.TIMEOUT:
            return False
        except pexpect.EOF:
            self.child.wait()
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def gone(self) -> bool:
        """Whether the program has ended; everything that it wrote is read then."""
        self._read()
        if self.child.isalive():
            return False
        # It may have written more between the read and its end.
        while self._read():
            pass
        return True


def restored(raw: bytes) -> bool:
    """Whether what was switched on at the start was switched off again at the end."""
    modes = {}
    for mode, switch in re.findall(rb"\x1b\[\?(\d+)([hl])", raw):
        modes[mode] = switch
    return (
        modes[b"1049"] == b"l"
        and modes[b"25"] == b"h"
        and all(modes[mode] == b"l" for mode in (b"1000", b"1003", b"1006") if mode in modes)
    )
