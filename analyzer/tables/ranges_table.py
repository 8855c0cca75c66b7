"""The ranges of a trace as a tree."""

from collections.abc import Sequence

from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import DETAIL, Column, Table, Tone
from decodescope.analyzer.tables.range_lines import RangeLine, range_lines
from decodescope.analyzer.tables.units import COUNT, DURATION, PERCENT, TEXT
from decodescope.analyzer.vocabulary.words import ops_word

_CERTAINTY = {"exact": 2, "partial": 1, "none": 0}


def ranges_table(report: Report, most: int | None = None) -> Table[RangeLine]:
    """The first `most` ranges, each below the range that contains it."""
    lines = range_lines(report, by_layer=False)
    return table_of_lines(lines[:most], report, total=len(lines))


def table_of_lines(
    lines: Sequence[RangeLine], report: Report, *, folded: bool = False, total: int | None = None
) -> Table[RangeLine]:
    """The lines of a tree; `folded`: a row may stand for several ranges."""
    return Table(
        "ranges",
        _columns(report, folded),
        lines,
        total=total,
        key=lambda line: line.found.path,
        search=lambda line: line.found.path,
        tone=_tone,
        depth=lambda line: line.depth,
    )


def _tone(line: RangeLine) -> Tone:
    return "dim" if line.found.kind == "operator" else "plain"


def _columns(report: Report, folded: bool) -> tuple[Column[RangeLine], ...]:
    attributed = report.overlapping
    return (
        Column(
            "path",
            "range",
            TEXT,
            "The range; ranges that differ only in their numbers may be one row.",
            lambda line: line.found.path,
            text=_label,
            fit=lambda line, cells: cut_middle(_label(line), cells),
            sort=lambda line: line.label,
            flexible=True,
            least=24,
            code=True,
        ),
        Column(
            "attributed_ns",
            "attributed",
            DURATION,
            "Attributed time: the time of its ops in which no op that began before still ran.",
            lambda line: line.found.attributed_ns,
            shown=attributed,
            tone="strong",
            least=7,
        ),
        Column(
            "gpu_ns",
            "time" if report.on_cpu else "GPU time",
            DURATION,
            "The time in which any of its ops ran.",
            lambda line: line.found.gpu_ns,
            priority=DETAIL if attributed else 0,
            tone="plain" if attributed else "strong",
            least=7,
        ),
        Column(
            "share",
            "share",
            PERCENT,
            "Its time ÷ the busy time of all devices.",
            priority=1,
        ),
        Column(
            "idle_ns",
            "idle",
            DURATION,
            "The gaps that its ops ended.",
            lambda line: line.found.idle_ns,
            priority=2,
            least=7,
        ),
        Column(
            "launch_calls",
            "launches",
            COUNT,
            "The calls inside that put work on a device.",
            lambda line: line.found.launch_calls,
            priority=5,
        ),
        Column(
            "gpu_ops",
            ops_word(report),
            COUNT,
            "The ops that were launched inside.",
            lambda line: line.found.gpu_ops,
            priority=6,
        ),
        *(_FOLDED if folded else ()),
        *_CONFIDENCE,
    )


def _label(line: RangeLine) -> str:
    several = len(line.each_ns)
    return f"{line.label} \u00d7{several}" if several > 1 else line.label


def confidence_words(line: RangeLine) -> str:
    """How the range is known, and for how many of its ops."""
    found = line.found
    if found.kind == "inferred":
        return "inferred"
    return found.confidence + ("" if found.matched is None else f" {found.matched:.0%}")


def _most_idle_class(line: RangeLine) -> str | None:
    gaps = line.found.gaps
    return max(gaps, key=lambda name: gaps[name]) if any(gaps.values()) else None


_FOLDED: tuple[Column[RangeLine], ...] = (
    Column(
        "mean_ns",
        "each",
        DURATION,
        "The mean time of one of several ranges in one row.",
        lambda line: line.mean_ns if len(line.each_ns) > 1 else None,
        priority=4,
        tone="dim",
        least=7,
    ),
    Column(
        "spread",
        "spread",
        PERCENT,
        "The longest minus the shortest of them, ÷ the mean.",
        priority=7,
        tone="dim",
    ),
)
_CONFIDENCE: tuple[Column[RangeLine], ...] = (
    Column(
        "confidence",
        "confidence",
        TEXT,
        "Whether its ops are known exactly, and which share of a graph's replay is.",
        lambda line: line.found.confidence,
        text=confidence_words,
        sort=lambda line: _CERTAINTY[line.found.confidence],
        priority=3,
        tone=lambda line: "dim" if line.found.confidence == "exact" else "warn",
    ),
    Column(
        "most_idle_class",
        "most idle",
        TEXT,
        "The class of most of its idle time.",
        _most_idle_class,
        priority=DETAIL + 1,
    ),
    Column(
        "kind",
        "kind",
        TEXT,
        "A range, an operator, or an inferred range.",
        lambda line: line.found.kind,
        csv_only=True,
    ),
    Column(
        "matched",
        "matched",
        PERCENT,
        "The share of a graph's replay that is known.",
        lambda line: line.found.matched,
        csv_only=True,
    ),
)
