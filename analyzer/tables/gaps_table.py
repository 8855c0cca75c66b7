"""Idle time by class, of each device or by stream; groups of gaps; single gaps with the ops and the
host around each; interruptions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from decodescope.analyzer.names.fitted_names import ShortNames, cut_start
from decodescope.analyzer.schema.report import DeviceReport, GapGroup, GapReport, GapTotal, Report
from decodescope.analyzer.schema.step_report import InterruptionReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Mark, Table, quotient
from decodescope.analyzer.tables.devices_table import device_column
from decodescope.analyzer.tables.kernels_table import short_names
from decodescope.analyzer.vocabulary.words import device_words


@dataclass(frozen=True, slots=True)
class GapClassRow:
    """The gaps of a class, or all of them (`gap_class` None); `sub`: those of `gap_class`
    host_wait in which the host did `name`. Shares are of `of_ns`."""

    name: str
    total: GapTotal
    of_ns: int
    gap_class: str | None = None
    sub: bool = False
    device: int | str | None = None


def gap_classes_table(report: Report) -> Table[GapClassRow]:
    """The classes that occurred on each device, host_wait also by what the host did, and all."""
    return Table(
        "classes",
        (device_column(report.devices), *gap_class_columns()),
        [row for device in report.devices for row in _of_device(device)],
        key=lambda row: (row.device, row.gap_class, row.name),
        mark=lambda row: Mark("gap", "" if row.sub else row.gap_class or ""),
        tone=lambda row: "dim" if row.sub else "plain" if row.gap_class else "strong",
        is_total=lambda row: row.gap_class is None,
    )


def gap_class_columns(of: str = "of window") -> tuple[Column[GapClassRow], ...]:
    """The columns of classes; `of` says what shares are of."""
    return (
        kinds.TEXT(
            "class", "class", "name", text=lambda row: f"  {row.name}" if row.sub else row.name
        ),
        kinds.COUNT("count", "gaps", "total.count", priority=1),
        kinds.DURATION("total_ns", "total", "total.total_ns", tone="strong"),
        kinds.PERCENT("window_share", of, quotient("total.total_ns", "of_ns"), priority=2, bar=12),
        kinds.DURATION("mean_ns", "mean", quotient("total.total_ns", "total.count"), priority=4),
        kinds.DURATION("max_ns", "longest", "total.max_ns", priority=3),
    )


def _of_device(device: DeviceReport) -> Iterator[GapClassRow]:
    of_ns, number = device.window_ns, device.device
    for name, total in device.gaps.items():
        if total.count:
            yield GapClassRow(name, total, of_ns, name, device=number)
        if name == "host_wait":
            for label, part in device.host_wait.items():
                if part.count:
                    yield GapClassRow(label, part, of_ns, name, sub=True, device=number)
    yield GapClassRow("all idle", device.all_gaps, of_ns, device=number)


@dataclass(frozen=True, slots=True)
class StreamGapsRow:
    """The gaps of one class that ops of a stream ended; of host_wait, those with one `label`."""

    device: int | str
    stream: int
    gap_class: str
    label: str
    total: GapTotal


def stream_gaps_table(report: Report) -> Table[StreamGapsRow]:
    """The classes that occurred, by device and stream. The times of a device add up to its idle
    time."""
    rows = [
        StreamGapsRow(device.device, stream.stream, name, label, part)
        for device in report.devices
        for stream in device.streams
        for name, total in stream.gaps.items()
        for label, part in (stream.host_wait if name == "host_wait" else {"": total}).items()
        if part.count
    ]
    columns: tuple[Column[StreamGapsRow], ...] = (
        kinds.TEXT("device", "device"),
        kinds.TEXT("stream", "stream"),
        kinds.TEXT("class", "class", "gap_class"),
        kinds.TEXT("label", "label"),
        kinds.COUNT("count", "gaps", "total.count"),
        kinds.DURATION("total_ns", "total", "total.total_ns"),
        kinds.DURATION("max_ns", "longest", "total.max_ns"),
    )
    return Table("classes", columns, rows)


def gap_groups_table(report: Report, most: int | None = None) -> Table[GapGroup]:
    """The first `most` groups of gaps; shares are of the idle time of all devices."""
    groups = report.gap_groups[:most]
    around = (name for group in groups for name in (group.prev, group.next))
    names = short_names(report.kernels, around)
    return Table(
        "groups",
        gap_group_columns(sum(device.idle_ns for device in report.devices), names),
        groups,
        total=report.gap_group_count,
        mark=lambda group: Mark("gap", group.gap_class),
    )


def gap_group_columns(idle_ns: int, names: ShortNames) -> tuple[Column[GapGroup], ...]:
    """The columns of groups of gaps; shares are of `idle_ns`, `names` has the ops around them."""
    return (
        kinds.TEXT("gap_class", "class", text=group_cause),
        kinds.COUNT("count", "gaps", priority=3),
        kinds.DURATION("total_ns", "total", tone="strong"),
        kinds.DURATION("mean_ns", "mean", quotient("total_ns", "count"), priority=5),
        kinds.DURATION("max_ns", "longest", priority=5),
        kinds.PERCENT(
            "idle_share",
            "of idle",
            lambda group: group.total_ns / idle_ns if idle_ns else None,
            priority=2,
            bar=8,
        ),
        kinds.RANGE("prev", "after", cut=names.of, priority=4),
        kinds.RANGE("next", "before", cut=names.of, priority=1),
    )


def group_cause(group: GapGroup) -> str:
    return group.gap_class if group.label is None else f"{group.gap_class}: {group.label}"


def gap_columns(
    devices: Sequence[DeviceReport], names: ShortNames, causes: Callable[[GapReport], str]
) -> tuple[Column[GapReport], ...]:
    """The columns of gaps; `names` has the ops around them, `causes` words their classes."""
    return (
        kinds.TEXT("gap_class", "class", text=causes, least=16),
        kinds.DURATION("at_ns", "at", priority=7),
        kinds.DURATION("length_ns", "length", tone="strong", least=7),
        kinds.RANGE("prev", "after", cut=names.of, least=20, priority=3),
        kinds.RANGE("next", "before", cut=names.of, least=20, priority=1),
        *_HOST,
        kinds.TEXT(
            "device",
            "device",
            text=lambda gap: device_words(gap.device),
            priority=2,
            shown=len(devices) > 1,
        ),
    )


def host_words(gap: GapReport) -> str | None:
    """The label of most of a host_wait, and the operator and call that the host was in."""
    host = gap.host
    doing = (host.operator, host.call) if host is not None else ()
    parts = [part for part in doing if part is not None]
    if gap.label is None:
        return " · ".join(parts) or None
    return f"{gap.label}: {' · '.join(parts)}" if parts else gap.label


_HOST: tuple[Column[GapReport], ...] = (
    kinds.NAME("host", "host", host_words, least=14, priority=2),
    kinds.RANGE("host.range", "host range", priority=8),
    kinds.RANGE("range", "range", cut=cut_start, priority=4, tone="dim"),
    kinds.TEXT("call", "launch call", priority=6, tone="dim"),
    kinds.PLACE("step", "step", priority=5, tone="dim"),
)


def interruptions_table(report: Report, most: int | None = None) -> Table[InterruptionReport]:
    """The first `most` intervals in order of time."""
    return Table(
        "intervals",
        (
            device_column(report.devices),
            kinds.DURATION("at_ns", "at"),
            kinds.DURATION("ns", "interrupted"),
            kinds.TEXT("cause", "cause", lambda row: row.cause.replace("_", " ")),
            kinds.PLACE("step", "step", priority=2),
            kinds.CODE("call", "call", priority=3),
            kinds.PROSE("evidence", "evidence", tone="dim"),
        ),
        report.interruptions[:most],
        total=len(report.interruptions),
    )
