"""Groups of ranks that run the same collectives, each matched from rank to rank.

Two ranks run the same collectives in the same order, but a recorded window may begin and end with
others, and a few ops may be missing. A mutual collective ends on all ranks at nearly the same time:
no rank leaves before the last has entered, so ends differ by no more than the transfer takes. The
difference of the ends is then the difference of the clocks, nearly constant where the ops are
matched rightly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.collectives.participants import CollectiveOperation, Participant
from decodescope.analyzer.trace import Int32s, Int64s, Intervals

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
Int64Table = NDArray[np.int64]


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


def align_collectives(
    reference: CollectiveSequence, other: CollectiveSequence, common_clock: bool
) -> Alignment | None:
    """Match two sequences; None unless enough of what both recorded at the same time is matched:
    more than halfway from chance (how often ends that have nothing to do with each other would be
    as near) to all, but no more than `MAX_REQUIRED`.

    The difference of the clocks is the one that most pairs agree on (to 2 µs), among pairs with
    equal tokens whose places in the order differ by -128 to 128, counted from the first ops, from
    the last ones, and (with `common_clock`) from those nearest in time; of nearly equally many, the
    smallest on a common clock. After it is taken off, ops whose ends are each other's nearest are
    pairs, if their tokens are equal and their ends differ by no more than the shorter op takes, or
    `TOLERANCE_NS`.
    """
    if not len(reference.token) or not len(other.token):
        return None
    zero = int(min(reference.times.end_ns.min(), other.times.end_ns.min()))
    ends = reference.times.end_ns - zero
    other_ends = other.times.end_ns - zero
    differences = _differences(ends, reference.token, other_ends, other.token, common_clock)
    if not len(differences):
        return None
    candidates = _candidates(differences, common_clock)
    clock_ns = candidates[0]
    if len(candidates) > 1:
        agreeing = [_agreed(ends, other_ends, candidate_ns) for candidate_ns in candidates]
        nearly_most = [
            candidate_ns
            for candidate_ns, count in zip(candidates, agreeing, strict=True)
            if count >= _NEARLY * max(agreeing)
        ]
        first_of_most = candidates[agreeing.index(max(agreeing))]
        clock_ns = min(nearly_most, key=abs) if common_clock else first_of_most
    first, second = _nearest(ends, other_ends - clock_ns)
    length_ns = reference.times.length_ns[first]
    most_ns = np.minimum(length_ns, other.times.length_ns[second])
    kept = np.abs(other_ends[second] - ends[first] - clock_ns) <= np.maximum(most_ns, TOLERANCE_NS)
    kept &= reference.token[first] == other.token[second]
    first, second = first[kept], second[kept]
    if not _enough(ends, other_ends - clock_ns, length_ns[kept]):
        return None
    return Alignment(first, second, int(np.median(other_ends[second] - ends[first])))


def _enough(ends: Int64s, other_ends: Int64s, length_ns: Int64s) -> bool:
    """Whether pairs of these lengths show that two sequences, on one clock, belong together."""
    matched = len(length_ns)
    since, until = max(ends.min(), other_ends.min()), min(ends.max(), other_ends.max())
    slack_ns = 0 if not matched else max(int(np.median(length_ns)), TOLERANCE_NS)
    common = [
        int(np.count_nonzero((side_ends >= since - slack_ns) & (side_ends <= until + slack_ns)))
        for side_ends in (ends, other_ends)
    ]
    if matched < max(min(_FEW, len(ends) // 2, len(other_ends) // 2), 1):
        return False
    spacing_ns = (int(ends.max()) - int(ends.min())) / max(len(ends) - 1, 1)
    chance = min(2 * slack_ns / spacing_ns, 1.0) if spacing_ns else 0.0
    required = min(max((1 + chance) / 2, MIN_SHARED), MAX_REQUIRED)
    return matched >= required * min(common)


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


def _differences(
    ends: Int64s, token: Int32s, other_ends: Int64s, other_token: Int32s, common_clock: bool
) -> Int64s:
    """End on the other - end on the reference of every pair that is tried, sorted."""
    shifts = _shifts(ends, other_ends, common_clock)
    rows = np.unique(np.linspace(0, len(other_ends) - 1, _SAMPLES).astype(np.int64))
    matched = rows + shifts[:, None]
    tried = (matched >= 0) & (matched < len(ends))
    matched = np.clip(matched, 0, len(ends) - 1)
    tried &= token[matched] == other_token[rows]
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
    for middle_ns in middle[places[order]].tolist():
        if all(abs(middle_ns - candidate_ns) > _CLOSE_NS for candidate_ns in candidates):
            candidates.append(middle_ns)
            if len(candidates) >= _CANDIDATES:
                break
    return candidates


def _agreed(ends: Int64s, other_ends: Int64s, clock_ns: int) -> int:
    """How many ends are each other's nearest and differ by `clock_ns`, to `_CLOSE_NS`."""
    first, second = _nearest(ends, other_ends - clock_ns)
    apart_ns = np.abs(other_ends[second] - ends[first] - clock_ns)
    return int(np.count_nonzero(apart_ns <= _CLOSE_NS))


