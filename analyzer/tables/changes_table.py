"""Changes from one side to the other: figures of a step, its parts, kernels and ranges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from decodescope.analyzer.comparing.pair_changes import KernelChange, kernel_changes, shortened
from decodescope.analyzer.comparing.range_rows import ListedRange, ranges_by_path, time_figure
from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.comparison_report import (
    Change,
    LayerChange,
    Pair,
    PartChange,
    StepChanges,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import (
    COUNT,
    DURATION,
    MICROSECONDS,
    NAME,
    NUMBER,
    RANGE,
    SIGNED_MICROSECONDS,
    TEXT,
    WHOLE_CHANGE,
    WHOLE_MICROSECONDS,
    Column,
    Kind,
    Row,
    Table,
    Tone,
)
from decodescope.analyzer.vocabulary.words import (
    change_text,
    layer_words,
    part_words,
    relative_change_words,
)

StepRow = TypeVar("StepRow", PartChange, LayerChange)

_NAME_CELLS = 12
_TEXT_OF_NUMBER = Kind(str)
_WHOLE = Kind(lambda figure: "" if figure is None else f"{figure:,.0f}")


def _time_columns(
    names: Sequence[str],
    keys: tuple[str, str, str],
    time: str,
    change_of: Callable[[Row], Change],
    kinds: tuple[Kind, Kind] = (MICROSECONDS, SIGNED_MICROSECONDS),
    priority: int = 1,
    words: Callable[[Change], str] = relative_change_words,
    empty: Callable[[Row], bool] = lambda row: False,
) -> tuple[Column[Row], ...]:
    """A time of both sides, its change, and its relative change.

    `keys` and `kinds` are those of the times and of the change, `priority` is that of the other
    side's time, `words` writes the relative change. The change of an `empty` row is not written.
    """
    base_key, other_key, moved_key = keys
    kind, moved_kind = kinds
    moved = attrgetter(moved_key)
    return (
        Column(
            base_key,
            names[0],
            kind,
            f"Its {time} in a step of the base.",
            priority=priority + 1,
            always=True,
        ),
        Column(
            other_key,
            names[1],
            kind,
            f"Its {time} in a step of the other side.",
            priority=priority,
            always=True,
        ),
        Column(
            moved_key,
            "change",
            moved_kind,
            "How much more the other side takes.",
            text=lambda row: "" if empty(row) else moved_kind.text(moved(row)),
            sort=lambda row: abs(moved(row)),
            tone=lambda row: _moved_tone(moved(row)),
        ),
        Column(
            "change",
            "change",
            _TEXT_OF_NUMBER,
            "The same in per cent, or as a factor.",
            lambda row: change_of(row).ratio,
            text=lambda row: "" if empty(row) else words(change_of(row)),
            priority=priority + 2,
            always=True,
        ),
    )


def _moved_tone(ns: float) -> Tone:
    """More time is bad, less is good; the sign says so without colour."""
    return "bad" if ns > 0 else "good" if ns < 0 else "dim"


def _side_columns(
    keys: tuple[str, str], title: str, kind: Kind, figure: str, priority: int
) -> tuple[Column[Row], Column[Row]]:
    """A figure of both sides; that of the base is dropped first."""
    base_key, other_key = keys
    in_base, in_other = f"{figure} in a step of the base.", f"{figure} in a step of the other side."
    return (
        Column(base_key, title, kind, in_base, priority=priority + 1, tone="dim"),
        Column(other_key, f"→ {title}", kind, in_other, priority=priority, tone="dim"),
    )


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure of both sides."""

    name: str
    change: Change
    kind: Kind


def changes_table(pair: Pair, ops: str) -> Table[FigureChange]:
    """The figures that any side has; `ops` names the ops."""
    rows = [
        row
        for row in (
            FigureChange("step, unprofiled", pair.step_ns or Change(None, None), DURATION),
            FigureChange("launch calls", pair.launch_calls, NUMBER),
            FigureChange(ops, pair.gpu_ops, NUMBER),
        )
        if row.change.base is not None or row.change.other is not None
    ]
    columns: tuple[Column[FigureChange], ...] = (
        Column("name", "", TEXT, "The figure."),
        Column(
            "change.base",
            pair.base,
            _TEXT_OF_NUMBER,
            "The base.",
            text=lambda row: row.kind.text(row.change.base),
            always=True,
        ),
        Column(
            "change.other",
            pair.other,
            _TEXT_OF_NUMBER,
            "The other side.",
            text=lambda row: row.kind.text(row.change.other),
            always=True,
        ),
        Column(
            "change",
            "change",
            _TEXT_OF_NUMBER,
            "How far the other side is from the base.",
            text=lambda row: change_text(row.change),
            sort=lambda row: row.change.ratio,
            always=True,
        ),
    )
    return Table("figures", columns, rows)


