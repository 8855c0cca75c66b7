"""Single gaps: where each is, what it is between, and what the host did."""

from collections.abc import Callable, Sequence

from decodescope.analyzer.names.names import ShortNames, cut_start
from decodescope.analyzer.schema.report import DeviceReport, GapReport, Report
from decodescope.analyzer.tables.columns import DURATION, PLACE, TEXT, Column, Mark, Table
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
    parts = [one for one in doing if one is not None]
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
