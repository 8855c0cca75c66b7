"""Messages to an app that is attached to a target: the target, its metrics, its windows.

They are in recordings beside the messages of a worker (`messages.py`), and grow as those do.
"""

from msgspec import Struct

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport


class Target(Struct, frozen=True, tag="target"):
    """The target in words, what a window costs it, and the length of a window; "" if it has no
    windows, for the reason in `cost`. `model` is the one that it names, as `--model` takes it. It
    is the first message."""

    name: str
    cost: str
    length: str
    model: str | None = None


class ServerSample(Struct, frozen=True, tag="sample"):
    """The figures of the target now, None if it has no metrics."""

    figures: ServerFigures | None


class NoAnswer(Struct, frozen=True, tag="no_answer"):
    """The target did not answer, for a reason in one line; it is asked again."""

    reason: str


class TracesOf(Struct, frozen=True):
    """How many of the traces of a window are those of `server`."""

    server: str
    count: int


class WindowTaken(Struct, frozen=True, tag="window"):
    """The traces of a window, one a rank; in a recording the names of their files. Of several
    `servers` they come one after the other."""

    paths: tuple[str, ...]
    observer: ObserverReport
    servers: tuple[TracesOf, ...] = ()


class WindowFailed(Struct, frozen=True, tag="no_window"):
    """A window has no traces, for a reason in one line."""

    reason: str


AttachMessage = Target | ServerSample | NoAnswer | WindowTaken | WindowFailed
