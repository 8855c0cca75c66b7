"""Which node of a captured graph each op of a graph replay is, with the graphs of capture profiles.

A step may replay one graph or many (the pieces of a model, one after another). Pieces of equal
kernels differ only in their place, so consecutive launches are matched with the graphs of one group
in their order. A launch that several graphs fit, with different paths, gets none.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

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
from decodescope.analyzer.trace import MEMCPY, MEMSET, Int64s, Trace, grouped

_MEMORY_NODES = {"copy": MEMCPY_NODE, "fill": MEMSET_NODE}
_TYPE = re.compile(r"\[\d+\]$")


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One graph launch: its ops in the order of the graph's nodes, the process, thread and step
    that launched it, and the batch size of that step, if known."""

    ops: Int64s
    turn: tuple[int, int, int]
    batch: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The node of each launch's ops: indices of `GraphReference.ops`, -1 for none, and whether they
    are certain. `graph` is the index of the captured graph."""

    graph: int
    partner: Int64s
    certain: bool

    @property
    def rank(self) -> tuple[bool, int]:
        """What makes one offer better than another: it is certain, and has more nodes."""
        return self.certain, int((self.partner >= 0).sum())


@dataclass(slots=True, eq=False)
class CapturedReplays:
    """Matches launches with the graphs of a reference; what was found for equal launches is kept.

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

    def find(self, launches: Sequence[Launch]) -> list[Found | None]:
        """What each launch ran; the launches are in the order of their calls."""
        name = self._names()
        kinds = [self._kind(name, launch) for launch in launches]
        matches: list[Found | None] = [None] * len(launches)
        turns: dict[tuple[tuple[int, int, int], int | None], list[int]] = defaultdict(list)
        for index, launch in enumerate(launches):
            turns[launch.turn, launch.batch].append(index)
        known: dict[tuple[object, ...], list[Found | None]] = {}
        for (_, batch), turn in turns.items():
            key = (batch, *(kinds[one] for one in turn))
            if key not in known:
                known[key] = self._of_turn([kinds[one] for one in turn], batch)
            for index, one in zip(turn, known[key], strict=True):
                matches[index] = one
        return matches

    def _of_turn(self, kinds: Sequence[int], batch: int | None) -> list[Found | None]:
        """What consecutive launches of one step ran: of each, what fits most of its ops; None if
        groups that fit as many have different paths."""
        fitting = [group for group in self._groups() if fits(group[0][1], batch)]
        if any(group[0][1].batch == batch for group in fitting if batch is not None):
            fitting = [group for group in fitting if group[0][1].batch in (None, batch)]
        choices = [self._in_turn(kinds, group) for group in fitting]
        result: list[Found | None] = []
        for index in range(len(kinds)):
            offers = [one for choice in choices if (one := choice[index]) is not None]
            best = max((one.rank for one in offers), default=(False, 0))
            leading = [one for one in offers if one.rank == best]
            result.append(leading[0] if leading and self._agree(leading) else None)
        return result

    def _in_turn(
        self, kinds: Sequence[int], group: Sequence[tuple[int, CapturedGraph]]
    ) -> list[Found | None]:
        """What each launch ran if it is one of the group's graphs."""
        matches = [[self._match(kind, graph) for _, graph in group] for kind in kinds]
        mine = [k for k, row in enumerate(matches) if any(row)]
        order = [
            frozenset(k for k in mine if (one := matches[k][place]) and one.certain)
            for place in range(len(group))
        ]
        first = rotations(mine, order) if mine else []
        matches_of_turn: list[Found | None] = [None] * len(kinds)
        for turn, k in enumerate(mine):
            places = [place for place, one in enumerate(matches[k]) if one]
            if len(first) == 1:
                places = [(first[0] + turn) % len(group)]
            offers = [self._found(group[place], matches[k][place]) for place in places]
            sure = [one for one in offers if one is not None and one.certain]
            either = sure or [one for one in offers if one is not None]
            matches_of_turn[k] = either[0] if self._agree(either) else None
        return matches_of_turn

    def _agree(self, offers: Sequence[Found]) -> bool:
        """Whether all offers give the ops the same paths."""
        return all(self._paths(offer) == self._paths(offers[0]) for offer in offers[1:])

    def _paths(self, found: Found) -> list[str]:
        ops = self.reference.ops
        return [ops[node].path if node >= 0 else "" for node in found.partner.tolist()]

    def _found(self, graph: tuple[int, CapturedGraph], match: GraphMatch | None) -> Found | None:
        if match is None:
            return None
        moved = np.where(match.partner >= 0, match.partner + graph[1].first, -1)
        return Found(graph[0], moved, match.certain)

    def _match(self, kind: int, graph: CapturedGraph) -> GraphMatch | None:
        key = (kind, graph.first)
        if key not in self._matches:
            self._matches[key] = match_graph(self._replays[kind], self._nodes_of(graph))
        found = self._matches[key]
        if found is not None:
            self.best[graph.group] = max(self.best[graph.group], found.matched)
        return found

    def _groups(self) -> list[list[tuple[int, CapturedGraph]]]:
        groups: dict[int, list[tuple[int, CapturedGraph]]] = defaultdict(list)
        for index, graph in enumerate(self.reference.graphs):
            groups[graph.group].append((index, graph))
        return list(groups.values())

    def _names(self) -> Int64s:
        """The number of each op's name, as the reference's nodes are numbered."""
        ops = self.trace.ops
        table = [self._number(name) for name in self.trace.names]
        name = np.array(table, dtype=np.int64)[ops.name]
        name[ops.kind == MEMCPY] = self._number(MEMCPY_NODE)
        name[ops.kind == MEMSET] = self._number(MEMSET_NODE)
        return name

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(_as_node(name), len(self._numbers))

    def _kind(self, name: Int64s, launch: Launch) -> int:
        """The number of the launch's sequence of names."""
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
            texts = [self.trace.names[one] for one in ops.name[op_rows].tolist()]
            self._replays.append(Replay(names, texts, ordered, by_name))
        return self._kind_of[key]

    def _nodes_of(self, graph: CapturedGraph) -> Nodes:
        if graph.first not in self._nodes:
            ops = self.reference.ops[graph.first : graph.first + graph.ops]
            names = [self._number(op.name) if op.name else UNNAMED for op in ops]
            callers = [op.operator or _kind_of_module(op.path) for op in ops]
            self._nodes[graph.first] = Nodes(np.array(names, np.int64), callers, graph.cut)
        return self._nodes[graph.first]


