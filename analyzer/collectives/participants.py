"""The communicating ops of each device of each rank, and their collective operations."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.names.rules import communicates, kernel_meaning
from decodescope.analyzer.timing.attributed_time import begins_in_order
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import (
    CollectiveMessage,
    GpuOps,
    Int32s,
    Int64s,
    Intervals,
    Trace,
    row_numbers,
    rows_by,
    rows_in,
)

# No rank can leave one of these before every rank of its group has entered it. A broadcast waits
# for its root only, a send for its receiver.
MUTUAL = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))


@dataclass(frozen=True, slots=True, order=True)
class CollectiveOperation:
    """A collective operation (`all_reduce`, …, `other`) of one kind of communication ("NCCL/RCCL",
    …), in the process group that the trace names ("" if it names none)."""

    name: str
    kind: str
    group: str = ""


_ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}


def _use(name: str, message: CollectiveMessage | None) -> "_Use":
    """How an op of this name, which communicates, does so. The kernel's message names its group,
    its bytes, and an all-to-all where NCCL's kernel is that of sends and receives."""
    meaning = kernel_meaning(name)
    assert meaning.communication is not None
    assert meaning.operation is not None
    operation = CollectiveOperation(meaning.operation, meaning.communication)
    if message is None:
        return _Use(name, operation, -1)
    together = re.fullmatch(r"_*all_?to_?all.*", message.collective, re.IGNORECASE)
    is_exchange = operation.name == "send_recv" and together is not None
    element_bytes, payload_bytes = _ELEMENT_BYTES.get(message.dtype), -1
    if message.in_elements is not None and element_bytes is not None:
        payload_bytes = message.in_elements * element_bytes
    operation = replace(
        operation, name="all_to_all" if is_exchange else operation.name, group=message.group
    )
    return _Use(name, operation, payload_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class Collectives(Intervals):
    """The communicating ops of one device in their order, on the wall clock. `row` is the row of
    each among the device's ops, `operation` indexes the list of `find_participants`, `token` is
    equal for ops of equal names and messages (on every rank), `step` is its step, -1 for none, and
    `bytes` is the payload of the rank, -1 if unknown.
    """

    row: Int64s
    operation: Int32s
    token: Int32s
    step: Int64s
    bytes: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Participant:
    """One device of one rank: all its ops, in the trace's own time, `base_ns` behind the wall
    clock, and those that communicate. An op begins when those before it on its stream have ended: a
    kernel that was launched early waits for them, not for other ranks."""

    rank: int
    device: int
    base_ns: int
    ops: GpuOps
    collectives: Collectives


def find_participants(
    ranks: Sequence[tuple[int, Trace, Steps]],
) -> tuple[list[CollectiveOperation], list[Participant]]:
    """The operations that occur, sorted, and every device that communicates, by rank and device."""
    used = [_uses(trace) for _, trace, _ in ranks]
    every = {use for uses, _ in used for use in uses}
    operations = sorted({use.operation for use in every})
    place_of = {operation: place for place, operation in enumerate(operations)}
    token_of = {use: token for token, use in enumerate(sorted(every, key=repr))}
    participants = []
    for (rank, trace, steps), (uses, use_of_op) in zip(ranks, used, strict=True):
        token = np.array([token_of[use] for use in uses], dtype=np.int32)
        place = np.array([place_of[use.operation] for use in uses], dtype=np.int32)
        size = np.array([use.bytes for use in uses], dtype=np.int64)
        for device, device_ops in rows_by(trace.ops.device).items():
            row = np.flatnonzero(use_of_op[device_ops] >= 0)
            if len(row):
                kind = use_of_op[device_ops[row]]
                ops = trace.ops.take(device_ops)
                ops = replace(ops, start_ns=begins_in_order(ops, ops.stream))
                collectives = Collectives(
                    start_ns=ops.start_ns[row] + trace.base_ns,
                    end_ns=ops.end_ns[row] + trace.base_ns,
                    row=row,
                    operation=place[kind],
                    token=token[kind],
                    step=steps.op_step[device_ops[row]],
                    bytes=size[kind],
                )
                participants.append(Participant(rank, device, trace.base_ns, ops, collectives))
    return operations, participants


@dataclass(frozen=True, slots=True)
class _Use:
    """One way in which ops of a trace communicate; `bytes` is -1 if unknown."""

    name: str
    operation: CollectiveOperation
    bytes: int


def _uses(trace: Trace) -> tuple[list[_Use], Int32s]:
    ops = trace.ops
    rows = np.flatnonzero(trace.by_name(ops.name, communicates))
    message = messages_of(trace, rows)
    numbers: dict[_Use, int] = {}
    kind = np.full(len(ops), -1, dtype=np.int32)
    pairs, which = np.unique(
        np.stack((ops.name[rows].astype(np.int64), message)), axis=1, return_inverse=True
    )
    uses = (
        _use(trace.names[name], trace.message_table[number] if number >= 0 else None)
        for name, number in pairs.T.tolist()
    )
    kinds = [numbers.setdefault(use, len(numbers)) for use in uses]
    kind[rows] = np.array(kinds, dtype=np.int32)[which.ravel()]
    return list(numbers), kind


def messages_of(trace: Trace, rows: Int64s) -> Int64s:
    """The message of each of these ops, -1 for none: the one with its start, device and stream."""
    messages, ops = trace.messages, trace.ops
    key = row_numbers(
        np.append(messages.start_ns, ops.start_ns[rows]),
        np.append(messages.device, ops.device[rows]),
        np.append(messages.stream, ops.stream[rows]),
    )
    row = rows_in(key[: len(messages)], key[len(messages) :])
    return np.append(messages.message, -1)[row]
