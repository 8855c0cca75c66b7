"""How long each rank waited in each collective, and how long the transfer took.

A rank that enters a mutual collective early waits, inside the kernel, for the last one. On clocks
that agree, it waits from its start to the last start; from there on the collective transfers. On
clocks that do not, ends count as simultaneous: the shortest op of a collective is that of the last
rank to enter and is all transfer, and a longer one waited for as long as it is longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.matching import Group, Int64Table
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.trace import Int64s

UNKNOWN = -(2**63)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The waiting of one group, int64 [members, collectives]. Waiting lasts from an op's start to
    `transfer_start_ns` (on its rank's clock), the transfer from there to its end.

    `transfer_ns` is the transfer of each collective: from the last start to the last end, or, by
    durations, the shortest op. `last[k]` is the member that entered collective k last, -1 where
    several did. `late_ns` is how long after the first member each one entered.
    """

    group: Group
    by_durations: bool
    transfer_start_ns: Int64Table
    transfer_ns: Int64s
    last: Int64s
    late_ns: Int64Table

    @property
    def wait_ns(self) -> Int64Table:
        """transfer_start_ns - start of each op."""
        return self.transfer_start_ns - self.group.start_ns

    @property
    def caused_ns(self) -> Int64s:
        """What all other members of each collective waited together."""
        waited: Int64s = self.wait_ns.sum(axis=0)
        return waited


def find_waits(group: Group, common_clock: bool) -> Waits:
    """Split the collectives of a group, by durations if its clocks disagree or are not common."""
    by_durations = not (common_clock and group.clocks_agree)
    start_ns, end_ns = group.start_ns, group.end_ns
    if by_durations:
        length_ns = end_ns - start_ns
        transfer_ns = length_ns.min(axis=0)
        transfer_start_ns = end_ns - transfer_ns
        early_ns = length_ns - transfer_ns
    else:
        last_ns = start_ns.max(axis=0)
        transfer_ns = np.maximum(end_ns.max(axis=0) - last_ns, 0)
        transfer_start_ns = np.clip(last_ns, start_ns, end_ns)
        early_ns = last_ns - start_ns
    several = (early_ns == 0).sum(axis=0) != 1
    return Waits(
        group=group,
        by_durations=by_durations,
        transfer_start_ns=transfer_start_ns,
        transfer_ns=transfer_ns,
        last=np.where(several, -1, early_ns.argmin(axis=0)),
        late_ns=early_ns.max(axis=0) - early_ns,
    )


@dataclass(frozen=True, slots=True)
class SplitCommunication:
    """The communication of one device in ns, by what it was at each moment: `transfer` where at
    least one collective transferred, `unsplit` where at least one op ran that could not be split,
    `wait` where every communicating op waited. The three add up to `busy_ns` of `Communication`,
    the exposed ones (in which no other op of the device ran) to its `exposed_ns`."""

    transfer_ns: int
    wait_ns: int
    unsplit_ns: int
    exposed_transfer_ns: int
    exposed_wait_ns: int
    exposed_unsplit_ns: int


def split_communication(one: Participant, transfer_start_ns: Int64s) -> SplitCommunication:
    """Split one device's communication. `transfer_start_ns`, on the wall clock, has an entry for
    each of its communicating ops, `UNKNOWN` for one that cannot be split.

    With A the transfers, AB these and the ops that cannot be split, W all that communicate, O all
    other ops and |...| the length of a union: transfer = |A|,
    unsplit = |AB| - |A|, wait = |W| - |AB|. The exposed ones are the same differences of |A + O|,
    |AB + O|, |W + O|.
    """
    start_ns, end_ns = one.ops.start_ns[one.row], one.ops.end_ns[one.row]
    split = transfer_start_ns != UNKNOWN
    begin_ns = start_ns.copy()
    begin_ns[split] = transfer_start_ns[split] - one.base_ns
    others = np.ones(len(one.ops), dtype=np.bool_)
    others[one.row] = False
    other_start_ns, other_end_ns = one.ops.start_ns[others], one.ops.end_ns[others]

    def lengths(starts: Int64s, ends: Int64s) -> Int64s:
        """The length of the union alone, and what it adds to the other ops."""
        joined = _length(
            np.concatenate((starts, other_start_ns)), np.concatenate((ends, other_end_ns))
        )
        return np.array([_length(starts, ends), joined - other_ns])

    other_ns = _length(other_start_ns, other_end_ns)
    transfer = lengths(begin_ns[split], end_ns[split])
    known = lengths(begin_ns, end_ns)
    unsplit, wait = known - transfer, lengths(start_ns, end_ns) - known
    return SplitCommunication(
        transfer_ns=int(transfer[0]),
        wait_ns=int(wait[0]),
        unsplit_ns=int(unsplit[0]),
        exposed_transfer_ns=int(transfer[1]),
        exposed_wait_ns=int(wait[1]),
        exposed_unsplit_ns=int(unsplit[1]),
    )


def _length(start_ns: Int64s, end_ns: Int64s) -> int:
    order = np.argsort(start_ns, kind="stable")
    return union(start_ns[order], end_ns[order]).busy_ns


def transfer_starts(participants: Sequence[Participant], waits: Sequence[Waits]) -> list[Int64s]:
    """For each participant, when the transfer of each communicating op began, or `UNKNOWN`."""
    starts = [np.full(len(one.row), UNKNOWN, dtype=np.int64) for one in participants]
    for found in waits:
        group = found.group
        for member, op, transfer_start_ns in zip(
            group.members, group.op, found.transfer_start_ns, strict=True
        ):
            starts[member][op] = transfer_start_ns
    return starts
