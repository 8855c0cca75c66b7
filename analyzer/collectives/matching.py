"""Matches the collectives of two devices.

Two ranks run the same collectives in the same order, but a recorded window may begin and end with
others, and a few ops may be missing. A mutual collective ends on all ranks at nearly the same time:
no rank leaves before the last has entered, so ends differ by no more than the transfer takes. The
difference of the ends is then the difference of the clocks, nearly constant where the ops are
matched rightly.
"""

import numpy as np

from decodescope.analyzer.collectives.participants import Collectives
from decodescope.analyzer.trace import Int64s

# Ends of one collective may differ by this much also where the transfer is shorter.
TOLERANCE_NS = 5_000
# Ranks that share fewer of the collectives in their common time are not of one group.
MIN_SHARED, MAX_REQUIRED = 0.5, 0.9
_FEW = 8
_SEARCHED = 128
_SAMPLES = 256
# Pairs agree on a difference of clocks if theirs differ by no more than this.
_CLOSE_NS = 2_000
# Layers of one length make a rhythm: many pairs agree on its steps too. These candidates are
# compared over all ops, and nearly equal ones by size.
_CANDIDATES, _CANDIDATE_SHARE, _NEARLY = 12, 0.8, 0.995


def align_collectives(
    reference: Collectives, other: Collectives, common_clock: bool
) -> tuple[Int64s, Int64s] | None:
    """Match the collectives of one operation on two devices: the rows of the reference and those of
    the other device, both ascending. None unless enough of what both recorded at the same time is
    matched: more than halfway from chance (how often ends that have nothing to do with each other
    would be as near) to all, but no more than `MAX_REQUIRED`.

    On a common clock, sequences of one length match in order if each op overlaps its partner: a
    busy CPU may let a rank leave late.

    The difference of the clocks is the one that most pairs agree on (to 2 µs), among pairs with
    equal tokens whose places in the order differ by -128 to 128, counted from the first ops, from
    the last ones, and (with `common_clock`) from those nearest in time; of nearly equally many, the
    smallest on a common clock. After it is taken off, ops whose ends are each other's nearest are
    pairs, if their tokens are equal and their ends differ by no more than the shorter op takes, or
    `TOLERANCE_NS`.
    """
    if common_clock and _overlap_in_order(reference, other):
        return np.arange(len(reference)), np.arange(len(other))
    ends, other_ends = reference.end_ns, other.end_ns
    differences = _differences(reference, other, common_clock)
    if not len(differences):
        return None
    candidates = _candidates(differences, common_clock)
    clock_ns = candidates[0]
    if len(candidates) > 1:
        agreeing = [_agreed(ends, other_ends, candidate_ns) for candidate_ns in candidates]
        most = max(agreeing)
        clock_ns = candidates[agreeing.index(most)]
        if common_clock:
            counted = zip(candidates, agreeing, strict=True)
            clock_ns = min((ns for ns, count in counted if count >= _NEARLY * most), key=abs)
    first, second = _nearest(ends, other_ends - clock_ns)
    pairs, other_pairs = reference.take(first), other.take(second)
    apart_ns = np.abs(other_pairs.end_ns - pairs.end_ns - clock_ns)
    limit_ns = np.maximum(np.minimum(pairs.length_ns, other_pairs.length_ns), TOLERANCE_NS)
    kept = (pairs.token == other_pairs.token) & (apart_ns <= limit_ns)
    if not _enough(ends, other_ends - clock_ns, pairs.length_ns[kept]):
        return None
    return first[kept], second[kept]


def _overlap_in_order(reference: Collectives, other: Collectives) -> bool:
    if not _FEW <= len(reference) == len(other):
        return False
    begun_ns = np.maximum(reference.start_ns, other.start_ns)
    overlap = begun_ns < np.minimum(reference.end_ns, other.end_ns)
    return bool((overlap & (reference.token == other.token)).all())


