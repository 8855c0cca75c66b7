"""Groups of ranks that run the same collectives, and which collective of each is the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.collectives.alignment import (
    TOLERANCE_NS,
    Alignment,
    CollectiveSequence,
    align,
)
from decodescope.analyzer.collectives.operations import Operation
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.trace import Int64s

Int64Table = NDArray[np.int64]


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

    operation: Operation
    members: tuple[int, ...]
    op: Int64Table
    start_ns: Int64Table
    end_ns: Int64Table
    clock_ns: Int64s
    clocks_agree: bool


def find_groups(
    participants: Sequence[Participant], operations: Sequence[Operation], common_clock: bool
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
            number: np.flatnonzero(one.operation == place)
            for number, one in enumerate(participants)
        }
        left = {number: chosen for number, chosen in left.items() if len(chosen)}
        while len(left) > 1:
            reference = max(left, key=lambda number: (len(left[number]), -number))
            found = _aligned(participants, left, reference, common_clock)
            if len(found) > 1:
                groups.append(_group(participants, operation, left, reference, found))
            for number in found:
                del left[number]
    return sorted(groups, key=lambda group: (group.operation, group.members))


def _aligned(
    participants: Sequence[Participant],
    chosen: dict[int, Int64s],
    reference: int,
    common_clock: bool,
) -> dict[int, Alignment | None]:
    """The members of the group of `reference`, itself among them, aligned with it."""
    own = _sequence(participants[reference], chosen[reference])
    found: dict[int, Alignment | None] = {reference: None}
    for number in chosen:
        if number != reference:
            matched = align(own, _sequence(participants[number], chosen[number]), common_clock)
            if matched is not None:
                found[number] = matched
    return found


def _sequence(one: Participant, chosen: Int64s) -> CollectiveSequence:
    return CollectiveSequence(one.times(chosen), one.token[chosen])


def _group(
    participants: Sequence[Participant],
    operation: Operation,
    chosen: dict[int, Int64s],
    reference: int,
    found: dict[int, Alignment | None],
) -> Group:
    members = tuple(sorted(found))
    slots = np.full((len(members), len(chosen[reference])), -1, dtype=np.int64)
    for place, number in enumerate(members):
        matched = found[number]
        if matched is None:
            slots[place] = chosen[number]
        else:
            slots[place, matched.reference] = chosen[number][matched.other]
    op = slots[:, (slots >= 0).all(axis=0)]
    times = [participants[number].times(row) for number, row in zip(members, op, strict=True)]
    start_ns = np.array([one.start_ns for one in times]).reshape(op.shape)
    end_ns = np.array([one.end_ns for one in times]).reshape(op.shape)
    clock_ns = _clocks(end_ns)
    limit_ns = int(np.median((end_ns - start_ns).min(axis=0))) if op.shape[1] else 0
    return Group(
        operation=operation,
        members=members,
        op=op,
        start_ns=start_ns,
        end_ns=end_ns,
        clock_ns=clock_ns,
        clocks_agree=bool((np.abs(clock_ns) <= max(limit_ns, TOLERANCE_NS)).all()),
    )


def _clocks(end_ns: Int64Table) -> Int64s:
    """How far each member's clock is ahead of the median member's, from the ends."""
    if not end_ns.shape[1]:
        return np.zeros(len(end_ns), dtype=np.int64)
    ahead = np.median(end_ns - end_ns[0], axis=1)
    return np.asarray(np.rint(ahead - np.median(ahead)), dtype=np.int64)
