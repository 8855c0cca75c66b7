"""Changes from one side to the other: parts of the step, kernels and ranges."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from decodescope.analyzer.comparing.pair_changes import KernelChange, kernel_changes
from decodescope.analyzer.comparing.range_alignment import innermost_ranges, time_figure
from decodescope.analyzer.names.fitted_names import ShortNames, path_around
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.comparison_report import (
    Change,
    Pair,
    PartChange,
    RangeChange,
    StepChanges,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Row, Table
from decodescope.analyzer.vocabulary.words import change_text, part_words, relative_change_words

_NAME_CELLS = 12
_Kind = Callable[..., Column[Any]]
_TEXT_OF_NUMBER = partial(Column, str)
_WHOLE = partial(Column, lambda figure: "" if figure is None else f"{figure:,.0f}")


def _time_columns(
    names: Sequence[str],
    keys: tuple[str, str, str],
    change_of: Callable[[Row], Change],
    kinds: tuple[_Kind, _Kind] = (kinds.MICROSECONDS, kinds.SIGNED_MICROSECONDS),
    priority: int = 1,
    words: Callable[[Change], str] = relative_change_words,
) -> tuple[Column[Row], ...]:
    """A time of both sides, its change, and its relative change, which `words` writes. `keys` and
    `kinds` are those of the times and of the change, `priority` is that of the other side's
    time."""
    base_key, other_key, moved_key = keys
    kind, moved_kind = kinds
    moved = attrgetter(moved_key)
    return (
        kind(base_key, names[0], priority=priority + 1, always=True),
        kind(other_key, names[1], priority=priority, always=True),
        moved_kind(
            moved_key,
            "change",
            sort=lambda row: abs(moved(row)),
            # More time is bad, less is good; the sign says so without colour.
            tone=lambda row: "bad" if moved(row) > 0 else "good" if moved(row) < 0 else "dim",
        ),
        _TEXT_OF_NUMBER(
            "change",
            "change",
            lambda row: change_of(row).ratio,
            text=lambda row: words(change_of(row)),
            priority=priority + 2,
            always=True,
        ),
    )


def _side_columns(
    keys: tuple[str, str], title: str, kind: _Kind, priority: int
) -> tuple[Column[Row], Column[Row]]:
    """A figure of both sides; that of the base is dropped first."""
    base_key, other_key = keys
    return (
        kind(base_key, title, priority=priority + 1, tone="dim"),
        kind(other_key, f"→ {title}", priority=priority, tone="dim"),
    )


def parts_table(step: StepChanges, names: tuple[str, str]) -> Table[PartChange]:
    """The parts of two steps, and the steps (without steps, the windows) that they add up to."""
    base_ns = sum(row.base_ns or 0 for row in step.parts)
    other_ns = sum(row.other_ns or 0 for row in step.parts)
    noun = "window" if step.base_step_ns is None else "step"
    whole = PartChange(noun, "kernels", base_ns, other_ns, other_ns - base_ns)
    columns: tuple[Column[PartChange], ...] = (
        kinds.NAME(
            "part",
            "part",
            lambda row: part_words(row.part),
            least=16,
            tone=lambda row: "plain" if row.base_ops or row.other_ops else "dim",
        ),
        *_time_columns(
            [name[:_NAME_CELLS] for name in names],
            ("base_ns", "other_ns", "change_ns"),
            lambda row: Change(row.base_ns, row.other_ns),
            (kinds.WHOLE_MICROSECONDS, kinds.WHOLE_CHANGE),
        ),
        *_side_columns(("base_ops", "other_ops"), "ops", kinds.COUNT, 4),
    )
    return Table(
        "parts",
        columns,
        (*step.parts, whole) if step.parts else (),
        key=lambda row: row.part,
        search=lambda row: part_words(row.part),
        is_total=lambda row: row is whole,
    )


def kernel_changes_table(
    base: Report, other: Report, names: tuple[str, str]
) -> Table[KernelChange]:
    """The kernel whose time a step changed most is first; `names` are those of the sides."""
    rows = kernel_changes(base, other)
    short = ShortNames(row.name for row in rows)
    noun = "operator" if base.on_cpu else "kernel"
    columns: tuple[Column[KernelChange], ...] = (
        kinds.RANGE("name", noun, cut=short.of, least=16),
        *_time_columns(names, ("ns.base", "ns.other", "ns.moved"), lambda row: row.ns),
        *_side_columns(("count.base", "count.other"), "calls", kinds.NUMBER, 4),
    )
    return Table(
        f"{noun}s", columns, rows, search=lambda row: f"{row.name}\n{short_name(row.name)}"
    )


def range_changes_table(
    pair: Pair, names: tuple[str, str], most: int | None = None
) -> Table[RangeChange]:
    """The first `most` of the innermost ranges, the one that changed most first, named without the
    path that they share; `names` are those of the sides."""
    ranges = innermost_ranges(pair)
    rows = ranges[:most]
    prefix, figure = path_around(row.path for row in rows), time_figure(pair)

    def keys(figure: str) -> tuple[str, str]:
        return f"{figure}.base", f"{figure}.other"

    def name(row: RangeChange) -> str:
        replaced = ", ".join(path.rpartition("/")[2] for path in row.replaced)
        own = row.path.removeprefix(prefix)
        return f"{own} (was {replaced})" if replaced else own

    columns: tuple[Column[RangeChange], ...] = (
        kinds.RANGE("path", "range", text=name),
        *_time_columns(
            [f"{side} attr." if pair.overlapping else side for side in names],
            (*keys(figure), f"{figure}.moved"),
            lambda row: getattr(row, figure),
            priority=0,
            words=change_text,
        ),
        *_side_columns(keys("idle_ns"), "idle", kinds.MICROSECONDS, 3),
        *_side_columns(keys("gpu_ops"), "ops", _WHOLE, 5),
        *_side_columns(keys("launch_calls"), "launches", _WHOLE, 7),
    )
    return Table(
        "ranges",
        columns,
        rows,
        total=len(ranges),
        key=lambda row: row.path,
        search=lambda row: row.path,
    )


def range_notes(table: Table[RangeChange], overlapping: bool) -> str:
    """The path that the ranges share, how many changed less, and which time it is."""
    prefix = path_around(row.path for row in table.rows)
    notes = [
        f"all in {prefix[:-1]}" if prefix else "",
        f"{table.more} more changed less" if table.more else "",
        "attributed times, because ops overlap" if overlapping else "",
    ]
    return "; ".join(filter(None, notes))
