"""Launches: those of one kernel, and the launch calls of a trace by time and API."""

from dataclasses import dataclass
from functools import partial

from decodescope.analyzer.schema.kernel_report import LaunchReport, Percentiles
from decodescope.analyzer.tables.columns import (
    COUNT,
    DURATION,
    EXTENT,
    MICROSECONDS,
    NAME,
    PLACE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.text.formatting import UNKNOWN

_AT = partial(Column, lambda ns: f"{ns / 1e6:,.4f}", symbol="ms")


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch; None is unknown, or has no such figure. `around` is the beginning of `range` that
    all launches of the kernel have in common."""

    at_ns: int
    step: int | None
    length_ns: int
    attributed_ns: int
    gap_ns: int | None
    queue_ns: int | None
    latency_ns: int | None
    device: int | str
    stream: int
    grid: tuple[int, int, int] | None
    range: str | None
    around: str


def launch_columns(*, several_devices: bool, overlapping: bool) -> tuple[Column[LaunchRow], ...]:
    return (
        _AT("at_ns", "at", "When, after the first op of the trace.", first="up"),
        PLACE("step", "step", "Its step.", priority=2),
        MICROSECONDS("length_ns", "took", "Its duration."),
        MICROSECONDS(
            "attributed_ns",
            "attributed",
            "Attributed time: shared with the kernels that run at once.",
            priority=5 if overlapping else 8,
        ),
        MICROSECONDS("gap_ns", "gap before", "The gap of the device that it ended.", priority=1),
        MICROSECONDS("queue_ns", "queued", "From its launch call's end to its start.", priority=4),
        MICROSECONDS(
            "latency_ns", "call to start", "From its launch call's start to its start.", priority=6
        ),
        PLACE("device", "device", "The device.", priority=3, shown=several_devices),
        PLACE("stream", "stream", "The stream.", priority=9),
        EXTENT("grid", "grid", "The launch grid in blocks.", priority=7),
        NAME(
            "range",
            "range",
            "The range, without what all launches of the kernel have in common.",
            text=lambda row: UNKNOWN if row.range is None else row.range.removeprefix(row.around),
            priority=1,
            least=16,
            tone="dim",
        ),
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of times by its name; None if none of them is known."""

    name: str
    times: Percentiles | None


def launch_times_table(launches: LaunchReport) -> Table[Distribution]:
    rows = (
        Distribution("call time", launches.api_ns),
        Distribution("queue time", launches.queue_ns),
        Distribution("call to start", launches.launch_latency_ns),
    )
    name = "Of the call, from its end, or from its start to the op's start."
    least: Column[Distribution] = DURATION("times.min", "min", "The shortest.")
    return Table("times", (TEXT("name", "time", name), least, *PERCENTILES), rows)


@dataclass(frozen=True, slots=True)
class LaunchApiRow:
    """The calls of one API function, or all of them."""

    name: str
    calls: int
    whole: bool = False


def launch_apis_table(launches: LaunchReport) -> Table[LaunchApiRow]:
    rows = [LaunchApiRow(name, calls) for name, calls in launches.by_api.items()]
    rows.append(LaunchApiRow("all", launches.calls, whole=True))
    return Table("functions", _APIS, rows, tone=lambda row: "strong" if row.whole else "plain")


PERCENTILES: tuple[Column[Distribution], ...] = (
    DURATION("times.p50", "p50", "The median."),
    DURATION("times.p90", "p90", "90 % are at most that long."),
    DURATION("times.p99", "p99", "99 % are at most that long."),
    DURATION("times.max", "max", "The longest."),
)
_APIS: tuple[Column[LaunchApiRow], ...] = (
    TEXT("name", "launched by", "The function of the API."),
    COUNT("calls", "calls", "How often it put work on a device."),
)
