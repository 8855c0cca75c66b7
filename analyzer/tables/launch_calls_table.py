"""The launch calls of a trace: their times, and how many of each API."""

from dataclasses import dataclass

from decodescope.analyzer.schema.kernel_report import LaunchReport, Percentiles
from decodescope.analyzer.tables.columns import COUNT, DURATION, TEXT, Column, Table


@dataclass(frozen=True, slots=True)
class LaunchTimesRow:
    """The distribution of one time; None where no launch call is linked to its work."""

    name: str
    times: Percentiles | None


def launch_times_table(launches: LaunchReport) -> Table[LaunchTimesRow]:
    """The call time, the queue time and the launch latency."""
    rows = (
        LaunchTimesRow("call time", launches.api_ns),
        LaunchTimesRow("queue time", launches.queue_ns),
        LaunchTimesRow("call to start", launches.launch_latency_ns),
    )
    return Table("times", _TIMES, rows)


@dataclass(frozen=True, slots=True)
class LaunchApiRow:
    """The calls of one API function, or all of them."""

    name: str
    calls: int
    whole: bool = False


def launch_apis_table(launches: LaunchReport) -> Table[LaunchApiRow]:
    """The calls of each API function, and all."""
    rows = [LaunchApiRow(name, calls) for name, calls in launches.by_api.items()]
    rows.append(LaunchApiRow("all", launches.calls, whole=True))
    return Table("functions", _APIS, rows, tone=lambda row: "strong" if row.whole else "plain")


_TIMES: tuple[Column[LaunchTimesRow], ...] = (
    Column("name", "time", TEXT, "Of the call, from its end, or from its start to the op's start."),
    Column("times.min", "min", DURATION, "The shortest."),
    Column("times.p50", "p50", DURATION, "The median."),
    Column("times.p90", "p90", DURATION, "90 % are at most that long."),
    Column("times.p99", "p99", DURATION, "99 % are at most that long."),
    Column("times.max", "max", DURATION, "The longest."),
)
_APIS: tuple[Column[LaunchApiRow], ...] = (
    Column("name", "launched by", TEXT, "The function of the API."),
    Column("calls", "calls", COUNT, "How often it put work on a device."),
)