def graph_launches(
    trace: Trace, replayed: Int64s, op_step: Int64s, batch_of: dict[int, int | None]
) -> list[Launch]:
    """The graph launches of a trace in the order of their calls. `replayed` are the ops of graph
    launches, `op_step` each op's step (-1: none), `batch_of` the batch size around a call."""
    ops, calls = trace.ops, trace.calls
    launches = []
    for op_rows in grouped(replayed, ops.launch):
        call = int(ops.launch[op_rows[0]])
        if (ops.graph_node_id[op_rows] >= 0).all():
            op_rows = op_rows[np.argsort(ops.graph_node_id[op_rows], kind="stable")]
        step = int(op_step[op_rows[0]])
        turn = (int(calls.pid[call]), int(calls.tid[call]), step)
        launches.append(Launch(op_rows, turn, batch_of.get(call)))
    return launches


def fits(graph: CapturedGraph, batch: int | None) -> bool:
    """Whether a step of this batch size can replay the graph.

    Engines pad a batch to the next size that they captured. Sizes that engines capture (1, 2, 4 and
    multiples of 8) are not padded; others to less than twice their size.
    """
    if graph.batch is None or batch is None or graph.batch == batch:
        return True
    usual = batch in (1, 2, 4) or batch % 8 == 0
    return not usual and batch < graph.batch < 2 * batch


def follow_nodes(trace: Trace, launches: Sequence[Launch], found: list[Found | None]) -> None:
    """Fill in launches that lost ops: a replay that is certain tells what the nodes are."""
    node_id, name = trace.ops.graph_node_id, trace.ops.name
    certain: dict[int, tuple[Launch, Found]] = {}
    for launch, match in zip(launches, found, strict=True):
        if match is not None and match.certain and (node_id[launch.ops] >= 0).all():
            certain.setdefault(int(node_id[launch.ops[0]]) >> 32, (launch, match))
    for index, launch in enumerate(launches):
        nodes, match = node_id[launch.ops], found[index]
        if (match is not None and match.certain) or not (nodes >= 0).all():
            continue
        if (int(nodes[0]) >> 32) not in certain:
            continue
        other, known = certain[int(nodes[0]) >> 32]
        at = np.searchsorted(node_id[other.ops], nodes)
        at = np.minimum(at, len(other.ops) - 1)
        same = (node_id[other.ops[at]] == nodes) & (name[other.ops[at]] == name[launch.ops])
        if same.all():
            found[index] = Found(known.graph, known.partner[at], certain=True)


def _as_node(name: str) -> str:
    """A kernel's name as nodes have it; copies and fills have one name each."""
    memory = kernel_meaning(name).memory
    return name.removesuffix(".kd") if memory is None else _MEMORY_NODES[memory]


def _kind_of_module(path: str) -> str:
    """The innermost module's type, which stands for a node without an operator."""
    return folded_name(_TYPE.sub("", path.rsplit("/", 1)[-1]))
