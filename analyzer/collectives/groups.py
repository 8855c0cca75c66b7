"""Groups of devices that run the same collectives, and the waiting in each collective.

A rank that enters a mutual collective early waits, inside the kernel, for the last one. On clocks
that agree, it waits from its start to the last start; from there on the collective transfers. On
clocks that do not, ends count as simultaneous: the shortest op of a collective is that of the last
rank to enter and is all transfer, and a longer one waited for as long as it is longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.collectives.matching import TOLERANCE_NS, align_collectives
from decodescope.analyzer.collectives.participants import MUTUAL, CollectiveOperation, Participant
from decodescope.analyzer.trace import Int64s

Int64Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Devices that run one operation together, and their matched collectives: those that every
    member recorded, in order. Tables are int64 [members, collectives].

    `members` index the participants, in order. `op[m, k]` is the row of collective k among the
    `Collectives` of member m. `clock_ns[m]` = median end on m - the median of that over the
    members, as far as ends say: the difference of the clocks. `by_durations`: the clocks are not
    common, or a |clock_ns| is larger than the transfer of half of the collectives takes.

    An op waits for `wait_ns`, from its start to `transfer_start_ns` (on its rank's clock), and
    transfers from there to its end. `transfer_ns` is the transfer of each collective: from the last
    start to the last end, or, by durations, the shortest op. `last[k]` is the member that entered
    collective k last, -1 where several did. `late_ns` is how long after the first member each one
    entered.
    """

    operation: CollectiveOperation
    members: tuple[int, ...]
    op: Int64Table
    clock_ns: Int64s
    by_durations: bool
    transfer_start_ns: Int64Table
    wait_ns: Int64Table
    transfer_ns: Int64s
    last: Int64s
    late_ns: Int64Table

    @property
    def caused_ns(self) -> Int64s:
        """The time that all other members of each collective waited together."""
        return np.asarray(self.wait_ns.sum(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class MatchedCollectives:
    """The `operations` of the `participants`, and the groups of those that run the same
    collectives."""

    operations: Sequence[CollectiveOperation]
    participants: Sequence[Participant]
    groups: Sequence[Group]

    @property
    def matched_groups(self) -> list[Group]:
        return [group for group in self.groups if len(group.transfer_ns)]

    @property
    def by_durations(self) -> bool:
        return any(group.by_durations for group in self.matched_groups)


def match_collectives(
    operations: Sequence[CollectiveOperation],
    participants: Sequence[Participant],
    common_clock: bool,
) -> MatchedCollectives:
    """The groups of every mutual operation, in order of operation and first member. `common_clock`
    says whether the wall clocks of the participants are one.

    The reference of a group is the device with the most of these collectives (of several, the
    first); those that share enough of them are its members (see `align_collectives`). The rest may
    be groups of their own. A device without a partner is in none.
    """
    groups = []
    for place, operation in enumerate(operations):
        if operation.name not in MUTUAL:
            continue
        ungrouped = {
            number: rows
            for number, participant in enumerate(participants)
            if len(rows := np.flatnonzero(participant.collectives.operation == place))
        }
        while len(ungrouped) > 1:
            reference = max(ungrouped, key=lambda number: (len(ungrouped[number]), -number))
            ops = _ops_of_members(participants, ungrouped, reference, common_clock)
            if len(ops) > 1:
                groups.append(_group(operation, participants, ops, common_clock))
            for number in ops:
                del ungrouped[number]
    groups.sort(key=lambda group: (group.operation, group.members))
    return MatchedCollectives(operations, participants, groups)


def _ops_of_members(
    participants: Sequence[Participant],
    rows: dict[int, Int64s],
    reference: int,
    common_clock: bool,
) -> dict[int, Int64s]:
    """The members of the group of `reference`, and the row of each of its collectives in the
    `Collectives` of each member, -1 for none; `rows` has the rows of the devices that may be
    members."""
    collectives = {number: participants[number].collectives.take(rows[number]) for number in rows}
    ops = {}
    for number in rows:
        pairs: tuple[slice, slice] | tuple[Int64s, Int64s] | None = (slice(None), slice(None))
        if number != reference:
            pairs = align_collectives(collectives[reference], collectives[number], common_clock)
        if pairs is not None:
            ops[number] = np.full(len(rows[reference]), -1, dtype=np.int64)
            ops[number][pairs[0]] = rows[number][pairs[1]]
    return ops


def _group(
    operation: CollectiveOperation,
    participants: Sequence[Participant],
    ops: dict[int, Int64s],
    common_clock: bool,
) -> Group:
    op = np.array(list(ops.values()))
    op = op[:, (op >= 0).all(axis=0)]
    times = [
        participants[number].collectives.take(rows) for number, rows in zip(ops, op, strict=True)
    ]
    start_ns = np.array([member_times.start_ns for member_times in times])
    end_ns = np.array([member_times.end_ns for member_times in times])
    length_ns = end_ns - start_ns
    clock_ns, limit_ns = np.zeros(len(op), dtype=np.int64), 0
    if op.shape[1]:
        ahead_ns = np.median(end_ns - end_ns[0], axis=1)
        clock_ns = np.rint(ahead_ns - np.median(ahead_ns)).astype(np.int64)
        limit_ns = int(np.median(length_ns.min(axis=0)))
    by_durations = not common_clock or np.abs(clock_ns).max() > max(limit_ns, TOLERANCE_NS)
    if by_durations:
        transfer_ns = length_ns.min(axis=0)
        transfer_start_ns = end_ns - transfer_ns
        early_ns = length_ns - transfer_ns
    else:
        last_ns = start_ns.max(axis=0)
        transfer_ns = np.maximum(end_ns.max(axis=0) - last_ns, 0)
        transfer_start_ns = np.clip(last_ns, start_ns, end_ns)
        early_ns = last_ns - start_ns
    several = (early_ns == 0).sum(axis=0) != 1
    return Group(
        operation=operation,
        members=tuple(ops),
        op=op,
        clock_ns=clock_ns,
        by_durations=bool(by_durations),
        transfer_start_ns=transfer_start_ns,
        wait_ns=transfer_start_ns - start_ns,
        transfer_ns=transfer_ns,
        last=np.where(several, -1, early_ns.argmin(axis=0)),
        late_ns=early_ns.max(axis=0) - early_ns,
    )
