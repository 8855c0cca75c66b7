"""What the app is told about its terminal and its time: never guessed, so tests can fix both."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """`unicode`: the terminal shows UTF-8. `color`: colours are wanted (NO_COLOR is not set)."""

    unicode: bool = True
    color: bool = True


class Clock(Protocol):
    """Where the app reads the time."""

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean something."""
        ...

    def local(self) -> datetime:
        """The wall clock, for file names and notices."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def local(self) -> datetime:
        """See `Clock.local`."""
        return datetime.now()
