"""Longest common subsequences of long, nearly equal sequences."""

import numpy as np

from decodescope.analyzer.trace import Int64s

MAX_CELLS = 20_000_000


def align(left: Int64s, right: Int64s) -> Int64s:
    """For each element of `left` the index of its partner in `right`, -1 for none.

    Partners are equal and in order, and as many as can be: a longest common subsequence, found by
    halving `left` (D. S. Hirschberg, Communications of the ACM 18(6), 1975) in O(n * m) time and
    O(n + m) memory. Where what lies between the common beginning and the common end is larger than
    n * m = `MAX_CELLS`, only those two ends are matched.
    """
    partner = np.full(len(left), -1, dtype=np.int64)
    pending = [_without_ends(partner, left, right, 0, len(left), 0, len(right))]
    first, last, other_first, other_last = pending[0]
    if (last - first) * (other_last - other_first) > MAX_CELLS:
        return partner
    while pending:
        first, last, other_first, other_last = pending.pop()
        if first == last or other_first == other_last:
            continue
        mine, other = left[first:last], right[other_first:other_last]
        if len(mine) == 1:
            equal = np.flatnonzero(other == mine[0])
            partner[first] = other_first + equal[0] if len(equal) else -1
            continue
        half = len(mine) // 2
        before = _common_lengths(mine[:half], other)
        after = _common_lengths(mine[half:][::-1], other[::-1])[::-1]
        cut = other_first + int((before + after).argmax())
        middle = first + half
        pending.append(_without_ends(partner, left, right, first, middle, other_first, cut))
        pending.append(_without_ends(partner, left, right, middle, last, cut, other_last))
    return partner


def _without_ends(
    partner: Int64s,
    left: Int64s,
    right: Int64s,
    first: int,
    last: int,
    other_first: int,
    other_last: int,
) -> tuple[int, int, int, int]:
    """Match the common beginning and end of two stretches; what is left between them."""
    head = _common_start(left[first:last], right[other_first:other_last])
    partner[first : first + head] = np.arange(other_first, other_first + head)
    first, other_first = first + head, other_first + head
    tail = _common_start(left[first:last][::-1], right[other_first:other_last][::-1])
    partner[last - tail : last] = np.arange(other_last - tail, other_last)
    return first, last - tail, other_first, other_last - tail


def _common_start(left: Int64s, right: Int64s) -> int:
    shorter = min(len(left), len(right))
    different = np.flatnonzero(left[:shorter] != right[:shorter])
    return int(different[0]) if len(different) else shorter


def _common_lengths(left: Int64s, right: Int64s) -> Int64s:
    """The length of the longest common subsequence of `left` and each beginning of `right`."""
    lengths = np.zeros(len(right) + 1, dtype=np.int64)
    for value in left:
        longer = np.maximum(lengths[1:], lengths[:-1] + (right == value))
        lengths[1:] = np.maximum.accumulate(longer)
    return lengths
