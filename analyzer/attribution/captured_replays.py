"""Which node of a captured graph each op of a graph replay is, with the graphs of capture profiles.

A step may replay one graph or many (the pieces of a model, one after another). Pieces of equal
kernels differ only in their place, so consecutive launches are matched with the graphs of one group
in their order. A launch that several graphs fit, with different paths, gets none.

The ops of a replay are aligned with the nodes of a graph, never by a guess. The launch calls of a
capture are in the order of the graph's nodes, so a replay of that graph has the same kernels in the
same order. A profile may have a few calls more in front or behind, or lack some; then only those
ops have a partner that have the same one however the rest is aligned.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from decodescope.analyzer.attribution.alignment import align, common_start, in_common
from decodescope.analyzer.attribution.capture_paths import MEMCPY_NODE, MEMSET_NODE
from decodescope.analyzer.attribution.range_tree import folded_name
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.graph_reference import CapturedGraph, GraphReference
from decodescope.analyzer.trace import MEMCPY, MEMSET, Int64s, Trace, rows_in

# Shares of ops: below them, a capture is that of another graph.
LEAST_MATCHED, LEAST_REPLAYED, LEAST_CONSISTENT = 0.9, 0.5, 0.9
# Nodes of unknown kernel; named nodes have numbers >= 0.
UNNAMED = -1
# The least share of a family's operators' nodes that run kernels of the family: a product may have
# a reduction beside its kernel, attention also writes its cache and rotates.
_TELLING = {"matmul": 0.5, "attention": 0.2}


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """One replay: the number and text of each op's name, in the order of the graph's nodes.
    `ordered`: this order is certain for all ops, not only that of start on several streams;
    `ordered_by_name`: for those of any one name."""

    name: Int64s
    texts: Sequence[str]
    ordered: bool
    ordered_by_name: bool


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The nodes of a captured graph: the number of each one's name (`UNNAMED`: unknown), what else
    is known of it (its operator or module), and whether the profile ended within the capture."""

    name: Int64s
    callers: Sequence[str]
    cut: bool


@dataclass(frozen=True, slots=True, eq=False)
class GraphMatch:
    """Each op's node (-1: none), whether all are certain, and the index of the captured graph."""

    partner: Int64s
    certain: bool
    graph: int = -1

    @property
    def matched(self) -> float:
        """The share of ops with a node."""
        return float((self.partner >= 0).mean())


def match_graph(replay: Replay, nodes: Nodes) -> GraphMatch | None:
    """The replay's nodes, None if it is of another graph.

    Certain: each op has a node of its name, and the nodes without an op are in front or behind; or
    the profile names no kernels, there are as many nodes as ops, and operators and kernels agree
    (`consistent`). Otherwise ops whose node is the same in alignments from both ends, if these are
    `LEAST_MATCHED` of all; of a profile that was cut, the common beginning.
    """
    if not len(replay.name) or not len(nodes.name):
        return None
    if (nodes.name == UNNAMED).any():
        return _in_order(replay, nodes)
    enough = len(replay.name) >= LEAST_MATCHED * len(nodes.name)
    if enough and len(at := _blocks(replay.name, nodes.name)) == 1:
        return GraphMatch(np.arange(len(replay.name)) + at[0], replay.ordered_by_name)
    if nodes.cut:
        return _beginning(replay.name, nodes.name)
    # Cheap, where an alignment is not.
    common = in_common(replay.name, nodes.name)
    if common < max(LEAST_MATCHED * len(replay.name), LEAST_REPLAYED * len(nodes.name)):
        return None
    partner = align(replay.name, nodes.name)
    backward = align(replay.name[::-1], nodes.name[::-1])[::-1]
    backward = np.where(backward >= 0, len(nodes.name) - 1 - backward, -1)
    partner = np.where(partner == backward, partner, -1)
    match = GraphMatch(partner, certain=False)
    used = int((partner >= 0).sum())
    is_match = match.matched >= LEAST_MATCHED and used >= LEAST_REPLAYED * len(nodes.name)
    return match if is_match else None


def consistent(replay: Replay, nodes: Nodes) -> bool:
    """Whether operators and kernels agree when the k-th op is the k-th node.

    Copies and fills are at the same places; an operator named like a kernel (Triton's) stands where
    that kernel does; operators of a telling family (products, attention) run such kernels, if the
    replay has any, for the shares in `_TELLING` of their nodes; and the ops of one kernel name come
    from one operator for at least `LEAST_CONSISTENT` of all ops.
    """
    callers, texts = np.array(nodes.callers), np.array(replay.texts)
    named_alike = np.isin(texts, callers)
    if (texts[named_alike] != callers[named_alike]).any():
        return False
    kernels = nodes.name == UNNAMED
    family_of = {text: kernel_meaning(text).family for text in {*nodes.callers, *replay.texts}}
    launched = np.array([family_of[text] for text in replay.texts])
    wanted = np.array([family_of[text] for text in nodes.callers])
    for family, least in _TELLING.items():
        of_family = kernels & (wanted == family)
        if (
            of_family.any()
            and (launched == family).any()
            and (launched[of_family] == family).mean() < least
        ):
            return False
    pairs = Counter(zip(replay.texts, nodes.callers, strict=True))
    most = {text: number for (text, _), number in reversed(pairs.most_common())}
    return sum(most.values()) >= LEAST_CONSISTENT * len(texts)


def _in_order(replay: Replay, nodes: Nodes) -> GraphMatch | None:
    if len(replay.name) != len(nodes.name) or nodes.cut or not replay.ordered:
        return None
    known = nodes.name != UNNAMED
    copies = np.isin(replay.name, nodes.name[known])
    if (copies != known).any() or (replay.name[known] != nodes.name[known]).any():
        return None
    if not consistent(replay, nodes):
        return None
    return GraphMatch(np.arange(len(replay.name)), certain=True)


def _blocks(part: Int64s, whole: Int64s) -> list[int]:
    last = len(whole) - len(part)
    return [at for at in range(last + 1) if np.array_equal(part, whole[at : at + len(part)])]


def _beginning(replay: Int64s, nodes: Int64s) -> GraphMatch | None:
    same = common_start(replay, nodes)
    if same < LEAST_MATCHED * len(nodes) or same == 0:
        return None
    place = np.arange(len(replay))
    return GraphMatch(np.where(place < same, place, -1), certain=False)


def rotations(launches: Sequence[int], order: Sequence[frozenset[int]]) -> list[int]:
    """The places in `order` at which consecutive launches can begin, if each one runs the next
    graph and the first follows the last. `order` has for each graph the launches that can be it."""
    return [
        first
        for first in range(len(order))
        if all(launch in order[(first + k) % len(order)] for k, launch in enumerate(launches))
    ]


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
