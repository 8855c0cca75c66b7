"""The communicating ops of each device of each rank, and their collective operations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import (
    CollectiveMessage,
    GpuOps,
    Int32s,
    Int64s,
    Intervals,
    Trace,
    rows_by,
)

# No rank can leave one of these before every rank of its group has entered it. A broadcast waits
# for its root only, a send for its receiver.
MUTUAL = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))
# Ops that start at one time, on several devices and streams.
_MAX_TOGETHER = 16


@dataclass(frozen=True, slots=True, order=True)
class CollectiveOperation:
    """A collective operation (`all_reduce`, …, `other`) of one kind of communication ("NCCL/RCCL",
    …), in the process group that the trace names ("" if it names none)."""

    name: str
    kind: str
    group: str = ""

    @property
    def mutual(self) -> bool:
        """Whether every rank of the group waits for every other one."""
        return self.name in MUTUAL


def operation_of(name: str) -> CollectiveOperation | None:
    """The operation that an op of this name does, None if it does not communicate."""
    meaning = kernel_meaning(name)
    if meaning.communication is None or meaning.operation is None:
        return None
    return CollectiveOperation(meaning.operation, meaning.communication)


_ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}


def said_operation(
    operation: CollectiveOperation, message: CollectiveMessage | None
) -> CollectiveOperation:
    """The operation of an op whose kernel says what it exchanges: in its group, and an all-to-all
    where NCCL's kernel is that of sends and receives."""
    if message is None:
        return operation
    together = re.fullmatch(r"_*all_?to_?all.*", message.collective, re.IGNORECASE)
    name = "all_to_all" if operation.name == "send_recv" and together else operation.name
    return replace(operation, name=name, group=message.group)


def given_bytes(message: CollectiveMessage | None) -> int:
    """The bytes that one rank gives to a collective; -1 if unknown."""
    if message is None or message.in_elements is None:
        return -1
    element_bytes = _ELEMENT_BYTES.get(message.dtype)
    return -1 if element_bytes is None else message.in_elements * element_bytes


def message_bytes(operation: str, given_bytes: Int64s, ranks: int) -> Int64s:
    """The sizes of messages as nccl-tests counts them (doc/PERFORMANCE.md): what a rank gives, of
    an all-gather what it gets, that is what all `ranks` give."""
    return given_bytes * ranks if operation == "all_gather" else given_bytes


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bus bandwidth ÷ (message size ÷ time) of nccl-tests, for n ranks: 2 (n - 1) / n of an
    all-reduce, (n - 1) / n of an all-gather, reduce-scatter and all-to-all; None of others."""
    share = (ranks - 1) / ranks
    shares = {"all_gather": share, "reduce_scatter": share, "all_to_all": share}
    return {"all_reduce": 2 * share, **shares}.get(operation)


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
) -> tuple[list[CollectiveOperation], list[Participant]]:
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
        for device, device_ops in rows_by(trace.ops.device).items():
            row = np.flatnonzero(uses.kind[device_ops] >= 0)
            if len(row):
                kind, step = uses.kind[device_ops[row]], steps.op_step[device_ops[row]]
                participants.append(
                    Participant(
                        rank=rank,
                        device=device,
                        base_ns=trace.base_ns,
                        ops=trace.ops.take(device_ops),
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
    operation: CollectiveOperation
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Uses:
    """The ways in which the ops of a trace communicate, and each op's, -1 for none."""

    kinds: list[_Use]
    kind: Int32s


def _uses(trace: Trace) -> _Uses:
    ops = trace.ops
    used = np.unique(ops.name)
    operation_by_name = {name: operation_of(trace.names[name]) for name in used.tolist()}
    communicating = np.array(
        [operation_by_name[name] is not None for name in used.tolist()], dtype=np.bool_
    )
    rows = np.flatnonzero(communicating[np.searchsorted(used, ops.name)])
    message = _messages(trace, rows)
    numbers: dict[_Use, int] = {}
    kind = np.full(len(ops), -1, dtype=np.int32)
    pairs, which = np.unique(
        np.stack((ops.name[rows].astype(np.int64), message)), axis=1, return_inverse=True
    )
    for pair, (name, number) in enumerate(pairs.T.tolist()):
        operation = operation_by_name[name]
        assert operation is not None
        message_of_op = trace.message_table[number] if number >= 0 else None
        operation = said_operation(operation, message_of_op)
        use = _Use(trace.names[name], operation, given_bytes(message_of_op))
        kind[rows[which.ravel() == pair]] = numbers.setdefault(use, len(numbers))
    return _Uses(list(numbers), kind)


def _messages(trace: Trace, rows: Int64s) -> Int64s:
    """The message of each of these ops, -1 for none: the one with its start, device and stream."""
    messages, ops = trace.messages, trace.ops
    message = np.full(len(rows), -1, dtype=np.int64)
    if not len(messages):
        return message
    place = np.searchsorted(messages.start_ns, ops.start_ns[rows])
    for later in range(_MAX_TOGETHER):
        at = np.minimum(place + later, len(messages) - 1)
        same = (
            (messages.start_ns[at] == ops.start_ns[rows])
            & (messages.device[at] == ops.device[rows])
            & (messages.stream[at] == ops.stream[rows])
        )
        message[same] = messages.message[at[same]]
    return message
