"""Aligns the ops of one graph replay with the nodes of a captured graph; never by a guess.

The launch calls of a capture are in the order of the graph's nodes, so a replay of that graph has
the same kernels in the same order. A profile may have a few calls more in front or behind, or lack
some; then only those ops have a partner that have the same one however the rest is aligned.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.attribution.alignment import align, common_start, in_common
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.trace import Int64s

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
