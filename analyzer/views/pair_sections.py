"""Changes from one variant (or trace) to another, by figure, role and layer, as tables of text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.schema.comparison_report import (
    Change,
    Pair,
    RangeChange,
    StepChanges,
    StepPartChange,
)
from decodescope.analyzer.tables.changes_table import changes_table, speed_table, step_parts_table
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.range_changes_table import range_change_row, range_changes_table
from decodescope.analyzer.vocabulary.words import STEP_NOTE

_RANGE_ROWS = 12
_RANGE_COLUMNS = (
    "path",
    "time_ns.base",
    "time_ns.other",
    "moved_ns",
    "change",
    "idle_ns.base",
    "idle_ns.other",
)


_LAYER_ROWS = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its title, and a note below it."""

    title: str
    table: Table[Any]
    note: str = ""


def speed_section(pairs: Sequence[Pair]) -> Section:
    """The ratio of tokens/s of each pair, and its verdict."""
    speeds = [pair.speed for pair in pairs if pair.speed is not None]
    reasons = dict.fromkeys(speed.reason for speed in speeds if speed.reason)
    return Section("Ratios of tokens/s", speed_table(pairs), note="; ".join(reasons))


def change_section(pair: Pair, step: str, ops: str, per: str) -> Section:
    """The figures of both sides; `step` and `ops` name the step time and the ops."""
    title = f"What changed {per}: {pair.base} to {pair.other}"
    return Section(title, changes_table(pair, step, ops))


def range_section(pair: Pair) -> Section:
    """The innermost ranges whose busy (if ops overlap: attributed) and idle time changed most."""
    figure = "attributed_ns" if pair.overlapping else "gpu_ns"
    outer = {prefix for row in pair.ranges for prefix in _prefixes(row.path)}
    innermost = [row for row in pair.ranges if row.path not in outer]
    moved = sorted(innermost, key=lambda row: -_moved_ns(row, figure))[:_RANGE_ROWS]
    prefix = _shared_prefix([row.path for row in moved])
    rest = len(innermost) - len(moved)
    notes = [f"all in {prefix[:-1]}"] if prefix else []
    notes += [f"{rest} more changed less"] if rest else []
    notes += ["attributed times, because ops overlap"] if pair.overlapping else []
    rows = [range_change_row(row, figure, _range_name(row, prefix)) for row in moved]
    table = range_changes_table(rows, (pair.base, pair.other), attributed=pair.overlapping)
    return Section(
        f"Ranges that changed most: {pair.base} to {pair.other}",
        table.only(*_RANGE_COLUMNS),
        note="; ".join(notes),
    )


def _prefixes(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _moved_ns(row: RangeChange, figure: str) -> float:
    return _distance(getattr(row, figure)) + _distance(row.idle_ns)


def _distance(change: Change) -> float:
    return abs((change.other or 0.0) - (change.base or 0.0))


def _shared_prefix(paths: Sequence[str]) -> str:
    """The longest path that contains all `paths`, with its "/"."""
    prefixes = [{f"{prefix}/" for prefix in _prefixes(path)} for path in paths]
    shared = set.intersection(*prefixes) if prefixes else set()
    return max(shared, key=len, default="")


def _range_name(row: RangeChange, prefix: str) -> str:
    name = row.path.removeprefix(prefix)
    if not row.replaced:
        return name
    return f"{name} (was {', '.join(path.rpartition('/')[2] for path in row.replaced)})"


def step_change_sections(pair: Pair) -> tuple[Section, ...]:
    """The roles, then the layers that changed most; both end with the step that they add up to."""
    step = pair.step
    if step is None:
        return ()
    sections = [_section(pair, step, "role", step.roles, STEP_NOTE)]
    if step.layers:
        means = any(row.kind == "more_layers" for row in step.layers)
        note = "a number of layers stands for their mean" if means else ""
        sections.append(_section(pair, step, "layer", _shortened(step.layers), note))
    return tuple(sections)


def _shortened(rows: Sequence[StepPartChange]) -> Sequence[StepPartChange]:
    """The first rows, and one that stands for all others."""
    if len(rows) <= _LAYER_ROWS + 1:
        return rows
    rest = rows[_LAYER_ROWS:]
    together = StepPartChange(
        part=f"{len(rest)} more, together",
        kind="layer",
        base_ns=sum(row.base_ns or 0 for row in rest),
        other_ns=sum(row.other_ns or 0 for row in rest),
        change_ns=sum(row.change_ns for row in rest),
        base_ops=sum(row.base_ops or 0 for row in rest),
        other_ops=sum(row.other_ops or 0 for row in rest),
    )
    return (*rows[:_LAYER_ROWS], together)


def _section(
    pair: Pair, step: StepChanges, what: str, rows: Sequence[StepPartChange], note: str
) -> Section:
    whole = StepPartChange("step", "role", step.base_ns, step.other_ns, step.change_ns)
    return Section(
        f"By {what}, per step: {pair.base} to {pair.other}",
        step_parts_table((*rows, whole), what, (pair.base, pair.other)),
        note=note,
    )
