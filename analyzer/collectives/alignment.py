"""Which collective of one rank is which of another.

Two ranks run the same collectives in the same order, but a recorded window may begin and end with
others, and a few ops may be missing. A mutual collective ends on all ranks at nearly the same time:
no rank leaves before the last has entered, so ends differ by no more than the transfer takes. The
difference of the ends is then the difference of the clocks, nearly constant where the ops are
matched rightly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Bools, Int32s, Int64s, Intervals

# Ends of one collective may differ by this much also where the transfer is shorter.
TOLERANCE_NS = 5_000
# Ranks that share fewer of their collectives are not of one group.
MIN_SHARED = 0.5
_SEARCHED = 128
_SAMPLES = 512
# Spreads that differ by less do not tell alignments apart.
_SAME_SPREAD, _SAME_SPREAD_NS = 1.25, 100.0
_WELL_MATCHED = 0.98


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveSequence:
    """The collectives of one operation on one device, in order of start: times on its wall clock,
    and `token`, equal for ops of equal names."""

    times: Intervals
    token: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """The matched pairs, rows of the reference and of the other sequence, both ascending.
    `clock_ns` = median(end on the other - end on the reference)."""

    reference: Int64s
    other: Int64s
    clock_ns: int


def align(
    reference: CollectiveSequence, other: CollectiveSequence, common_clock: bool
) -> Alignment | None:
    """Match two sequences; None unless `MIN_SHARED` of the shorter one is matched.

    One shift of the order is tried after another: -128 to 128 from the first ops, from the last
    ones, and (with `common_clock`) from those nearest in time. The shift with the least spread of
    end differences wins; of equally good ones, the nearest in time on a common clock, else the one
    that matches most. Where ops are missing inside, each is matched with the nearest in time, after
    the clocks' difference was taken off. A pair needs equal tokens and ends that differ by no more
    than the shorter of the two ops takes, or `TOLERANCE_NS`.
    """
    if not len(reference.token) or not len(other.token):
        return None
    zero = int(min(reference.times.end_ns.min(), other.times.end_ns.min()))
    ends = reference.times.end_ns - zero
    other_ends = other.times.end_ns - zero
    shift = _best_shift(ends, reference.token, other_ends, other.token, common_clock)
    if shift is None:
        return None
    rows = np.arange(len(other_ends))
    rows = rows[(rows + shift >= 0) & (rows + shift < len(ends))]
    clock_ns = int(np.median(other_ends[rows] - ends[rows + shift]))
    pairs = rows + shift, rows
    kept = _agreeing(reference, other, *pairs, clock_ns)
    shorter = min(len(ends), len(other_ends))
    if kept.sum() < _WELL_MATCHED * shorter:
        near = _nearest(ends, other_ends - clock_ns)
        also_kept = _agreeing(reference, other, *near, clock_ns)
        if also_kept.sum() > kept.sum():
            pairs, kept = near, also_kept
    if kept.sum() < max(MIN_SHARED * shorter, 1):
        return None
    first, second = pairs[0][kept], pairs[1][kept]
    differences = other_ends[second] - ends[first]
    return Alignment(first, second, int(np.median(differences)))


def _agreeing(
    reference: CollectiveSequence,
    other: CollectiveSequence,
    first: Int64s,
    second: Int64s,
    clock_ns: int,
) -> Bools:
    """Which pairs may be the same collective."""
    here, there = reference.times.take(first), other.times.take(second)
    apart_ns = np.abs(there.end_ns - here.end_ns - clock_ns)
    most_ns = np.maximum(np.minimum(here.length_ns, there.length_ns), TOLERANCE_NS)
    same: Bools = reference.token[first] == other.token[second]
    return same & (apart_ns <= most_ns)


def _nearest(ends: Int64s, other_ends: Int64s) -> tuple[Int64s, Int64s]:
    """The pairs of ends that are each other's nearest, on one clock."""
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


def _best_shift(
    ends: Int64s, token: Int32s, other_ends: Int64s, other_token: Int32s, common_clock: bool
) -> int | None:
    """The number to add to a row of the other sequence to get the row of the reference."""
    shifts = _shifts(ends, other_ends, common_clock)
    rows = np.unique(np.linspace(0, len(other_ends) - 1, _SAMPLES).astype(np.int64))
    matched = rows + shifts[:, None]
    inside = (matched >= 0) & (matched < len(ends))
    matched = np.clip(matched, 0, len(ends) - 1)
    same = inside & (token[matched] == other_token[rows])
    counts = same.sum(axis=1)
    usable = counts >= max(MIN_SHARED * counts.max(), 1)
    if not usable.any():
        return None
    shifts, matched, same, counts = shifts[usable], matched[usable], same[usable], counts[usable]
    difference = np.where(same, (other_ends[rows] - ends[matched]).astype(np.float64), np.nan)
    middle = np.nanmedian(difference, axis=1)
    spread = np.nanmedian(np.abs(difference - middle[:, None]), axis=1)
    # A single pair has no spread, whatever it is.
    spread = np.where((counts < 3) & (counts < counts.max()), np.inf, spread)
    good = np.flatnonzero(spread <= _SAME_SPREAD * spread.min() + _SAME_SPREAD_NS)
    first_choice: NDArray[np.float64] = np.abs(middle) if common_clock else -counts.astype(float)
    second_choice = -counts.astype(float) if common_clock else np.abs(shifts).astype(float)
    best = np.lexsort((shifts[good], second_choice[good], first_choice[good]))[0]
    return int(shifts[good[best]])


def _shifts(ends: Int64s, other_ends: Int64s, common_clock: bool) -> Int64s:
    longest = max(len(ends), len(other_ends)) - 1
    near = np.arange(-min(_SEARCHED, longest), min(_SEARCHED, longest) + 1)
    centres = [0, len(ends) - len(other_ends)]
    if common_clock:
        inner = np.searchsorted(np.sort(ends), other_ends)
        centres.append(int(np.median(inner - np.arange(len(other_ends)))))
    shifts: Int64s = np.unique(np.concatenate([near + centre for centre in centres]))
    return shifts
