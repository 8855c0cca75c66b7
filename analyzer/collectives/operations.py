"""Which collective operation a communicating op does, and whether it waits for every rank."""

import re
from dataclasses import dataclass, replace

from decodescope.analyzer.names.rule_files import kernel_meaning
from decodescope.analyzer.trace import CollectiveMessage, Int64s

# No rank can leave one of these before every rank of its group has entered it. A broadcast waits
# for its root only, a send for its receiver.
MUTUAL = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))


@dataclass(frozen=True, slots=True, order=True)
class Operation:
    """A collective operation (`all_reduce`, …, `other`) of one kind of communication ("NCCL/RCCL",
    …), in the process group that the trace names ("" if it names none)."""

    name: str
    kind: str
    group: str = ""

    @property
    def mutual(self) -> bool:
        """Whether every rank of the group waits for every other one."""
        return self.name in MUTUAL


def operation_of(name: str) -> Operation | None:
    """The operation that an op of this name does, None if it does not communicate."""
    meaning = kernel_meaning(name)
    if meaning.communication is None or meaning.operation is None:
        return None
    return Operation(meaning.operation, meaning.communication)


_ELEMENT_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
    **dict.fromkeys(("BFloat16", "Half", "Short"), 2),
    **dict.fromkeys(("Float", "Int"), 4),
    **dict.fromkeys(("Double", "Long"), 8),
}


def said_operation(operation: Operation, message: CollectiveMessage | None) -> Operation:
    """The operation of an op whose kernel says what it exchanges: in its group, and an all-to-all
    where NCCL's kernel is that of sends and receives."""
    if message is None:
        return operation
    together = re.fullmatch(r"_*all_?to_?all.*", message.collective, re.IGNORECASE)
    name = "all_to_all" if operation.name == "send_recv" and together else operation.name
    return replace(operation, name=name, group=message.group)


def given_bytes(message: CollectiveMessage | None) -> int:
    """What one rank gives to a collective, in bytes; -1 if unknown."""
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
