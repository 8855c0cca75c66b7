"""How long each rank and each op waited in collectives, how long the transfers took, and which rank
the others waited for.

A rank that enters a mutual collective early waits, inside the kernel, for the last one. On clocks
that agree, it waits from its start to the last start; from there on the collective transfers. On
clocks that do not, ends count as simultaneous: the shortest op of a collective is that of the last
rank to enter and is all transfer, and a longer one waited for as long as it is longer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.matching import Group, Int64Table
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.trace import Columns, Int64s, Trace, rows_by

UNKNOWN = -(2**63)
# A straggler enters last this much more often than its even share (as a share of its collectives,
# and in standard deviations of an even draw), and costs the others this part of the time in which
# they communicate.
MIN_EXCESS, MIN_SIGMAS, MIN_COST = 0.25, 4.0, 0.05


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
        """The time that all other members of each collective waited together."""
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


def split_communication(participant: Participant, transfer_start_ns: Int64s) -> Counter[str]:
    """Split one device's communication by what it was at each moment, in ns by the fields of
    `RankCommunication`: `transfer` where at least one collective transferred, `unsplit` where at
    least one op ran that could not be split, `wait` where every communicating op waited. The three
    add up to the union of the communicating ops, the exposed ones to the part of it in which no
    other op of the device ran. `transfer_start_ns`, on the wall clock, has an entry for each
    communicating op, `UNKNOWN` for one that cannot be split.

    With A the transfers, AB these and the ops that cannot be split, W all that communicate, O all
    other ops and |...| the length of a union: transfer = |A|,
    unsplit = |AB| - |A|, wait = |W| - |AB|. The exposed ones are the same differences of |A + O|,
    |AB + O|, |W + O|.
    """
    start_ns = participant.ops.start_ns[participant.row]
    end_ns = participant.ops.end_ns[participant.row]
    split = transfer_start_ns != UNKNOWN
    begin_ns = start_ns.copy()
    begin_ns[split] = transfer_start_ns[split] - participant.base_ns
    is_other = np.ones(len(participant.ops), dtype=np.bool_)
    is_other[participant.row] = False
    other_ops = participant.ops.take(is_other)

    def lengths(starts: Int64s, ends: Int64s) -> Int64s:
        """The length of the union alone, and what it adds to the other ops."""
        joined = _length(
            np.concatenate((starts, other_ops.start_ns)), np.concatenate((ends, other_ops.end_ns))
        )
        return np.array([_length(starts, ends), joined - other_ns])

    other_ns = _length(other_ops.start_ns, other_ops.end_ns)
    transfer = lengths(begin_ns[split], end_ns[split])
    known = lengths(begin_ns, end_ns)
    unsplit, wait = known - transfer, lengths(start_ns, end_ns) - known
    return Counter(
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
    starts = [
        np.full(len(participant.row), UNKNOWN, dtype=np.int64) for participant in participants
    ]
    for group_waits in waits:
        group = group_waits.group
        for member, op, transfer_start_ns in zip(
            group.members, group.op, group_waits.transfer_start_ns, strict=True
        ):
            starts[member][op] = transfer_start_ns
    return starts


@dataclass(frozen=True, slots=True, eq=False)
class OpWaits(Columns):
    """The matched collectives of a trace: one row for each op, in order of `op`, a row of its ops.

    The op waited from its start to `transfer_start_ns`, then transferred. Its collective has
    `members` devices; `last` is the device that entered it last, -1 if several did at once, and all
    others together waited `caused_ns` for it.
    """

    op: Int64s
    transfer_start_ns: Int64s
    members: Int64s
    last: Int64s
    caused_ns: Int64s

    def of_op(self, op: int) -> int | None:
        """The row of an op, None if it is no matched collective."""
        row = int(self.op.searchsorted(op))
        return row if row < len(self) and int(self.op[row]) == op else None


def op_waits(trace: Trace, participants: Sequence[Participant], waits: Sequence[Waits]) -> OpWaits:
    """The waits of the ops of `trace`, whose devices the participants are."""
    rows = rows_by(trace.ops.device)
    parts = []
    for group_waits in waits:
        group = group_waits.group
        devices = np.array([participants[member].device for member in group.members] + [-1])
        for member, op, transfer_start_ns in zip(
            group.members, group.op, group_waits.transfer_start_ns, strict=True
        ):
            participant = participants[member]
            parts.append(
                OpWaits(
                    op=rows[participant.device][participant.row[op]],
                    transfer_start_ns=transfer_start_ns - participant.base_ns,
                    members=np.full(len(op), len(group.members)),
                    last=devices[group_waits.last],
                    caused_ns=group_waits.caused_ns,
                )
            )
    together = OpWaits.concatenate(parts)
    return together.take(np.argsort(together.op, kind="stable"))


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """How one device entered the matched collectives. `last` of `collectives` it entered last;
    by chance it would be `even` with the standard deviation `even_sigma`. In those, the other
    members waited `caused_ns` in all, `cost_ns` each on average. `late_ns[k]` is how long after the
    first member it entered collective k."""

    collectives: int
    last: int
    even: float
    even_sigma: float
    caused_ns: int
    cost_ns: int
    late_ns: Int64s

    @property
    def excess(self) -> float:
        """How much more often than evenly it entered last, as a share of its collectives."""
        return (self.last - self.even) / self.collectives if self.collectives else 0.0


def entries_of(number: int, waits: Sequence[Waits]) -> Entries:
    """The entries of participant `number`, over all groups.

    With n members in a collective: even = sum of 1/n, even_sigma² = sum of (1/n)(1 - 1/n).
    """
    collectives = last = caused_ns = cost_ns = 0
    even = variance = 0.0
    late_ns = [np.zeros(0, dtype=np.int64)]
    for group_waits in waits:
        members = group_waits.group.members
        if number in members:
            place, count = members.index(number), len(group_waits.last)
            is_last = group_waits.last == place
            waited_ns = int(group_waits.caused_ns[is_last].sum())
            collectives += count
            last += int(is_last.sum())
            even += 1 / len(members) * count
            variance += 1 / len(members) * (1 - 1 / len(members)) * count
            caused_ns += waited_ns
            cost_ns += waited_ns // (len(members) - 1)
            late_ns.append(group_waits.late_ns[place])
    sigma = float(np.sqrt(variance))
    return Entries(collectives, last, even, sigma, caused_ns, cost_ns, np.concatenate(late_ns))


def find_straggler(
    device_entries: Sequence[Entries], communication_ns: int
) -> tuple[int | None, str]:
    """The participant whose lateness cost the others most, if it is a straggler by the rule above;
    and why it is none: "" if one is found. `communication_ns` is how long a device communicates.
    """
    if not any(entry.collectives for entry in device_entries):
        return None, "no collectives were matched"
    number = int(np.argmax([entry.cost_ns for entry in device_entries]))
    costliest = device_entries[number]
    last = f"entered {costliest.last} of {costliest.collectives} collectives last"
    if (
        costliest.excess < MIN_EXCESS
        or costliest.last - costliest.even < MIN_SIGMAS * costliest.even_sigma
    ):
        return None, f"even: no rank is late often enough; the one that cost most {last}"
    if costliest.cost_ns < MIN_COST * communication_ns:
        share = f"{costliest.cost_ns / communication_ns:.1%} of their communication"
        return None, f"small: the rank that cost most {last}, but the others waited only {share}"
    return number, ""
