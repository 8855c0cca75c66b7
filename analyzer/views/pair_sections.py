"""What changed from one variant (or trace) to another, as tables of text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.tables.changes_table import changes_table
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.range_change_rows import range_change_row
from decodescope.analyzer.tables.range_changes_table import range_changes_table
from decodescope.analyzer.tables.speed_table import speed_table

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
