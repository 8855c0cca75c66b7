"""The events of an `AttachLink`: its target, metrics, silence, and windows."""

from pathlib import Path

from msgspec import Struct

from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.servers.metrics import ServerMetrics
from decodescope.attach.servers.rates import ServerRates


class Target(Struct, frozen=True, tag="target"):
    """The target in words, what a window costs it, and the length of a window; "" if it has no
    windows, for the reason in `cost`. `model` is the one that it names, as `--model` takes it."""

    name: str
    cost: str
    length: str
    model: str | None = None


class ServerSample(Struct, frozen=True, tag="sample"):
    """The metrics of the target now, None if it has none, and the rates since the sample before,
    None of the first."""

    metrics: ServerMetrics | None
    rates: ServerRates | None = None


class NoAnswer(Struct, frozen=True, tag="no_answer"):
    """The target did not answer, for a reason in one line; it is asked again."""

    reason: str


class WindowTaken(Struct, frozen=True, tag="window"):
    """The traces of a window, one a rank."""

    paths: tuple[Path, ...]
    observer: ObserverReport


class WindowFailed(Struct, frozen=True, tag="no_window"):
    """A window has no traces, for a reason in one line."""

    reason: str


AttachEvent = Target | ServerSample | NoAnswer | WindowTaken | WindowFailed
