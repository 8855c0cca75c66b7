"""The aligned ranges of two windows as rows, fused ranges beside the parts they stand for."""

from dataclasses import dataclass

from decodescope.analyzer.comparing.range_alignment import layer_sums
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.schema.report import Report


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