def _enough(ends: Int64s, other_ends: Int64s, length_ns: Int64s) -> bool:
    """Whether matched pairs of these lengths show that two sequences, on one clock, belong
    together."""
    matched = len(length_ns)
    if matched < max(min(_FEW, len(ends) // 2, len(other_ends) // 2), 1):
        return False
    since, until = max(ends.min(), other_ends.min()), min(ends.max(), other_ends.max())
    slack_ns = max(int(np.median(length_ns)), TOLERANCE_NS)
    common = min(
        np.count_nonzero((side_ends >= since - slack_ns) & (side_ends <= until + slack_ns))
        for side_ends in (ends, other_ends)
    )
    spacing_ns = (int(ends.max()) - int(ends.min())) / max(len(ends) - 1, 1)
    chance = min(2 * slack_ns / spacing_ns, 1.0) if spacing_ns else 0.0
    required = min(max((1 + chance) / 2, MIN_SHARED), MAX_REQUIRED)
    return bool(matched >= required * common)


def _nearest(ends: Int64s, other_ends: Int64s) -> tuple[Int64s, Int64s]:
    order, other_order = np.argsort(ends, kind="stable"), np.argsort(other_ends, kind="stable")
    there = _nearest_in(ends[order], other_ends[other_order])
    back = _nearest_in(other_ends[other_order], ends[order])
    mutual = np.flatnonzero(back[there] == np.arange(len(there)))
    first, second = order[there[mutual]], other_order[mutual]
    by_reference = np.argsort(first)
    return first[by_reference], second[by_reference]


def _nearest_in(sorted_ns: Int64s, at_ns: Int64s) -> Int64s:
    after = np.clip(np.searchsorted(sorted_ns, at_ns), 1, max(len(sorted_ns) - 1, 1))
    after = np.minimum(after, len(sorted_ns) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(sorted_ns[before] - at_ns) <= np.abs(sorted_ns[after] - at_ns)
    return np.where(nearer, before, after)


def _differences(reference: Collectives, other: Collectives, common_clock: bool) -> Int64s:
    """End on the other - end on the reference of every pair that is tried, sorted."""
    ends, other_ends = reference.end_ns, other.end_ns
    reach = min(_SEARCHED, max(len(ends), len(other_ends)) - 1)
    centres = [0, len(ends) - len(other_ends)]
    if common_clock:
        inner = np.searchsorted(np.sort(ends), other_ends)
        centres.append(int(np.median(inner - np.arange(len(other_ends)))))
    shifts = np.unique(np.add.outer(centres, np.arange(-reach, reach + 1)))
    rows = np.unique(np.linspace(0, len(other_ends) - 1, _SAMPLES).astype(np.int64))
    matched = rows + shifts[:, None]
    tried = (matched >= 0) & (matched < len(ends))
    matched = np.clip(matched, 0, len(ends) - 1)
    tried &= reference.token[matched] == other.token[rows]
    return np.sort((other_ends[rows] - ends[matched])[tried])


def _candidates(differences: Int64s, common_clock: bool) -> list[int]:
    """The differences that most pairs agree on, the most first; on a common clock also the least of
    those that many agree on."""
    until = np.searchsorted(differences, differences + _CLOSE_NS, side="right")
    counts = until - np.arange(len(differences))
    middle = differences[(np.arange(len(differences)) + until - 1) // 2]
    many = counts >= _CANDIDATE_SHARE * counts.max()
    places = np.flatnonzero(many)
    order = np.argsort(-counts[places], kind="stable")
    candidates: list[int] = []
    if common_clock:
        candidates.append(int(middle[places[np.abs(middle[places]).argmin()]]))
    for candidate_ns in middle[places[order]].tolist():
        if len(candidates) == _CANDIDATES:
            break
        if all(abs(candidate_ns - other_ns) > _CLOSE_NS for other_ns in candidates):
            candidates.append(candidate_ns)
    return candidates


def _agreed(ends: Int64s, other_ends: Int64s, clock_ns: int) -> int:
    first, second = _nearest(ends, other_ends - clock_ns)
    apart_ns = np.abs(other_ends[second] - ends[first] - clock_ns)
    return int(np.count_nonzero(apart_ns <= _CLOSE_NS))
