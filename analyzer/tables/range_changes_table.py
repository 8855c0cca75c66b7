"""The ranges of two sides, aligned across layers and fusion."""

from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.range_alignment import layer_sums
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.changes_table import TEXT_OF_NUMBER, changed_to, moved_tone
from decodescope.analyzer.tables.columns import (
    MICROSECONDS,
    RANGE,
    SIGNED_MICROSECONDS,
    Column,
    Kind,
    Table,
)
from decodescope.analyzer.vocabulary.words import change_text

_OPS = Kind(lambda figure: "" if figure is None else f"{figure:,.0f}")


@dataclass(frozen=True, slots=True)
class RangeChangeRow:
    """One aligned range, at its `depth`, or a `part` of the fused range above it: a range of one
    side, or of both, whose time the fused range's row contains. `time_ns` is busy time, or
    attributed time if ops overlap; `moved_ns` how much more `other` takes."""

    path: str
    name: str
    depth: int
    part: bool
    time_ns: Change
    idle_ns: Change
    gpu_ops: Change
    launch_calls: Change

    @property
    def moved_ns(self) -> float:
        """The change of its time; a side that lacks it takes none."""
        return (self.time_ns.other or 0.0) - (self.time_ns.base or 0.0)


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
            RANGE,
            "The range; below a fused one, the ranges that it stands for.",
            text=lambda row: ("· " if row.part else "") + row.name,
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


def range_change_rows(
    pair: Pair, base: Report | None, other: Report | None
) -> tuple[RangeChangeRow, ...]:
    """The ranges of `pair` in their order, each fused one followed by its parts."""
    figure = "attributed_ns" if pair.overlapping else "gpu_ns"
    sums = tuple(
        layer_sums(window.ranges, len(window.steps) or 1) if window is not None else {}
        for window in (base, other)
    )
    rows = []
    for change in pair.ranges:
        prefix, _, name = change.path.rpartition("/")
        depth = change.path.count("/")
        rows.append(range_change_row(change, figure, name, depth))
        for path in _parts(change, prefix, sums) if change.replaced else ():
            rows.append(_part(path, depth + 1, figure, sums))
    return tuple(rows)


def range_change_row(change: RangeChange, figure: str, name: str, depth: int = 0) -> RangeChangeRow:
    """The row of one aligned range; `figure` is its time: "gpu_ns" or "attributed_ns"."""
    return RangeChangeRow(
        path=change.path,
        name=name,
        depth=depth,
        part=False,
        time_ns=getattr(change, figure),
        idle_ns=change.idle_ns,
        gpu_ops=change.gpu_ops,
        launch_calls=change.launch_calls,
    )


def _parts(
    change: RangeChange, prefix: str, sums: tuple[dict[str, dict[str, float]], ...]
) -> list[str]:
    """The ranges of both sides that the fused row adds up, those of `base` first."""
    whole = set(change.path.rpartition("/")[2].split("+"))
    others = [
        path
        for path in sums[1]
        if path.rpartition("/")[0] == prefix
        and whole.issuperset(path.rpartition("/")[2].split("+"))
    ]
    return list(dict.fromkeys((*change.replaced, *others)))


def _part(
    path: str, depth: int, figure: str, sums: tuple[dict[str, dict[str, float]], ...]
) -> RangeChangeRow:
    def change(name: str) -> Change:
        before, after = (side[path][name] if path in side else None for side in sums)
        return Change(before, after)

    return RangeChangeRow(
        path=path,
        name=path.rpartition("/")[2],
        depth=depth,
        part=True,
        time_ns=change(figure),
        idle_ns=change("idle_ns"),
        gpu_ops=change("gpu_ops"),
        launch_calls=change("launch_calls"),
    )
