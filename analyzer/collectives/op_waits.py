"""How long each op of a trace of several GPUs waited for the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.participants import Participant
from decodescope.analyzer.collectives.waits import Waits
from decodescope.analyzer.trace import Columns, Int64s, Trace, rows_by


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
    for one in waits:
        group = one.group
        devices = np.array([participants[member].device for member in group.members] + [-1])
        for member, op, transfer_start_ns in zip(
            group.members, group.op, one.transfer_start_ns, strict=True
        ):
            mine = participants[member]
            parts.append(
                OpWaits(
                    op=rows[mine.device][mine.row[op]],
                    transfer_start_ns=transfer_start_ns - mine.base_ns,
                    members=np.full(len(op), len(group.members)),
                    last=devices[one.last],
                    caused_ns=one.caused_ns,
                )
            )
    together = OpWaits.concatenate(parts)
    return together.take(np.argsort(together.op, kind="stable"))