def parts_table(rows: Sequence[PartChange], names: tuple[str, str]) -> Table[PartChange]:
    """The parts of two steps; `names` are those of the sides."""
    return _step_table("part", rows, names, lambda row: part_words(row.part))


def layers_table(rows: Sequence[LayerChange], names: tuple[str, str]) -> Table[LayerChange]:
    """The layers of two steps; `names` are those of the sides."""
    return _step_table("layer", rows, names, layer_words)


def _step_table(
    noun: str, rows: Sequence[StepRow], names: tuple[str, str], words: Callable[[StepRow], str]
) -> Table[StepRow]:
    columns: tuple[Column[StepRow], ...] = (
        Column(
            "part",
            noun,
            NAME,
            "What takes the time in the median step of each side.",
            words,
            least=16,
            tone=lambda row: "plain" if row.base_ops or row.other_ops else "dim",
        ),
        *_time_columns(
            [name[:_NAME_CELLS] for name in names],
            ("base_ns", "other_ns", "change_ns"),
            "time",
            lambda row: Change(row.base_ns, row.other_ns),
            (WHOLE_MICROSECONDS, WHOLE_CHANGE),
        ),
        *_side_columns(("base_ops", "other_ops"), "ops", COUNT, "Its ops", 4),
    )
    return Table(f"{noun}s", columns, rows, key=lambda row: row.part, search=words)


def whole_parts_table(step: StepChanges, names: tuple[str, str]) -> Table[PartChange]:
    """The parts of two steps, and the steps that they add up to; without steps, the windows."""
    base_ns, other_ns = (
        sum(ns or 0 for ns in side)
        for side in zip(*((row.base_ns, row.other_ns) for row in step.parts), strict=True)
    )
    noun = "window" if step.base_step_ns is None else "step"
    whole = PartChange(noun, "kernels", base_ns, other_ns, other_ns - base_ns)
    return parts_table((*step.parts, whole), names)


def whole_layers_table(
    step: StepChanges, names: tuple[str, str], most: int | None = None
) -> Table[LayerChange]:
    """The layers of two steps, and the steps that they add up to; those after the first `most` are
    one row."""
    base_ns, other_ns = step.base_step_ns, step.other_step_ns
    whole = LayerChange("step", "layer", base_ns, other_ns, (other_ns or 0) - (base_ns or 0))
    rows = step.layers if most is None else shortened(step.layers, most)
    return layers_table((*rows, whole), names)


def kernel_changes_table(
    base: Report, other: Report, names: tuple[str, str]
) -> Table[KernelChange]:
    """The kernel whose time a step changed most is first; `names` are those of the sides."""
    rows = kernel_changes(base, other)
    short = ShortNames(row.name for row in rows)
    noun = "operator" if base.on_cpu else "kernel"
    columns: tuple[Column[KernelChange], ...] = (
        Column(
            "name", noun, replace(RANGE, least=16, fit=short.of), "The kernel, by its short name."
        ),
        *_time_columns(names, ("ns.base", "ns.other", "ns.moved"), "time", lambda row: row.ns),
        *_side_columns(("count.base", "count.other"), "calls", NUMBER, "Its calls", 4),
    )
    return Table(
        f"{noun}s", columns, rows, search=lambda row: f"{row.name}\n{short_name(row.name)}"
    )


def aligned_ranges_table(pair: Pair) -> Table[ListedRange]:
    """Every aligned range by its whole path, with the ranges that a fused one replaces."""
    return range_changes_table(pair, ranges_by_path(pair), (pair.base, pair.other))


def range_changes_table(
    pair: Pair, rows: Sequence[ListedRange], names: tuple[str, str], *, counts: bool = True
) -> Table[ListedRange]:
    """Times and `counts` of `rows`, which are ranges of `pair`; `names` are those of the sides."""
    figure = time_figure(pair)

    def keys(figure: str) -> tuple[str, str]:
        return f"{figure}.base", f"{figure}.other"

    columns: tuple[Column[ListedRange], ...] = (
        Column(
            "path",
            "range",
            RANGE,
            "The range; below a fused one, the ranges that it stands for.",
            text=lambda row: ("· " if row.part else "") + row.name,
        ),
        *_time_columns(
            [f"{name} attr." if pair.overlapping else name for name in names],
            (*keys(figure), f"{figure}.moved"),
            "attributed time" if pair.overlapping else "busy time",
            lambda row: getattr(row, figure),
            priority=0,
            words=change_text,
            empty=lambda row: row.part,
        ),
        *_side_columns(keys("idle_ns"), "idle", MICROSECONDS, "The gaps that its ops ended", 3),
    )
    if counts:
        columns += (
            *_side_columns(keys("gpu_ops"), "ops", _WHOLE, "Its ops", 5),
            *_side_columns(keys("launch_calls"), "launches", _WHOLE, "Its launch calls", 7),
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
