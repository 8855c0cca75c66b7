"""How long each device waited in collectives and transferred, and how late it entered them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.groups import Group
from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.trace import Columns, Int64s, Trace, rows_by

UNKNOWN = -(2**63)


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
    communicating = participant.collectives
    start_ns, end_ns = communicating.start_ns, communicating.end_ns
    split = transfer_start_ns != UNKNOWN
    begin_ns = np.where(split, transfer_start_ns, start_ns)
    others = participant.ops.take(np.delete(np.arange(len(participant.ops)), communicating.row))
    other_start_ns = others.start_ns + participant.base_ns
    other_end_ns = others.end_ns + participant.base_ns
    other_ns = _length(other_start_ns, other_end_ns)

    def lengths(starts: Int64s, ends: Int64s) -> tuple[int, int]:
        """The length of the union alone, and what it adds to the other ops."""
        joined = _length(np.append(starts, other_start_ns), np.append(ends, other_end_ns))
        return _length(starts, ends), joined - other_ns

    unions = (
        lengths(begin_ns[split], end_ns[split]),
        lengths(begin_ns, end_ns),
        lengths(start_ns, end_ns),
    )
    transfer, unsplit, wait = np.diff(unions, axis=0, prepend=0).tolist()
    return Counter(
        transfer_ns=transfer[0],
        wait_ns=wait[0],
        unsplit_ns=unsplit[0],
        exposed_transfer_ns=transfer[1],
        exposed_wait_ns=wait[1],
        exposed_unsplit_ns=unsplit[1],
    )


def _length(start_ns: Int64s, end_ns: Int64s) -> int:
    order = np.argsort(start_ns, kind="stable")
    return union(start_ns[order], end_ns[order]).busy_ns


def transfer_starts(participants: Sequence[Participant], groups: Sequence[Group]) -> list[Int64s]:
    """For each participant, when the transfer of each communicating op began, or `UNKNOWN`."""
    starts = [np.full(len(participant.collectives), UNKNOWN) for participant in participants]
    for group in groups:
        for member, op, start_ns in zip(
            group.members, group.op, group.transfer_start_ns, strict=True
        ):
            starts[member][op] = start_ns
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
        row = int(self.op.searchsorted(op))
        return row if row < len(self) and int(self.op[row]) == op else None


def op_waits(trace: Trace, participants: Sequence[Participant], groups: Sequence[Group]) -> OpWaits:
    """The waits of the ops of `trace`, whose devices the participants are."""
    rows = rows_by(trace.ops.device)
    parts = []
    for group in groups:
        devices = np.array([participants[member].device for member in group.members] + [-1])
        for member, op, start_ns in zip(
            group.members, group.op, group.transfer_start_ns, strict=True
        ):
            participant = participants[member]
            parts.append(
                OpWaits(
                    op=rows[participant.device][participant.collectives.row[op]],
                    transfer_start_ns=start_ns - participant.base_ns,
                    members=np.full(len(op), len(group.members)),
                    last=devices[group.last],
                    caused_ns=group.caused_ns,
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


def entries_of(number: int, groups: Sequence[Group]) -> Entries:
    """The entries of participant `number`, over all groups.

    With n members in a collective: even = sum of 1/n, even_sigma² = sum of (1/n)(1 - 1/n).
    """
    collectives = last = caused_ns = cost_ns = 0
    even = variance = 0.0
    late_ns = [np.zeros(0, dtype=np.int64)]
    for group in groups:
        if number in group.members:
            place, count = group.members.index(number), len(group.last)
            share = 1 / len(group.members)
            is_last = group.last == place
            waited_ns = int(group.caused_ns[is_last].sum())
            collectives += count
            last += int(is_last.sum())
            even += share * count
            variance += share * (1 - share) * count
            caused_ns += waited_ns
            cost_ns += waited_ns // (len(group.members) - 1)
            late_ns.append(group.late_ns[place])
    sigma = float(np.sqrt(variance))
    return Entries(collectives, last, even, sigma, caused_ns, cost_ns, np.concatenate(late_ns))
