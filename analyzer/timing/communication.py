"""Communication between devices, and how much of it nothing else covers.

Which kernels communicate is in `names/roles.toml`.
"""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rule_files import kernel_meaning
from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.trace import GpuOps, Trace


@dataclass(frozen=True, slots=True)
class Communication:
    """The communication of one device, in ns.

    `busy_ns` is the union of its ops, `exposed_ns` the part of it in which no other op ran on the
    device, `by_kind` the union of the ops of each kind, the longest first.
    """

    busy_ns: int
    exposed_ns: int
    by_kind: dict[str, int]


def communication(trace: Trace, ops: GpuOps) -> Communication:
    """The communication among `ops`: those of one device, sorted by start.

    exposed_ns = length of the union of all ops - length of the union of the ops that do not
    communicate.
    """
    used, place = np.unique(ops.name, return_inverse=True)
    kinds = [kernel_meaning(trace.names[name]).communication for name in used]
    if not any(kinds):
        return Communication(0, 0, {})
    kind = np.array([kind or "" for kind in kinds])[place]

    def busy_ns(chosen: GpuOps) -> int:
        return union(chosen.start_ns, chosen.end_ns).busy_ns

    found = {name: busy_ns(ops.take(kind == name)) for name in dict.fromkeys(kinds) if name}
    return Communication(
        busy_ns=busy_ns(ops.take(kind != "")),
        exposed_ns=busy_ns(ops) - busy_ns(ops.take(kind == "")),
        by_kind=dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))),
    )
