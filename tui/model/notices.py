"""The messages of a run to its user: one banner, and the lines of the log."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from decodescope.analyzer.protocol.messages import Failure, Hello
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.report import Finding
from decodescope.tui.link.base import WorkerDied

Level = Literal["info", "warning", "error"]
LogSource = Literal["app", "worker", "printed", "finding"]

_BANNER_LINES = 5


@dataclass(frozen=True, slots=True)
class Banner:
    """Something that needs attention: a headline, details, and what the user can do about it."""

    severity: Literal["error", "warning"]
    headline: str
    details: tuple[str, ...] = ()
    hint: str = "esc dismiss"


def died(event: WorkerDied, fatal: Failure | None) -> Banner:
    hint = "R restart it   esc dismiss   q quit"
    if fatal is not None:
        return Banner("error", fatal.message, (), hint)
    headline = f"{event.describe()}. The figures below are its last."
    return Banner("error", headline, event.log_tail[-_BANNER_LINES:], hint)


WORKER_HELD = Banner(
    "warning", "The worker is paused until the comparison on page 7 has ended; x there cancels it."
)
ENDED_BY_USER = Banner(
    "warning",
    "The worker was ended, and its memory is free. The figures are its last.",
    hint="R restart it   esc dismiss",
)


def no_cuda(hello: Hello) -> Banner:
    offer = "v, o recorded H200 runs   esc" if bundled_recordings() else "esc dismiss"
    return Banner("warning", f"No CUDA device: running {hello.model} on the CPU", (), offer)


TARGET_RESTARTED = Banner("warning", "The server restarted; its rates begin anew.")


def no_answer(reason: str) -> Banner:
    return Banner("warning", reason, (), "it is asked again   esc dismiss")


def degraded(name: str, findings: Sequence[Finding]) -> Banner:
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return Banner("warning", f"{name} is degraded: {findings[0].message}{more}")


RECORDED_ELSEWHERE = Banner(
    "warning",
    "A recording of another machine, not a run of this one",
    (),
    "8 back to the run   esc",
)


def failure(message: Failure, replayed: bool) -> Banner:
    """Something failed in the worker; what is `replayed` cannot be restarted."""
    hint = "R restart it   esc dismiss" if message.fatal and not replayed else "esc dismiss"
    return Banner("error", message.message, (), hint)


LOG_LINES = 1000
_LINE_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log, the `number`-th of its run. `time` is the time of day, or the recorded
    time in a replay; a finding of a trace's health has its `code`."""

    number: int
    level: Level
    text: str
    time: str
    source: LogSource
    code: str = ""


@dataclass(slots=True, eq=False)
class RunLog:
    """Keeps the last `LOG_LINES` lines, the beginning of long ones; `unseen` counts the warnings
    and errors since page 9 was shown."""

    unseen: int = 0
    _lines: deque[LogLine] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    _count: int = 0
    _reported: set[tuple[int, str]] = field(default_factory=set)

    @property
    def lines(self) -> tuple[LogLine, ...]:
        return tuple(self._lines)

    def add(self, level: Level, text: str, time: str, source: LogSource, code: str = "") -> None:
        if len(text) > _LINE_CHARACTERS:
            text = f"{text[:_LINE_CHARACTERS]} …"
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
        kept = [line for line in self._lines if line.source != "worker"]
        self._lines = deque(kept, maxlen=LOG_LINES)
