"""The aligned ranges of a pair as rows of a list: all, those that changed most, or as a tree."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import asdict

from decodescope.analyzer.comparing.range_alignment import FIGURES, layer_sums
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.schema.report import Report

_MOST_ROWS = 12


class ListedRange(RangeChange, frozen=True, kw_only=True):
    """An aligned range as it is listed: under `name`, `depth` levels deep. A `part` belongs to the
    fused range above it, whose row contains its time; one side may lack it."""

    name: str
    depth: int = 0
    part: bool = False


def _row(change: RangeChange, name: str, depth: int = 0) -> ListedRange:
    return ListedRange(**asdict(change), name=name, depth=depth)


def time_figure(pair: Pair) -> str:
    """The figure of `RangeChange` that compares times: attributed time if ops overlap."""
    return "attributed_ns" if pair.overlapping else "gpu_ns"


def ranges_by_path(pair: Pair) -> list[ListedRange]:
    """Every range by its whole path, with the ranges that a fused one replaces."""
    return [
        _row(row, f"{row.path} (replaces {', '.join(row.replaced)})" if row.replaced else row.path)
        for row in pair.ranges
    ]


def most_changed_ranges(pair: Pair) -> tuple[list[ListedRange], str, int]:
    """The innermost ranges whose time and idle time, added up, changed most, named without the
    path that they share; that path with its "/"; and how many ranges changed less."""
    figure = time_figure(pair)
    outer = {prefix for row in pair.ranges for prefix in _prefixes(row.path)}
    innermost = [row for row in pair.ranges if f"{row.path}/" not in outer]
    innermost.sort(key=lambda row: -abs(getattr(row, figure).moved) - abs(row.idle_ns.moved))
    shown = innermost[:_MOST_ROWS]
    shared = set.intersection(*(set(_prefixes(row.path)) for row in shown)) if shown else set()
    prefix = max(shared, key=len, default="")
    rows = [_row(row, _short_name(row, prefix)) for row in shown]
    return rows, prefix, len(innermost) - len(shown)


def _prefixes(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{path}/"


def _short_name(row: RangeChange, prefix: str) -> str:
    name = row.path.removeprefix(prefix)
    replaced = ", ".join(path.rpartition("/")[2] for path in row.replaced)
    return f"{name} (was {replaced})" if replaced else name


def range_tree(pair: Pair, windows: Sequence[Report]) -> tuple[ListedRange, ...]:
    """Every range below its parent; a fused one is followed by its parts in both `windows`."""
    sums = [layer_sums(window.ranges, window.main_steps.steps or 1) for window in windows]
    rows = []
    for change in pair.ranges:
        depth = change.path.count("/")
        rows.append(_row(change, change.path.rpartition("/")[2], depth))
        for path in _fused_paths(change, sums[1]) if change.replaced else ():
            figures = {
                figure: Change(*(side[path][figure] if path in side else None for side in sums))
                for figure in FIGURES
            }
            name = path.rpartition("/")[2]
            rows.append(ListedRange(path, (), **figures, name=name, depth=depth + 1, part=True))
    return tuple(rows)


def _fused_paths(change: RangeChange, other_paths: Iterable[str]) -> list[str]:
    """The ranges of both sides that the row of a fused range adds up, those of the base first."""
    prefix, _, fused = change.path.rpartition("/")
    parts = set(fused.split("+"))
    contained = (
        path
        for path in other_paths
        if path.rpartition("/")[0] == prefix
        and parts.issuperset(path.rpartition("/")[2].split("+"))
    )
    return list(dict.fromkeys((*change.replaced, *contained)))
