"""Which collective operation a communicating op does, and whether it waits for every rank."""

import re
from dataclasses import dataclass
from functools import lru_cache

from decodescope.analyzer.timing.communication import communication_kind

# No rank can leave one of these before every rank of its group has entered it. A broadcast waits
# for its root only, a send for its receiver.
MUTUAL = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"))
OTHER = "other"

# The first that matches names the operation; sources of the names: see `timing/communication.py`.
_OPERATIONS = tuple(
    (operation, re.compile(pattern, re.IGNORECASE))
    for operation, pattern in (
        ("all_reduce", r"all_?reduce|cross_device_reduce|quick_?reduce"),
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_gather", r"all_?gather"),
        ("all_to_all", r"all_?to_?all|moe_?A2A|a2a_(?:dispatch|combine)"
                       r"|(?:deep_ep|hybrid_ep|pplx)::|Ep(?:Dispatch|Combine)[A-Z]"),
        ("barrier", r"barrier"),
        ("broadcast", r"broadcast"),
        ("send_recv", r"send_?recv|memcpy (?:PtoP|peer)"),
        ("reduce", r"Kernel_Reduce_"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Operation:
    """A collective operation (`all_reduce`, …, `other`) of one kind of communication, as
    `communication_kind` names it, in the process group that the trace names ("" if it names none).
    """

    name: str
    kind: str
    group: str = ""

    @property
    def mutual(self) -> bool:
        """Whether every rank of the group waits for every other one."""
        return self.name in MUTUAL


@lru_cache(maxsize=4096)
def operation_of(name: str) -> Operation | None:
    """The operation that an op of this name does, None if it does not communicate."""
    kind = communication_kind(name)
    if kind is None:
        return None
    found = (operation for operation, pattern in _OPERATIONS if pattern.search(name))
    return Operation(next(found, OTHER), kind)
