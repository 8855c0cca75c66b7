"""Single gaps with the ops and the host around each, interruptions, and the steady state."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from decodescope.analyzer.names.fitted_names import ShortNames, cut_start
from decodescope.analyzer.schema.interruption_report import InterruptionReport
from decodescope.analyzer.schema.report import DeviceReport, GapReport, Report
from decodescope.analyzer.tables.columns import (
    CODE,
    DURATION,
    NAME,
    PLACE,
    PROSE,
    RANGE,
    TEXT,
    Column,
    Mark,
    Table,
)
from decodescope.analyzer.tables.devices_table import device_column
from decodescope.analyzer.tables.figures import quotient
from decodescope.analyzer.vocabulary.words import device_words, gap_causes

_IDLE_SHARE = quotient("figures.idle_ns", "figures.window_ns")


def longest_gaps_table(report: Report) -> Table[GapReport]:
    gaps = report.largest_gaps
    names = ShortNames(name for gap in gaps for name in (gap.prev, gap.next))
    return Table(
        "gaps",
        gap_columns(report.devices, names, lambda gap: " + ".join(gap_causes(gap))),
        gaps,
        mark=lambda gap: Mark("gap", gap.gap_class),
    )


def gap_columns(
    devices: Sequence[DeviceReport], names: ShortNames, causes: Callable[[GapReport], str]
) -> tuple[Column[GapReport], ...]:
    """The columns of gaps; `names` has the ops around them, `causes` words their classes."""
    kernel = replace(RANGE, least=20, fit=names.of)
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
        Column("prev", "after", kernel, "The op before the gap.", priority=3),
        Column("next", "before", kernel, "The op that ended the gap.", priority=1),
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
    """The label of most of a host_wait, and the operator and call that the host was in."""
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
        NAME,
        "What the launching thread was in halfway through the longest part.",
        host_words,
        least=14,
        priority=2,
    ),
    Column(
        "host.range", "host range", RANGE, "The range that the launching thread was in.", priority=8
    ),
    Column(
        "range",
        "range",
        replace(RANGE, fit=cut_start),
        "The range of the op that ended the gap.",
        priority=4,
        tone="dim",
    ),
    Column("call", "launch call", TEXT, "The call that launched that op.", priority=6, tone="dim"),
    Column("step", "step", PLACE, "Its step.", priority=5, tone="dim"),
)


def interruptions_table(report: Report, most: int | None = None) -> Table[InterruptionReport]:
    """The first `most` intervals in order of time."""
    return Table(
        "intervals",
        (
            device_column(report.devices),
            Column("at_ns", "at", DURATION, "When, after the device's first op."),
            Column("ns", "interrupted", DURATION, "For how much longer than usual."),
            Column("cause", "cause", TEXT, "The cause.", lambda row: row.cause.replace("_", " ")),
            Column("step", "step", PLACE, "The step, if it was in one.", priority=2),
            Column("call", "call", CODE, "The host call that took the time.", priority=3),
            Column(
                "evidence", "evidence", PROSE, "How it differs from the other steps.", tone="dim"
            ),
        ),
        report.interruptions[:most],
        total=len(report.interruptions),
    )
