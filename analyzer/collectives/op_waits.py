"""How long each op of the merged trace waited for other ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.collectives.waits import Waits
from decodescope.analyzer.trace import Columns, Int64s, Trace, rows_by


@dataclass(frozen=True, slots=True, eq=False)
class OpWaits(Columns):
    """The matched collectives of a merged trace: one row for each op, in order of `op`, a row of
    its `ops`.

    The op of rank `rank` waited from its start to `own_start_ns` (times of the merged trace), then
    transferred. Its collective has `members` devices; rank `last` entered it last, -1 if several
    did at once, and all others together waited `caused_ns` for it.
    """

    op: Int64s
    rank: Int64s
    own_start_ns: Int64s
    members: Int64s
    last: Int64s
    caused_ns: Int64s

    def of_op(self, op: int) -> int | None:
        """The row of an op, None if it is no matched collective."""
        row = int(self.op.searchsorted(op))
        return row if row < len(self) and int(self.op[row]) == op else None


def find_op_waits(
    merged: Trace,
    devices: Mapping[tuple[int, int], int],
    participants: Sequence[Participant],
    waits: Sequence[Waits],
) -> OpWaits:
    """Find the ops in `merged`, whose device of each (rank, device) is in `devices`.

    The ops of a device are in the same order in the merged trace as in the rank's own.
    """
    rows = rows_by(merged.ops.device)
    parts = []
    for one in waits:
        group, last = one.group, _last_ranks(one, participants)
        for member, op, own_start_ns in zip(group.members, group.op, one.own_start_ns, strict=True):
            mine = participants[member]
            parts.append(
                OpWaits(
                    op=rows[devices[mine.rank, mine.device]][mine.row[op]],
                    rank=np.full(len(op), mine.rank),
                    own_start_ns=own_start_ns - merged.base_ns,
                    members=np.full(len(op), len(group.members)),
                    last=last,
                    caused_ns=one.caused_ns,
                )
            )
    together = OpWaits.concatenate(parts)
    return together.take(np.argsort(together.op, kind="stable"))


def _last_ranks(waits: Waits, participants: Sequence[Participant]) -> Int64s:
    """The rank that entered each collective last, -1 where several did."""
    ranks = np.array([participants[member].rank for member in waits.group.members] + [-1])
    return np.asarray(ranks[waits.last], dtype=np.int64)
