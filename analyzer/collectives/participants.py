"""The communicating ops of each device of each rank, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.operations import (
    Operation,
    given_bytes,
    operation_of,
    said_operation,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import GpuOps, Int32s, Int64s, Intervals, Trace, rows_by

# Ops that start at one time, on several devices and streams.
_MAX_TOGETHER = 16


@dataclass(frozen=True, slots=True, eq=False)
class Participant:
    """One device of one rank. `ops` are all its ops, `row` those of them that communicate, in order
    of start. Of each of these: `operation` indexes the list of `find_participants`, `token` is
    equal for ops of equal names and messages (on every rank), `step` is its step, -1 for none, and
    `bytes` what the rank gives to it, -1 if unknown. Times are on the
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
    bytes: Int64s

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
    used = [_uses(trace) for _, trace, _ in ranks]
    every = {use for uses in used for use in uses.kinds}
    operations = sorted({use.operation for use in every})
    place_of = {operation: place for place, operation in enumerate(operations)}
    token_of = {use: token for token, use in enumerate(sorted(every, key=repr))}
    participants = []
    for (rank, trace, steps), uses in zip(ranks, used, strict=True):
        token = np.array([token_of[use] for use in uses.kinds], dtype=np.int32)
        place = np.array([place_of[use.operation] for use in uses.kinds], dtype=np.int32)
        size = np.array([use.bytes for use in uses.kinds], dtype=np.int64)
        for device, mine in rows_by(trace.ops.device).items():
            row = np.flatnonzero(uses.kind[mine] >= 0)
            if len(row):
                kind, step = uses.kind[mine[row]], steps.op_step[mine[row]]
                participants.append(
                    Participant(
                        rank=rank,
                        device=device,
                        base_ns=trace.base_ns,
                        ops=trace.ops.take(mine),
                        row=row,
                        operation=place[kind],
                        token=token[kind],
                        step=step,
                        bytes=size[kind],
                    )
                )
    return operations, participants


@dataclass(frozen=True, slots=True)
class _Use:
    """One way in which ops of a trace communicate."""

    name: str
    operation: Operation
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Uses:
    """The ways in which the ops of a trace communicate, and each op's, -1 for none."""

    kinds: list[_Use]
    kind: Int32s


def _uses(trace: Trace) -> _Uses:
    ops = trace.ops
    used = np.unique(ops.name)
    found = {name: operation_of(trace.names[name]) for name in used.tolist()}
    communicating = np.array([found[name] is not None for name in used.tolist()], dtype=np.bool_)
    rows = np.flatnonzero(communicating[np.searchsorted(used, ops.name)])
    message = _messages(trace, rows)
    numbers: dict[_Use, int] = {}
    kind = np.full(len(ops), -1, dtype=np.int32)
    pairs, which = np.unique(
        np.stack((ops.name[rows].astype(np.int64), message)), axis=1, return_inverse=True
    )
    for pair, (name, number) in enumerate(pairs.T.tolist()):
        operation = found[name]
        assert operation is not None
        said = trace.message_table[number] if number >= 0 else None
        operation = said_operation(operation, said)
        use = _Use(trace.names[name], operation, given_bytes(said))
        kind[rows[which.ravel() == pair]] = numbers.setdefault(use, len(numbers))
    return _Uses(list(numbers), kind)


def _messages(trace: Trace, rows: Int64s) -> Int64s:
    """The message of each of these ops, -1 for none: the one with its start, device and stream."""
    said, ops = trace.messages, trace.ops
    message = np.full(len(rows), -1, dtype=np.int64)
    if not len(said):
        return message
    place = np.searchsorted(said.start_ns, ops.start_ns[rows])
    for later in range(_MAX_TOGETHER):
        at = np.minimum(place + later, len(said) - 1)
        same = (
            (said.start_ns[at] == ops.start_ns[rows])
            & (said.device[at] == ops.device[rows])
            & (said.stream[at] == ops.stream[rows])
        )
        message[same] = said.message[at[same]]
    return message
