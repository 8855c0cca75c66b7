"""Which node of a captured graph each op of a graph replay is, with the graphs of capture profiles.

A step may replay one graph or many (the pieces of a model, one after another). Pieces of equal
kernels differ only in their place, so consecutive launches are matched with the graphs of one group
in their order. A launch that several graphs fit, with different paths, gets none.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from decodescope.analyzer.attribution.capture_paths import MEMCPY_NODE, MEMSET_NODE
from decodescope.analyzer.attribution.graph_match import (
    UNNAMED,
    GraphMatch,
    Nodes,
    Replay,
    match_graph,
    rotations,
)
from decodescope.analyzer.attribution.range_tree import folded_name
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.graph_reference import CapturedGraph, GraphReference
from decodescope.analyzer.trace import MEMCPY, MEMSET, Int64s, Trace, rows_in

_MEMORY_NODES = {"copy": MEMCPY_NODE, "fill": MEMSET_NODE}
_TYPE = re.compile(r"\[\d+\]$")


@dataclass(frozen=True, slots=True, eq=False)
class GraphLaunch:
    """One graph launch: its ops in the order of the graph's nodes, the process, thread and step
    that launched it, and the batch size of that step, if known."""

    ops: Int64s
    turn: tuple[int, int, int]
    batch: int | None


@dataclass(slots=True, eq=False)
class CapturedReplays:
    """Matches launches with the graphs of a reference; the matches of equal launches are kept.

    `best` is the largest share of a launch's ops that each group matched, whatever came of it.
    """

    trace: Trace
    reference: GraphReference
    best: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    _numbers: dict[str, int] = field(default_factory=dict)
    _nodes: dict[int, Nodes] = field(default_factory=dict)
    _replays: list[Replay] = field(default_factory=list)
    _kind_of: dict[bytes, int] = field(default_factory=dict)
    _matches: dict[tuple[int, int], GraphMatch | None] = field(default_factory=dict)

    def find(self, launches: Sequence[GraphLaunch]) -> list[GraphMatch | None]:
        """The match of each launch, whose partners index `GraphReference.ops`; the launches are in
        the order of their calls."""
        name = self._names()
        kinds = [self._kind(name, launch) for launch in launches]
        turns: dict[tuple[tuple[int, int, int], int | None], list[int]] = defaultdict(list)
        for index, launch in enumerate(launches):
            turns[launch.turn, launch.batch].append(index)
        matches: list[GraphMatch | None] = [None] * len(launches)
        known: dict[tuple[int | None, tuple[int, ...]], list[GraphMatch | None]] = {}
        for (_, batch), turn in turns.items():
            kinds_of_turn = tuple(kinds[index] for index in turn)
            if (batch, kinds_of_turn) not in known:
                known[batch, kinds_of_turn] = self._of_turn(kinds_of_turn, batch)
            for index, match in zip(turn, known[batch, kinds_of_turn], strict=True):
                matches[index] = match
        _follow_nodes(self.trace, launches, matches)
        return matches

    def _of_turn(self, kinds: Sequence[int], batch: int | None) -> list[GraphMatch | None]:
        """The matches of consecutive launches of one step: of each, the one with most ops; None if
        groups that fit as many have different paths."""
        graphs = self.reference.graphs
        groups: dict[int, list[int]] = defaultdict(list)
        for index, graph in enumerate(graphs):
            groups[graph.group].append(index)
        fitting = [group for group in groups.values() if fits(graphs[group[0]], batch)]
        if any(graphs[group[0]].batch == batch for group in fitting if batch is not None):
            fitting = [group for group in fitting if graphs[group[0]].batch in (None, batch)]
        choices = [self._in_turn(kinds, group) for group in fitting]
        result: list[GraphMatch | None] = []
        for index in range(len(kinds)):
            offers = [match for choice in choices if (match := choice[index]) is not None]
            best = max(((match.certain, match.matched) for match in offers), default=None)
            leading = [match for match in offers if (match.certain, match.matched) == best]
            result.append(leading[0] if leading and self._agree(leading) else None)
        return result

    def _in_turn(self, kinds: Sequence[int], group: Sequence[int]) -> list[GraphMatch | None]:
        """The match of each launch if it is one of the group's graphs (their indices)."""
        matches = [[self._match(kind, graph) for graph in group] for kind in kinds]
        matched = [k for k, row in enumerate(matches) if any(row)]
        order = [
            frozenset(k for k in matched if (match := matches[k][place]) and match.certain)
            for place in range(len(group))
        ]
        first = rotations(matched, order) if matched else []
        matches_of_turn: list[GraphMatch | None] = [None] * len(kinds)
        for turn, k in enumerate(matched):
            offers = [match for match in matches[k] if match]
            if len(first) == 1:
                in_order = matches[k][(first[0] + turn) % len(group)]
                offers = [] if in_order is None else [in_order]
            offers = [match for match in offers if match.certain] or offers
            matches_of_turn[k] = offers[0] if self._agree(offers) else None
        return matches_of_turn

    def _agree(self, offers: Sequence[GraphMatch]) -> bool:
        ops = self.reference.ops
        paths = [
            [ops[node].path if node >= 0 else "" for node in match.partner.tolist()]
            for match in offers
        ]
        return all(of_match == paths[0] for of_match in paths[1:])

    def _match(self, kind: int, index: int) -> GraphMatch | None:
        """The match of a kind of launch with one graph, its partners as nodes of the reference."""
        if (kind, index) not in self._matches:
            graph = self.reference.graphs[index]
            if index not in self._nodes:
                ops = self.reference.ops[graph.first : graph.first + graph.ops]
                names = [self._number(op.name) if op.name else UNNAMED for op in ops]
                # The innermost module's type stands for a node without an operator.
                modules = [_TYPE.sub("", op.path.rsplit("/", 1)[-1]) for op in ops]
                callers = [
                    op.operator or folded_name(module)
                    for op, module in zip(ops, modules, strict=True)
                ]
                self._nodes[index] = Nodes(np.array(names, np.int64), callers, graph.cut)
            match = match_graph(self._replays[kind], self._nodes[index])
            if match is not None:
                self.best[graph.group] = max(self.best[graph.group], match.matched)
                partner = np.where(match.partner >= 0, match.partner + graph.first, -1)
                match = GraphMatch(partner, match.certain, index)
            self._matches[kind, index] = match
        return self._matches[kind, index]

    def _names(self) -> Int64s:
        ops = self.trace.ops
        table = [self._number(name) for name in self.trace.names]
        name = np.array(table, dtype=np.int64)[ops.name]
        name[ops.kind == MEMCPY] = self._number(MEMCPY_NODE)
        name[ops.kind == MEMSET] = self._number(MEMSET_NODE)
        return name

    def _number(self, name: str) -> int:
        """The number of a kernel's name as nodes have it; copies and fills have one name each."""
        memory = kernel_meaning(name).memory
        as_node = name.removesuffix(".kd") if memory is None else _MEMORY_NODES[memory]
        return self._numbers.setdefault(as_node, len(self._numbers))

    def _kind(self, name: Int64s, launch: GraphLaunch) -> int:
        ops, op_rows = self.trace.ops, launch.ops
        names, device, stream = name[op_rows], ops.device[op_rows], ops.stream[op_rows]
        ordered = bool((ops.graph_node_id[op_rows] >= 0).all())
        ordered |= not (np.diff(device).any() or np.diff(stream).any())
        by_name = ordered
        if not ordered:
            pairs = np.unique(np.stack((names, device, stream)), axis=1).shape[1]
            by_name = pairs == len(np.unique(names))
        key = names.tobytes() + bytes((ordered, by_name))
        if key not in self._kind_of:
            self._kind_of[key] = len(self._replays)
            texts = [self.trace.names[number] for number in ops.name[op_rows].tolist()]
            self._replays.append(Replay(names, texts, ordered, by_name))
        return self._kind_of[key]