def _shifts(ends: Int64s, other_ends: Int64s, common_clock: bool) -> Int64s:
    longest = max(len(ends), len(other_ends)) - 1
    near = np.arange(-min(_SEARCHED, longest), min(_SEARCHED, longest) + 1)
    centres = [0, len(ends) - len(other_ends)]
    if common_clock:
        inner = np.searchsorted(np.sort(ends), other_ends)
        centres.append(int(np.median(inner - np.arange(len(other_ends)))))
    shifts: Int64s = np.unique(np.concatenate([near + centre for centre in centres]))
    return shifts


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Devices that run one operation together, and their matched collectives.

    `members` index the participants, in order. `op[m, k]` is the communicating op of member m that
    is collective k (an index into `Participant.row`); start and end are on the clocks of the ranks,
    int64 [members, collectives]. Only collectives that every member recorded are listed, in order
    of the end. `clock_ns[m]` = median end on m - the median of that over the members, as far as
    ends say: the difference of the clocks. `clocks_agree`: no |clock_ns| is larger than the
    transfer of half of the collectives takes.
    """

    operation: CollectiveOperation
    members: tuple[int, ...]
    op: Int64Table
    start_ns: Int64Table
    end_ns: Int64Table
    clock_ns: Int64s
    clocks_agree: bool


def find_groups(
    participants: Sequence[Participant],
    operations: Sequence[CollectiveOperation],
    common_clock: bool,
) -> list[Group]:
    """The groups of every mutual operation, in order of operation and first member.

    The reference of a group is the device with the most of these collectives (of several, the
    first); those that share enough of them are its members (see `align`). The rest may be groups
    of their own. A device without a partner is in none.
    """
    groups = []
    for place, operation in enumerate(operations):
        if not operation.mutual:
            continue
        left = {
            number: np.flatnonzero(participant.operation == place)
            for number, participant in enumerate(participants)
            if place in participant.operation
        }
        while len(left) > 1:
            sequences = {
                number: CollectiveSequence(
                    participants[number].times(chosen), participants[number].token[chosen]
                )
                for number, chosen in left.items()
            }
            reference = max(left, key=lambda number: (len(left[number]), -number))
            alignments: dict[int, Alignment | None] = {reference: None}
            for number in left.keys() - {reference}:
                aligned = align_collectives(sequences[reference], sequences[number], common_clock)
                if aligned is not None:
                    alignments[number] = aligned
            if len(alignments) > 1:
                groups.append(_group(participants, operation, left, reference, alignments))
            for number in alignments:
                del left[number]
    return sorted(groups, key=lambda group: (group.operation, group.members))


def _group(
    participants: Sequence[Participant],
    operation: CollectiveOperation,
    chosen: dict[int, Int64s],
    reference: int,
    alignments: dict[int, Alignment | None],
) -> Group:
    members = tuple(sorted(alignments))
    slots = np.full((len(members), len(chosen[reference])), -1, dtype=np.int64)
    for place, number in enumerate(members):
        matched = alignments[number]
        if matched is None:
            slots[place] = chosen[number]
        else:
            slots[place, matched.reference] = chosen[number][matched.other]
    op = slots[:, (slots >= 0).all(axis=0)]
    times = [participants[number].times(row) for number, row in zip(members, op, strict=True)]
    start_ns = np.array([member_times.start_ns for member_times in times]).reshape(op.shape)
    end_ns = np.array([member_times.end_ns for member_times in times]).reshape(op.shape)
    # How far each member's clock is ahead of the median member's, from the ends.
    clock_ns, limit_ns = np.zeros(len(members), dtype=np.int64), 0
    if op.shape[1]:
        ahead = np.median(end_ns - end_ns[0], axis=1)
        clock_ns = np.rint(ahead - np.median(ahead)).astype(np.int64)
        limit_ns = int(np.median((end_ns - start_ns).min(axis=0)))
    return Group(
        operation=operation,
        members=members,
        op=op,
        start_ns=start_ns,
        end_ns=end_ns,
        clock_ns=clock_ns,
        clocks_agree=bool((np.abs(clock_ns) <= max(limit_ns, TOLERANCE_NS)).all()),
    )
