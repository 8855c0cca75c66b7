"""Single gaps with the ops and the host around each, interruptions, and the steady state."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from decodescope.analyzer.names.fitted_names import ShortNames, cut_start
from decodescope.analyzer.schema.interruption_report import (
    InterruptionReport,
    SteadyState,
    StepSummary,
)
from decodescope.analyzer.schema.report import DeviceReport, GapReport, Report
from decodescope.analyzer.tables.columns import (
    COUNT,
    DURATION,
    PERCENT,
    PLACE,
    TEXT,
    Column,
    Mark,
    Table,
)
from decodescope.analyzer.tables.devices_table import device_column
from decodescope.analyzer.vocabulary.words import device_words, gap_causes

_NAME_LEAST, _LEAST = 20, 14


def longest_gaps_table(report: Report) -> Table[GapReport]:
    """The longest gaps of a report."""
    gaps = report.largest_gaps
    names = ShortNames(name for gap in gaps for name in (gap.prev, gap.next))
    columns = gap_columns(report.devices, names, lambda gap: " + ".join(gap_causes(gap)))
    return Table(
        "gaps",
        columns,
        gaps,
        key=lambda gap: (gap.device, gap.at_ns),
        mark=lambda gap: Mark("gap", gap.gap_class),
    )


def gap_columns(
    devices: Sequence[DeviceReport], names: ShortNames, causes: Callable[[GapReport], str]
) -> tuple[Column[GapReport], ...]:
    """The columns of gaps; `names` has the ops around them, `causes` words their classes."""
    return (
        Column(
            "gap_class",
            "class",
            TEXT,
            "Why the device was idle: the class of the longest part, and how many parts follow.",
            text=causes,
            least=16,
        ),
        Column("at_ns", "at", DURATION, "When, after the device's first op.", priority=7),
        Column("length_ns", "length", DURATION, "How long.", tone="strong", least=7),
        Column(
            "prev",
            "after",
            TEXT,
            "The op before the gap.",
            fit=lambda gap, cells: names.of(gap.prev, cells),
            flexible=True,
            least=_NAME_LEAST,
            priority=3,
            code=True,
        ),
        Column(
            "next",
            "before",
            TEXT,
            "The op that ended the gap.",
            fit=lambda gap, cells: names.of(gap.next, cells),
            flexible=True,
            least=_NAME_LEAST,
            priority=1,
            code=True,
        ),
        *_HOST,
        Column(
            "device",
            "device",
            TEXT,
            "The device.",
            text=lambda gap: device_words(gap.device),
            priority=2,
            shown=len(devices) > 1,
        ),
    )


def host_words(gap: GapReport) -> str | None:
    """What the host did during most of a host_wait, and what it was in halfway through."""
    host = gap.host
    doing = (host.operator, host.call) if host is not None else ()
    parts = [part for part in doing if part is not None]
    if gap.label is None:
        return " · ".join(parts) or None
    return f"{gap.label}: {' · '.join(parts)}" if parts else gap.label


_HOST: tuple[Column[GapReport], ...] = (
    Column(
        "host",
        "host",
        TEXT,
        "What the launching thread was in halfway through the longest part.",
        host_words,
        flexible=True,
        least=_LEAST,
        priority=2,
    ),
    Column(
        "host.range",
        "host range",
        TEXT,
        "The range that the launching thread was in.",
        flexible=True,
        least=_LEAST,
        priority=8,
        code=True,
    ),
    Column(
        "range",
        "range",
        TEXT,
        "The range of the op that ended the gap.",
        fit=lambda gap, cells: cut_start(gap.range or "\u2013", cells),
        flexible=True,
        least=_LEAST,
        priority=4,
        tone="dim",
        code=True,
    ),
    Column(
        "call",
        "launch call",
        TEXT,
        "The call that launched that op.",
        priority=6,
        tone="dim",
    ),
    Column("step", "step", PLACE, "Its step.", priority=5, first="up", tone="dim"),
)


def interruptions_table(report: Report, most: int | None = None) -> Table[InterruptionReport]:
    """The first `most` intervals in order of time."""
    columns: tuple[Column[InterruptionReport], ...] = (
        device_column(report.devices),
        Column("at_ns", "at", DURATION, "When, after the device's first op."),
        Column("ns", "interrupted", DURATION, "For how much longer than usual."),
        Column(
            "cause",
            "cause",
            TEXT,
            "The cause.",
            lambda interruption: interruption.cause.replace("_", " "),
        ),
        Column("step", "step", PLACE, "The step, if it was in one.", priority=2),
        Column("call", "call", TEXT, "The host call that took the time.", priority=3, code=True),
        Column(
            "evidence",
            "evidence",
            TEXT,
            "How it differs from the other steps.",
            flexible=True,
            wrap=True,
            least=24,
            tone="dim",
        ),
    )
    return Table(
        "intervals",
        columns,
        report.interruptions[:most],
        total=len(report.interruptions),
        key=lambda interruption: (interruption.device, interruption.at_ns),
    )


@dataclass(frozen=True, slots=True)
class WindowRow:
    """The window of a device, or of all devices together: the whole, or the steady state."""

    device: int | str | None
    name: str
    window_ns: int
    busy_ns: int
    idle_ns: int


def steady_table(report: Report, steady: SteadyState) -> Table[WindowRow]:
    """The whole window and what remains of it, of each device."""
    columns: tuple[Column[WindowRow], ...] = (
        device_column(report.devices),
        Column("name", "", TEXT, "The whole window, or without interruptions."),
        Column("window_ns", "window", DURATION, "Its length."),
        Column("busy_ns", "busy", DURATION, "The time in which any op ran."),
        Column("idle_ns", "idle", DURATION, "Window minus busy."),
        Column(
            "idle_share",
            "idle",
            PERCENT,
            "Idle ÷ window.",
            lambda row: row.idle_ns / row.window_ns if row.window_ns else None,
        ),
    )
    rows = list(_windows(report, steady))
    return Table("windows", columns, rows, key=lambda row: (row.device, row.name))


def _windows(report: Report, steady: SteadyState) -> Iterator[WindowRow]:
    for device, left in zip(report.devices, steady.devices, strict=True):
        for name, figures in (("whole", device), ("steady", left)):
            yield WindowRow(
                device.device, name, figures.window_ns, figures.busy_ns, figures.idle_ns
            )


def median_steps_table(steady: SteadyState, on_cpu: bool, most: int) -> Table[StepSummary]:
    """The median step of each kind, without interruptions."""
    columns: tuple[Column[StepSummary], ...] = (
        Column(
            "kind",
            "median step",
            TEXT,
            "The step's name, with “*” for its numbers.",
            flexible=True,
            least=18,
            priority=3,
        ),
        Column("steps", "steps", COUNT, "How many launched ops."),
        Column("interrupted_steps", "interrupted", COUNT, "How many of them were interrupted."),
        Column("time_ns", "time", DURATION, "From a step's start to that of the next one."),
        Column("host_ns", "host", DURATION, "The length of the host's marker.", priority=4),
        Column(
            "gpu_span_ns",
            "op span" if on_cpu else "GPU span",
            DURATION,
            "From the start of its first op to the end of its last one.",
        ),
        Column("busy_ns", "busy", DURATION, "The time of the span in which any op ran."),
        Column("idle_ns", "idle", DURATION, "The rest of the span."),
    )
    return Table(
        "kinds",
        columns,
        steady.steps[:most],
        total=len(steady.steps),
        key=lambda step: step.kind,
    )
