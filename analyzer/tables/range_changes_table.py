"""The ranges of two sides, aligned across layers and fusion."""

from collections.abc import Sequence

from decodescope.analyzer.schema.comparison_report import Pair, RangeChange
from decodescope.analyzer.tables.changes_table import TEXT_OF_NUMBER, changed_to, moved_tone
from decodescope.analyzer.tables.columns import (
    MICROSECONDS,
    SIGNED_MICROSECONDS,
    TEXT,
    Column,
    Table,
    Unit,
)
from decodescope.analyzer.tables.range_change_rows import RangeChangeRow, range_change_row
from decodescope.analyzer.vocabulary.words import change_text

_OPS = Unit(lambda figure: "" if figure is None else f"{figure:,.0f}")


def aligned_ranges_table(pair: Pair) -> Table[RangeChangeRow]:
    """Every aligned range by its whole path, with the ranges that a fused one replaces."""
    figure = "attributed_ns" if pair.overlapping else "gpu_ns"
    rows = [range_change_row(row, figure, _replacing(row)) for row in pair.ranges]
    return range_changes_table(rows, (pair.base, pair.other), attributed=pair.overlapping)


def _replacing(row: RangeChange) -> str:
    return f"{row.path} (replaces {', '.join(row.replaced)})" if row.replaced else row.path


def range_changes_table(
    rows: Sequence[RangeChangeRow], names: tuple[str, str], *, attributed: bool
) -> Table[RangeChangeRow]:
    """`names` are those of the sides; `attributed`: ops overlap, and times are attributed times."""
    time = "attributed time" if attributed else "busy time"
    base, other = (f"{name} attr." if attributed else name for name in names)
    columns: tuple[Column[RangeChangeRow], ...] = (
        Column(
            "path",
            "range",
            TEXT,
            "The range; below a fused one, the ranges that it stands for.",
            text=lambda row: ("· " if row.part else "") + row.name,
            flexible=True,
            least=14,
            code=True,
        ),
        Column(
            "time_ns.base",
            base,
            MICROSECONDS,
            f"Its {time} in a step of the base.",
            priority=1,
            always=True,
        ),
        Column(
            "time_ns.other",
            other,
            MICROSECONDS,
            f"Its {time} in a step of the other side.",
            always=True,
        ),
        Column(
            "moved_ns",
            "change",
            SIGNED_MICROSECONDS,
            "How much more the other side takes.",
            text=lambda row: "" if row.part else SIGNED_MICROSECONDS.text(row.moved_ns),
            sort=lambda row: abs(row.moved_ns),
            tone=lambda row: moved_tone(row.moved_ns),
        ),
        Column(
            "change",
            "change",
            TEXT_OF_NUMBER,
            "The same in per cent, or as a factor.",
            lambda row: changed_to(row.time_ns),
            text=lambda row: "" if row.part else change_text(row.time_ns),
            priority=2,
            always=True,
        ),
        *_OTHERS,
    )
    return Table(
        "ranges",
        columns,
        rows,
        key=lambda row: (row.path, row.part),
        search=lambda row: row.path,
        tone=lambda row: "dim" if row.part else "plain",
        depth=lambda row: row.depth,
    )


_OTHERS: tuple[Column[RangeChangeRow], ...] = (
    Column(
        "idle_ns.base",
        "idle",
        MICROSECONDS,
        "The gaps that its ops ended, in a step of the base.",
        priority=4,
        tone="dim",
    ),
    Column(
        "idle_ns.other",
        "→ idle",
        MICROSECONDS,
        "The same in a step of the other side.",
        priority=3,
        tone="dim",
    ),
    Column("gpu_ops.base", "ops", _OPS, "Its ops in a step of the base.", priority=6, tone="dim"),
    Column(
        "gpu_ops.other",
        "→ ops",
        _OPS,
        "Its ops in a step of the other side.",
        priority=5,
        tone="dim",
    ),
    Column(
        "launch_calls.base",
        "launches",
        _OPS,
        "Its launch calls in a step of the base.",
        priority=8,
        tone="dim",
    ),
    Column(
        "launch_calls.other",
        "→ launches",
        _OPS,
        "Its launch calls in a step of the other side.",
        priority=7,
        tone="dim",
    ),
)
