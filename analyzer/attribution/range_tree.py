"""Range paths as a tree: every instance of a path, on any thread and in any step, is one node.

Siblings whose names differ only in their numbers, as the layers of a model, can be shown as one:
"step/layer.*" is the folded path of "step/layer.0", "step/layer.1", ….
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Bools, Int64s

GRAPH_REPLAY = "(graph replay)"
NO_NODE = -1
# Ten times the longest path, and 400 times all paths, of the traces of others that we have.
MAX_PATH = 2_048
MAX_PATHS = 64 << 20
_NUMBER = r"\d+(?![A-Za-z\d])"


def folded_name(name: str) -> str:
    """`name` with "*" for its numbers; digits before a letter, as in "conv2d", are no number."""
    return re.sub(_NUMBER, "*", name)


def paths_at(paths: Sequence[str], path: str) -> list[int]:
    """The indices of `path` in `paths`; of all that it stands for if it is folded; none if it is
    not there."""
    if path in paths:
        return [paths.index(path)]
    stands_for = re.compile(re.escape(path).replace(re.escape("*"), rf"(?:\*|{_NUMBER})"))
    return [index for index, one in enumerate(paths) if stands_for.fullmatch(one)]


def distinct_pairs(
    left: Int64s, right: NDArray[np.integer]
) -> tuple[list[tuple[int, int]], Int64s]:
    """The distinct rows of two columns in order (`right` is >= 0), and the number of each row."""
    count = int(right.max(initial=0)) + 1
    codes, number = np.unique(left * count + right, return_inverse=True)
    return [divmod(code, count) for code in codes.tolist()], number


@dataclass(slots=True, eq=False)
class PathTree:
    """Nodes by number; a parent's number is smaller than its children's.

    `operator` marks the nodes that are framework operators instead of ranges, `inferred` those that
    were found in the names of kernels (`structure.paths`). Ranges nested n deep
    have paths of n² names in all, so both one path and all paths together are limited
    (`MAX_PATH`, `MAX_PATHS` characters); `cut` counts the ranges and operators beyond that.
    """

    ids: dict[tuple[int, str], int] = field(default_factory=dict)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    operator: list[bool] = field(default_factory=list)
    inferred: list[bool] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    all_lengths: int = 0
    cut: int = 0

    def __len__(self) -> int:
        return len(self.parents)

    def child(
        self, parent: int, name: str, *, operator: bool = False, inferred: bool = False
    ) -> int:
        """The node of that name below `parent` (`NO_NODE`: at the top), added if it is new; beyond
        the limits `parent` itself."""
        if (known := self.ids.get((parent, name))) is not None:
            return known
        top = parent == NO_NODE
        length = len(name) if top else self.lengths[parent] + 1 + len(name)
        if length > MAX_PATH or self.all_lengths + length > MAX_PATHS:
            self.cut += 1
            return parent
        self.ids[parent, name] = len(self.parents)
        self.parents.append(parent)
        self.depths.append(0 if top else self.depths[parent] + 1)
        self.names.append(name)
        self.operator.append(operator)
        self.inferred.append(inferred)
        self.lengths.append(length)
        self.all_lengths += length
        return len(self.parents) - 1

    def chain(self, node: int) -> list[int]:
        """The nodes from the top down to `node`; empty for `NO_NODE`."""
        found = []
        while node != NO_NODE:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def within(self, tops: Sequence[int]) -> Bools:
        """For each node, whether it is one of `tops` or below one."""
        inside = np.zeros(len(self), dtype=np.bool_)
        inside[tops] = True
        for node in range(min(tops, default=len(self)), len(self)):
            parent = self.parents[node]
            inside[node] |= parent != NO_NODE and inside[parent]
        return inside

    def paths(self) -> tuple[str, ...]:
        """The full path of each node, its parts joined with "/"."""
        full: list[str] = []
        for parent, name in zip(self.parents, self.names, strict=True):
            full.append(name if parent == NO_NODE else f"{full[parent]}/{name}")
        return tuple(full)

    def add_up(self, exclusive: Int64s) -> Int64s:
        """Each node's value plus those of all nodes below it; `exclusive` is [nodes, …]."""
        total = exclusive.copy()
        parents, depths = np.array(self.parents), np.array(self.depths)
        for depth in range(int(depths.max(initial=0)), 0, -1):
            level = np.flatnonzero(depths == depth)
            np.add.at(total, parents[level], total[level])
        return total
