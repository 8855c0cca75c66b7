"""Aligns the ops of one step with those of another by name: longest common subsequences."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.trace import Bools, Columns, Int64s

MAX_CELLS = 20_000_000


@dataclass(frozen=True, slots=True, eq=False)
class OpSequence(Columns):
    """Ops in order of their start: the number of each one's name, and its stream."""

    name: Int64s
    stream: Int64s

    def streams(self) -> list[Int64s]:
        """The ops of each stream; the stream that began first comes first."""
        numbers, first = np.unique(self.stream, return_index=True)
        return [np.flatnonzero(self.stream == numbers[k]) for k in np.argsort(first).tolist()]

    def each_name_on_one_stream(self) -> bool:
        """Whether the order of start is the order of issue for the ops of every single name."""
        pairs = np.unique(np.stack((self.name, self.stream)), axis=1)
        return int(pairs.shape[1]) == len(np.unique(self.name))


def align_step(
    step: OpSequence, replayed: Bools, host_order: Int64s | None, reference: OpSequence
) -> tuple[Int64s, bool]:
    """For each replayed op of a step its partner in the reference (-1: none), and whether the
    partners are certain.

    They are certain if every replayed op and every op of the reference has a partner. Ops launched
    directly may have none, unless the reference has an op of that name. `host_order` lists the
    step's ops in the order in which the host issued them, None if unknown; it is used if the step
    and the reference have different numbers of streams.
    """
    partner = np.full(len(step), -1, dtype=np.int64)
    own = np.flatnonzero(replayed)
    own_order = None if host_order is None else np.argsort(np.argsort(host_order)[own])
    partner[own], distinct = _align(step.take(own), own_order, reference)
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
    """Partners, and whether no op can be mistaken for another one of its name.

    Stream numbers differ from run to run, so streams are paired by what ran on them. If there are
    different numbers of streams, only the host's order distinguishes the ops of one name that ran
    on several streams.
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
    """Equal streams first, then those with the most names in common, the longest first."""
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
        best = max(free, key=lambda one: (in_common(mine[index], other[one]), -one))
        free.remove(best)
        pairs.append((index, best))
    return pairs


def in_common(left: Int64s, right: Int64s) -> int:
    """How many elements have a partner of their own in the other sequence, in whatever order."""
    names = int(max(left.max(initial=0), right.max(initial=0))) + 1
    counts = (np.bincount(side, minlength=names) for side in (left, right))
    return int(np.minimum(*counts).sum())


def align(left: Int64s, right: Int64s) -> Int64s:
    """For each element of `left` the index of its partner in `right`, -1 for none.

    Partners are equal and in order, and there are as many as possible: a longest common
    subsequence, found by halving `left` (D. S. Hirschberg, Communications of the ACM 18(6), 1975)
    in O(n * m) time and O(n + m) memory. Only the common beginning and end are matched if the parts
    between them are larger than n * m = `MAX_CELLS`.
    """
    partner = np.full(len(left), -1, dtype=np.int64)
    pending = [_without_ends(partner, left, right, 0)]
    if len(pending[0][1]) * len(pending[0][2]) > MAX_CELLS:
        return partner
    while pending:
        found, mine, other, offset = pending.pop()
        if not len(mine) or not len(other):
            continue
        if len(mine) == 1:
            equal = np.flatnonzero(other == mine[0])
            found[0] = offset + equal[0] if len(equal) else -1
            continue
        half = len(mine) // 2
        before = common_lengths(mine[:half], other)
        after = common_lengths(mine[half:][::-1], other[::-1])[::-1]
        cut = int((before + after).argmax())
        pending.append(_without_ends(found[:half], mine[:half], other[:cut], offset))
        pending.append(_without_ends(found[half:], mine[half:], other[cut:], offset + cut))
    return partner


def _without_ends(
    partner: Int64s, left: Int64s, right: Int64s, offset: int
) -> tuple[Int64s, Int64s, Int64s, int]:
    """Match the common beginning and end of two stretches; returns what is between them.

    `partner` is a view of the result for the elements of `left`, `offset` the index of `right[0]`.
    """
    head = common_start(left, right)
    tail = common_start(left[head:][::-1], right[head:][::-1])
    end, other_end = len(left) - tail, len(right) - tail
    partner[:head] = np.arange(offset, offset + head)
    partner[end:] = np.arange(offset + other_end, offset + len(right))
    return partner[head:end], left[head:end], right[head:other_end], offset + head


def common_start(left: Int64s, right: Int64s) -> int:
    """How many elements both begin with."""
    shorter = min(len(left), len(right))
    different = np.flatnonzero(left[:shorter] != right[:shorter])
    return int(different[0]) if len(different) else shorter


def common_lengths(left: Int64s, right: Int64s) -> Int64s:
    """The length of the longest common subsequence of `left` and each prefix of `right`."""
    lengths = np.zeros(len(right) + 1, dtype=np.int64)
    for value in left:
        longer = np.maximum(lengths[1:], lengths[:-1] + (right == value))
        lengths[1:] = np.maximum.accumulate(longer)
    return lengths
