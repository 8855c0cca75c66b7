"""Signals that end a command: SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is gone).

The first one interrupts the command like Ctrl-C, so that it keeps what is whole, removes what is
not, and ends its processes. A second one ends this process at once.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# `timeout` sends its signal twice, to the process and to its group; a second one that is meant as
# one comes later.
_ONE_SIGNAL_S = 0.1


@dataclass(slots=True)
class Interruption:
    """The signal that interrupted a command, None so far."""

    number: int | None = None


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Turns the first ending signal into `KeyboardInterrupt`, except those that this process was
    started to ignore (`nohup`)."""
    caught = {one: signal.getsignal(one) for one in ENDING}
    caught = {one: handler for one, handler in caught.items() if handler is not signal.SIG_IGN}
    interruption = Interruption()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruption.number = number
        for one in caught:
            signal.signal(one, _ignore)
        time.sleep(_ONE_SIGNAL_S)
        for one in caught:
            signal.signal(one, signal.SIG_DFL)
        raise KeyboardInterrupt

    for one in caught:
        signal.signal(one, interrupt)
    yield interruption
    if interruption.number is None:
        for one, handler in caught.items():
            signal.signal(one, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
