"""Aligns the ops of one step with those of another by name, stream by stream."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.attribution.alignment import align
from decodescope.analyzer.trace import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class OpSequence:
    """Ops in order of their start: a number for each name, and the stream each ran on."""

    name: Int64s
    stream: Int64s

    def __len__(self) -> int:
        return len(self.name)

    def only(self, rows: Int64s | NDArray[np.bool_]) -> "OpSequence":
        """Some of the ops, in the order of `rows`."""
        return OpSequence(self.name[rows], self.stream[rows])

    def streams(self) -> list[Int64s]:
        """The ops of each stream, the stream that began first in front."""
        numbers, first = np.unique(self.stream, return_index=True)
        return [np.flatnonzero(self.stream == numbers[k]) for k in np.argsort(first).tolist()]

    def each_name_on_one_stream(self) -> bool:
        """Whether the order of start is the order of issue for the ops of every single name."""
        pairs = np.unique(np.stack((self.name, self.stream)), axis=1)
        return int(pairs.shape[1]) == len(np.unique(self.name))


def align_step(
    step: OpSequence,
    replayed: NDArray[np.bool_],
    host_order: Int64s | None,
    reference: OpSequence,
) -> tuple[Int64s, bool]:
    """For each replayed op of a step its partner in the reference (-1: none), and whether that is
    certain.

    It is certain if every replayed op and every op of the reference has a partner; ops launched
    directly may be left over, but not one whose name the reference has. `host_order` lists the
    step's ops in the order in which the host issued them, None where it is not known: it counts
    where the two have different numbers of streams.
    """
    partner = np.full(len(step), -1, dtype=np.int64)
    own = np.flatnonzero(replayed)
    own_order = None if host_order is None else np.argsort(np.argsort(host_order)[own])
    partner[own], distinct = _align(step.only(own), own_order, reference)
    if replayed.all() or (distinct and _all_paired(partner[own], reference)):
        return partner, distinct and _all_paired(partner[own], reference)
    partner, distinct = _align(step, host_order, reference)
    left_over = step.name[~replayed & (partner < 0)]
    certain = (
        distinct
        and bool((partner[own] >= 0).all())
        and int((partner >= 0).sum()) == len(reference)
        and not np.isin(left_over, reference.name).any()
    )
    return np.where(replayed, partner, -1), certain


def _all_paired(partner: Int64s, reference: OpSequence) -> bool:
    return len(partner) == len(reference) and bool((partner >= 0).all())


def _align(
    step: OpSequence, host_order: Int64s | None, reference: OpSequence
) -> tuple[Int64s, bool]:
    """Partners, and whether no op could be taken for another one of its name.

    Stream numbers differ from run to run, so streams are paired by what ran on them. Where their
    numbers differ, ops of one name that ran on several streams tell their order only by the host's.
    """
    partner = np.full(len(step), -1, dtype=np.int64)
    mine, other = step.streams(), reference.streams()
    if len(mine) != len(other):
        order = np.arange(len(step)) if host_order is None else host_order
        partner[order] = align(step.name[order], reference.name)
        in_order = host_order is not None or step.each_name_on_one_stream()
        return partner, in_order and reference.each_name_on_one_stream()
    names = [reference.name[stream] for stream in other]
    for index, one in _pairs([step.name[stream] for stream in mine], names):
        found = align(step.name[mine[index]], names[one])
        partner[mine[index]] = np.where(found >= 0, other[one][found], -1)
    alike = any(np.array_equal(a, b) for k, a in enumerate(names) for b in names[:k])
    return partner, not alike


def _pairs(mine: list[Int64s], other: list[Int64s]) -> list[tuple[int, int]]:
    """Equal streams first, then those with most names in common, the longest first."""
    free = list(range(len(other)))
    pairs = []
    unequal = []
    for index, names in enumerate(mine):
        equal = next((one for one in free if np.array_equal(names, other[one])), None)
        if equal is None:
            unequal.append(index)
            continue
        free.remove(equal)
        pairs.append((index, equal))
    for index in sorted(unequal, key=lambda index: -len(mine[index])):
        best = max(free, key=lambda one: (_in_common(mine[index], other[one]), -one))
        free.remove(best)
        pairs.append((index, best))
    return pairs


def _in_common(left: Int64s, right: Int64s) -> int:
    names = int(max(left.max(initial=0), right.max(initial=0))) + 1
    counts = (np.bincount(side, minlength=names) for side in (left, right))
    return int(np.minimum(*counts).sum())
