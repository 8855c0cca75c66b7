"""The communicating ops of each device of each rank, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.operations import Operation, operation_of
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import GpuOps, Int32s, Int64s, Intervals, Trace, rows_by


@dataclass(frozen=True, slots=True, eq=False)
class Participant:
    """One device of one rank. `ops` are all its ops, `row` those of them that communicate, in order
    of start. Of each of these: `operation` indexes the list of `find_participants`, `token` is
    equal for ops of equal names (on every rank), `step` is its step, -1 for none. Times are on the
    wall clock: the trace's own and `base_ns`.
    """

    rank: int
    device: int
    base_ns: int
    ops: GpuOps
    row: Int64s
    operation: Int32s
    token: Int32s
    step: Int64s

    def times(self, chosen: Int64s) -> Intervals:
        """The wall-clock times of some of the communicating ops."""
        rows = self.row[chosen]
        return Intervals(
            self.ops.start_ns[rows] + self.base_ns, self.ops.end_ns[rows] + self.base_ns
        )


def find_participants(
    ranks: Sequence[tuple[int, Trace, Steps]],
) -> tuple[list[Operation], list[Participant]]:
    """The operations that occur, sorted, and every device that communicates, by rank and device."""
    used = [
        {name: trace.names[name] for name in np.unique(trace.ops.name).tolist()}
        for _, trace, _ in ranks
    ]
    texts = sorted({text for names in used for text in names.values() if operation_of(text)})
    token_of = {text: token for token, text in enumerate(texts)}
    operations = sorted({found for text in texts if (found := operation_of(text))})
    place_of = {operation: place for place, operation in enumerate(operations)}
    participants = []
    for (rank, trace, steps), names in zip(ranks, used, strict=True):
        token = np.full(len(trace.names), -1, dtype=np.int32)
        place = np.full(len(trace.names), -1, dtype=np.int32)
        for name, text in names.items():
            if found := operation_of(text):
                token[name], place[name] = token_of[text], place_of[found]
        for device, mine in rows_by(trace.ops.device).items():
            ops = trace.ops.take(mine)
            row = np.flatnonzero(token[ops.name] >= 0)
            if len(row):
                name, step = ops.name[row], steps.op_step[mine[row]]
                participants.append(
                    Participant(
                        rank, device, trace.base_ns, ops, row, place[name], token[name], step
                    )
                )
    return operations, participants
