"""The ranges of a trace as a tree: each range once, or siblings that differ only in their numbers
(the layers of a model) as one row with the mean and the spread of their times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from decodescope.analyzer.attribution.range_tree import OWN_OPS, folded_name
from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.report import GAP_CLASSES, RangeReport, Report
from decodescope.analyzer.schema.step_report import Confidence
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import DETAIL, Column, Table, columns_of, per_step
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.vocabulary.words import ops_word

_LEAST_CERTAIN: tuple[Confidence, ...] = ("none", "partial", "exact")
# A time of this table; whether it is 1 or 100 µs, the others stay in place.
_TIME = partial(Column, duration, least=7)
_SUMS = ("gpu_ns", "gpu_ops", "launch_calls", "idle_ns", "attributed_ns")


@dataclass(frozen=True, slots=True)
class RangeLine:
    """One row of the tree. `range` holds the figures of the range; those of several ranges in one
    row are added up, and so add up with those of the rows beside it to the row above.

    `range.path` is the folded path of several. `each_ns` are the times of each of them, by which
    ranges are ranked: `gpu_ns`, or `attributed_ns` where ops overlap. `share` is their part of the
    attributed time of the main steps, None without any. `children` says whether ranges are inside,
    `above` is the path of the row around this one.
    """

    depth: int
    label: str
    range: RangeReport
    each_ns: tuple[int, ...]
    share: float | None
    children: bool
    above: str | None

    @property
    def time_ns(self) -> int:
        return sum(self.each_ns)

    @property
    def mean_ns(self) -> float:
        return self.time_ns / len(self.each_ns)

    @property
    def spread(self) -> float | None:
        """(longest - shortest) / mean of several ranges; None for one, or without time."""
        if len(self.each_ns) < 2 or not self.mean_ns:
            return None
        return (max(self.each_ns) - min(self.each_ns)) / self.mean_ns


@dataclass(slots=True)
class _Node:
    """`labels` are the names that it stands for, in order."""

    depth: int
    labels: dict[str, None] = field(default_factory=dict)
    members: list[RangeReport] = field(default_factory=list)
    children: dict[str, "_Node"] = field(default_factory=dict)


def range_lines(report: Report, *, by_layer: bool) -> tuple[RangeLine, ...]:
    """The ranges of a report, parents before children, of siblings the one with the most time
    first. `by_layer` folds siblings."""
    top = _Node(-1)
    around = [("", top)]
    for member in report.ranges:
        while not member.path.startswith(around[-1][0]):
            around.pop()
        prefix, parent = around[-1]
        label = member.path.removeprefix(prefix)
        name = folded_name(label) if by_layer else label
        node = parent.children.setdefault(name, _Node(parent.depth + 1))
        node.labels[label] = None
        node.members.append(member)
        around.append((f"{member.path}/", node))
    busy_ns = report.main_steps.attributed_ns
    return tuple(_lines(top, report.overlapping, busy_ns))


def _lines(top: _Node, attributed: bool, busy_ns: int) -> Iterator[RangeLine]:
    time_of = attrgetter("attributed_ns" if attributed else "gpu_ns")

    def times_of(node: _Node) -> tuple[int, ...]:
        return tuple(map(time_of, node.members))

    def below(node: _Node, path: str | None) -> list[tuple[str, _Node, str | None]]:
        children = sorted(
            (node.children | _own_ops(node, path)).items(),
            key=lambda child: -sum(times_of(child[1])),
        )
        return [(name, child, path) for name, child in reversed(children)]

    pending = below(top, None)
    while pending:
        name, node, above = pending.pop()
        label = name if len(node.labels) > 1 else next(iter(node.labels))
        path = label if above is None else f"{above}/{label}"
        times = times_of(node)
        share = sum(times) / busy_ns if busy_ns else None
        figures = _sum(path, node.members)
        yield RangeLine(node.depth, label, figures, times, share, bool(node.children), above)
        pending += below(node, path)


def _own_ops(node: _Node, path: str | None) -> dict[str, _Node]:
    """A row for the ops of a range that are in no range inside it, if there are such ranges and
    ops: with it, the rows below add up to that of the range. Launch calls of a graph are no ops."""
    inside = [member for child in node.children.values() for member in child.members]
    if not inside or path is None:
        return {}
    whole, inner = _sum(path, node.members), _sum(path, inside)
    rest = {figure: getattr(whole, figure) - getattr(inner, figure) for figure in _SUMS}
    if rest["gpu_ops"] <= 0:
        return {}
    # Busy times may overlap, attributed times do not.
    rest["gpu_ns"] = rest["attributed_ns"]
    left_ns = {name: ns - inner.gaps.get(name, 0) for name, ns in whole.gaps.items()}
    gaps = {name: ns for name, ns in left_ns.items() if ns}
    own = replace(whole, path=f"{path}/{OWN_OPS}", gaps=gaps, **rest)
    return {OWN_OPS: _Node(node.depth + 1, {OWN_OPS: None}, [own])}


def _sum(path: str, members: Sequence[RangeReport]) -> RangeReport:
    """The figures of several ranges together; the confidence is the least certain one, `matched`
    the mean over their ops."""
    if len(members) == 1:
        return members[0]
    gaps = {name: sum(member.gaps.get(name, 0) for member in members) for name in GAP_CLASSES}
    partial = [member for member in members if member.matched is not None]
    ops = sum(member.gpu_ops for member in partial)
    matched_ops = sum((member.matched or 0) * member.gpu_ops for member in partial)
    return replace(
        members[0],
        path=path,
        confidence=min((member.confidence for member in members), key=_LEAST_CERTAIN.index),
        gaps={name: ns for name, ns in gaps.items() if ns},
        matched=matched_ops / ops if ops else None,
        **{figure: sum(getattr(member, figure) for member in members) for figure in _SUMS},
    )


def ranges_table(
    report: Report, most: int | None = None, *, steps: int | None = None
) -> Table[RangeLine]:
    """The first `most` ranges, each below the range that contains it."""
    lines = range_lines(report, by_layer=False)
    return table_of_lines(lines[:most], report, total=len(lines), steps=steps)


def table_of_lines(
    lines: Sequence[RangeLine],
    report: Report,
    *,
    folded: bool = False,
    total: int | None = None,
    steps: int | None = None,
) -> Table[RangeLine]:
    """The lines of a tree; `folded`: a row may stand for several ranges."""
    return Table(
        "ranges",
        _columns(report, folded, steps),
        lines,
        total=total,
        key=attrgetter("range.path"),
        search=attrgetter("range.path"),
        tone=lambda line: "dim" if line.range.kind == "operator" else "plain",
        depth=attrgetter("depth"),
    )


def _columns(report: Report, folded: bool, steps: int | None) -> tuple[Column[RangeLine], ...]:
    attributed, count = report.overlapping, kinds.COUNT if steps is None else kinds.NUMBER
    times: tuple[Column[RangeLine], ...] = (
        _TIME("attributed_ns", "attributed", shown=attributed, tone="strong"),
        _TIME(
            "gpu_ns",
            "time" if report.on_cpu else "GPU time",
            priority=DETAIL if attributed else 0,
            tone="plain" if attributed else "strong",
        ),
    )
    others: tuple[Column[RangeLine], ...] = (
        _TIME("idle_ns", "idle", priority=2),
        count("launch_calls", "launches", priority=5),
        count("gpu_ops", ops_word(report), priority=6),
    )
    return columns_of(
        "range",
        kinds.RANGE("path", "range", text=_label, fit=_label, sort=attrgetter("label"), least=24),
        *per_step(steps, *columns_of("range", *times)),
        _SHARE,
        *per_step(steps, *columns_of("range", *others)),
        *(_folded(steps) if folded else ()),
        *_CONFIDENCE,
    )


def _label(line: RangeLine, cells: int | None = None) -> str:
    """The label, cut where `cells` are few, and how many ranges it stands for."""
    several = f" \u00d7{len(line.each_ns)}" if len(line.each_ns) > 1 else ""
    label = line.label if cells is None else cut_middle(line.label, max(cells - len(several), 1))
    return label + several


def confidence_words(line: RangeLine) -> str:
    """How the range is known, and for how many of its ops."""
    figures = line.range
    if figures.kind == "inferred":
        return "inferred"
    return figures.confidence + ("" if figures.matched is None else f" {figures.matched:.0%}")


_SHARE: Column[RangeLine] = kinds.PERCENT("share", "share", "share", priority=1)


def _folded(steps: int | None) -> tuple[Column[RangeLine], ...]:
    return (
        _TIME(
            "mean_ns",
            "each",
            lambda line: line.mean_ns / (steps or 1) if len(line.each_ns) > 1 else None,
            priority=1,
            tone="dim",
        ),
        kinds.PERCENT("spread", "spread", "spread", priority=7, tone="dim"),
    )


_CONFIDENCE: tuple[Column[RangeLine], ...] = (
    kinds.TEXT(
        "confidence",
        "confidence",
        text=confidence_words,
        sort=lambda line: _LEAST_CERTAIN.index(line.range.confidence),
        priority=3,
        tone=lambda line: "dim" if line.range.confidence == "exact" else "warn",
    ),
    kinds.TEXT(
        "most_idle_class",
        "most idle",
        lambda line: max(line.range.gaps, key=line.range.gaps.__getitem__, default=None),
        priority=DETAIL + 1,
    ),
    kinds.TEXT("kind", "kind", csv_only=True),
    kinds.PERCENT("matched", "matched", csv_only=True),
)
