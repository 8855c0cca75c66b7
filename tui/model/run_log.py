"""The log that page 9 shows: its last lines, and how many of them call for attention."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from decodescope.analyzer.schema.report import Finding
from decodescope.tui.model.view import Level, LogLine, LogSource

LOG_LINES = 1000


@dataclass(slots=True, eq=False)
class RunLog:
    """Keeps the last `LOG_LINES` lines; `unseen` counts the warnings and errors since page 9 was
    shown."""

    unseen: int = 0
    _lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _count: int = 0
    _reported: set[tuple[int, str]] = field(default_factory=set)

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """The lines, oldest first."""
        return tuple(self._lines)

    def add(self, level: Level, text: str, time: str, source: LogSource, code: str = "") -> None:
        """Add a line."""
        self._count += 1
        self.unseen += level != "info"
        self._lines.append(LogLine(self._count, level, text, time, source, code))

    def unreported(self, index: int, findings: Sequence[Finding]) -> list[Finding]:
        """The findings of the choice at `index` that are asked about for the first time: once per
        code, because the numbers in a message differ from window to window."""
        new = [finding for finding in findings if (index, finding.code) not in self._reported]
        self._reported.update((index, finding.code) for finding in new)
        return new

    def forget_worker(self) -> None:
        """Drop what the worker reported."""
        kept = [line for line in self._lines if line.source != "worker"]
        self._lines = deque(kept, maxlen=LOG_LINES)
