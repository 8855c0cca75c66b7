"""Matches the ranges of two reports, across layers and across fusion.

Numbers in names are ignored: `layer.3` and `layer.12` are both `layer.*`. Two ranges match if their
paths are then equal. A name that joins others with "+" is a fused range: its kernels do the work of
all its parts, so it is compared with the sibling ranges of these names. A part that fusion left
under its own name joins the same comparison, because the share of its work that moved is unknown:
`mlp` and `input_norm` of an eager step are compared with `mlp`, `mlp+input_norm` and `input_norm`
(of the first layer) of a compiled one, as one row. A fused range has no partner if the other side
lacks one of its parts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange
from decodescope.analyzer.schema.report import RangeReport

FIGURES = ("gpu_ns", "idle_ns", "gpu_ops", "launch_calls", "attributed_ns")
_NUMBER = re.compile(r"(?<=[._])\d+(?=$|[/+])")


@dataclass(slots=True)
class _RangeNode:
    """One range with its children, summed over layers; times and counts are per step."""

    path: str
    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FIGURES, 0.0))
    children: "dict[str, _RangeNode]" = field(default_factory=dict)


_Siblings = dict[str, _RangeNode]


def align_ranges(
    base: Sequence[RangeReport], other: Sequence[RangeReport], base_steps: int, other_steps: int
) -> tuple[RangeChange, ...]:
    """One row for each range of both sides, and for the outermost ones that only one side has, per
    step: parents before their children, of siblings the one with most attributed time first. At
    each level, the rows add up to the ranges on both sides."""
    rows: list[RangeChange] = []
    pending = _matched_level("", _tree(base, base_steps), _tree(other, other_steps))[::-1]
    while pending:
        row, base_nodes, other_nodes = pending.pop()
        rows.append(row)
        for name, node in reversed(base_nodes.items()):
            if name in other_nodes:
                below = _matched_level(f"{node.path}/", node.children, other_nodes[name].children)
                pending += reversed(below)
    return tuple(rows)


def _matched_level(
    prefix: str, base: _Siblings, other: _Siblings
) -> list[tuple[RangeChange, _Siblings, _Siblings]]:
    """The rows of one level with the ranges of both sides that each stands for, the largest first:
    the children of one range on both sides. One side of a row may be empty."""
    groups = _fusion_groups(base, other)
    groups += [{name} for name in {*base, *other}.difference(*groups)]
    matches = []
    for group in groups:
        sides = [
            {name: side[name] for name in sorted(group) if name in side} for side in (base, other)
        ]
        fused = all(sides) and sides[0].keys() != sides[1].keys()
        row = RangeChange(
            path=prefix + _joined_name(group),
            replaced=tuple(node.path for node in sides[0].values()) if fused else (),
            **{name: Change(*(_sum(side, name) for side in sides)) for name in FIGURES},
        )
        matches.append((row, sides[0], sides[1]))
    return sorted(matches, key=lambda match: (-_largest_ns(match[0]), match[0].path))


def _sum(nodes: _Siblings, figure: str) -> float | None:
    return sum(node.figures[figure] for node in nodes.values()) if nodes else None


def _largest_ns(row: RangeChange) -> float:
    return max(row.attributed_ns.base or 0.0, row.attributed_ns.other or 0.0)


def _fusion_groups(base: Iterable[str], other: Iterable[str]) -> list[set[str]]:
    """The sets of sibling names that must be compared as one row."""
    base_names, other_names = _alignable(set(base), set(other))
    names = base_names | other_names
    groups: list[set[str]] = []
    for fused in sorted(name for name in base_names ^ other_names if len(_parts(name)) > 1):
        if any(fused in group for group in groups):
            continue
        group, parts = {fused}, set(_parts(fused))
        while more := {name for name in names - group if parts.intersection(_parts(name))}:
            group |= more
            parts.update(part for name in more for part in _parts(name))
        groups.append(group)
    return groups


def _alignable(base: set[str], other: set[str]) -> tuple[set[str], set[str]]:
    """Both sides' names without the fused ones that lack a part on the opposite side."""
    while True:
        base_parts, other_parts = _all_parts(base), _all_parts(other)
        poor = {
            name
            for names, known in ((base, other_parts), (other, base_parts))
            for name in names
            if len(_parts(name)) > 1 and not known.issuperset(_parts(name))
        }
        if not poor:
            return base, other
        base, other = base - poor, other - poor


def _all_parts(names: Iterable[str]) -> set[str]:
    return {part for name in names for part in _parts(name)}


def _parts(name: str) -> list[str]:
    parts = name.split("+")
    return parts if all(parts) else [name]


def _joined_name(group: set[str]) -> str:
    """The only name of a group, or the parts of all its names, those of the longest name first."""
    if len(group) == 1:
        return next(iter(group))
    ordered = sorted(group, key=lambda name: (-len(_parts(name)), name))
    return "+".join(dict.fromkeys(part for name in ordered for part in _parts(name)))


def _tree(reports: Sequence[RangeReport], steps: int) -> _Siblings:
    """The outermost ranges by name, each with its children.

    A parent is the longest known path that ends before a "/", because a range's own name may
    contain a "/" too.
    """
    roots: _Siblings = {}
    nodes: dict[str, _RangeNode] = {}
    for report in sorted(reports, key=lambda report: len(report.path)):
        parent = _parent(report.path, nodes)
        siblings = nodes[parent].children if parent else roots
        own = report.path[len(parent) + 1 :] if parent else report.path
        name = _NUMBER.sub("*", own)
        prefix = f"{nodes[parent].path}/" if parent else ""
        node = nodes[report.path] = siblings.setdefault(name, _RangeNode(prefix + name))
        for figure in FIGURES:
            node.figures[figure] += getattr(report, figure) / steps
    return roots


def _parent(path: str, nodes: dict[str, _RangeNode]) -> str:
    """The longest path of `nodes` above `path`, "" for none."""
    while "/" in path:
        path = path.rpartition("/")[0]
        if path in nodes:
            return path
    return ""


def time_figure(pair: Pair) -> str:
    """The figure of `RangeChange` that compares times: attributed time if ops overlap."""
    return "attributed_ns" if pair.overlapping else "gpu_ns"


def innermost_ranges(pair: Pair) -> list[RangeChange]:
    """The ranges without ranges inside, by how much time and idle time changed."""
    figure = time_figure(pair)
    outer = {prefix for row in pair.ranges for prefix in _prefixes(row.path)}
    innermost = [row for row in pair.ranges if f"{row.path}/" not in outer]
    return sorted(
        innermost, key=lambda row: -abs(getattr(row, figure).moved) - abs(row.idle_ns.moved)
    )


def _prefixes(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{path}/"