def fits(graph: CapturedGraph, batch: int | None) -> bool:
    """Whether a step of this batch size can replay the graph.

    Engines pad a batch to the next size that they captured. Sizes that engines capture (1, 2, 4 and
    multiples of 8) are not padded; others to less than twice their size.
    """
    if graph.batch is None or batch is None or graph.batch == batch:
        return True
    usual = batch in (1, 2, 4) or batch % 8 == 0
    return not usual and batch < graph.batch < 2 * batch


def _follow_nodes(
    trace: Trace, launches: Sequence[GraphLaunch], matches: list[GraphMatch | None]
) -> None:
    """Fill in launches that lost ops: a replay that is certain tells what the nodes are."""
    node_id, name = trace.ops.graph_node_id, trace.ops.name
    certain: dict[int, tuple[Int64s, GraphMatch]] = {}
    for launch, match in zip(launches, matches, strict=True):
        if match is not None and match.certain and (node_id[launch.ops] >= 0).all():
            certain.setdefault(int(node_id[launch.ops[0]]) >> 32, (launch.ops, match))
    for index, launch in enumerate(launches):
        nodes, match = node_id[launch.ops], matches[index]
        known = certain.get(int(nodes[0]) >> 32)
        if known is not None and (nodes >= 0).all() and not (match and match.certain):
            ops, match = known
            at = rows_in(node_id[ops], nodes)
            if (at >= 0).all() and (name[ops[at]] == name[launch.ops]).all():
                matches[index] = replace(match, partner=match.partner[at])
