"""What a reader hands to the analyses: one trace as sorted columns, joined once.

All times are integer nanoseconds on the trace's own clock; add `Trace.base_ns` for the wall clock.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.reference import GraphReference
from decodescope.analyzer.schema.report import CaptureInfo, Finding, Source

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]

KERNEL, MEMCPY, MEMSET, CPU_OPERATOR, GRAPH = 0, 1, 2, 3, 4
CPU_DEVICE = -1


@dataclass(frozen=True, slots=True, eq=False)
class GpuOps:
    """Kernels, copies and fills, sorted by (start, end, device, stream); -1 stands for "not given".

    `name` indexes `Trace.names`; `kind` is KERNEL, MEMCPY, MEMSET, CPU_OPERATOR or GRAPH (a whole
    graph launch of which only the span is known); `launch` indexes `Trace.calls` (the host call
    that put the op on the device), -1 if that call is not in the trace. In a CPU capture the leaf
    operators stand here on device `CPU_DEVICE`, one stream for each thread.
    """

    start_ns: Int64s
    end_ns: Int64s
    name: Int32s
    device: Int64s
    stream: Int64s
    kind: Int8s
    correlation: Int64s
    external_id: Int64s
    graph_id: Int64s
    graph_node_id: Int64s
    launch: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class HostEvents:
    """Events of host threads, sorted by (start, longest first).

    Used for API calls (runtime and driver), CPU operators and ranges; `correlation` and
    `external_id` are -1 where the kind of event has none.
    """

    start_ns: Int64s
    end_ns: Int64s
    name: Int32s
    pid: Int64s
    tid: Int64s
    correlation: Int64s
    external_id: Int64s

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorWork:
    """What operators of known arithmetic (matrix products) had to move and compute, one row for
    each such operator call: bytes of inputs and outputs, each once, and FLOPs (a multiply-add
    counts as two). Sorted by `external_id`, which joins an operator with the GPU ops it launched.
    """

    external_id: Int64s
    bytes: Int64s
    flops: Int64s

    def __len__(self) -> int:
        return len(self.external_id)


def no_work() -> OperatorWork:
    """Of a trace that says nothing about its operators' shapes."""
    none = np.zeros(0, dtype=np.int64)
    return OperatorWork(none, none, none)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One recorded trace. `names` is sorted; every `name` column indexes it.

    `device_names` maps device ordinals to names, `capture` is what decodescope wrote about its own
    window (None for foreign files), `findings` what the reader had to leave out or repair.
    `reference` is what graph replays are attributed by, `work` what is known of operators, `rank`
    the place of the recorded process in its distributed run, where the file says it.
    """

    source: Source
    names: tuple[str, ...]
    device_names: dict[int, str]
    ops: GpuOps
    calls: HostEvents
    cpu_ops: HostEvents
    ranges: HostEvents
    findings: tuple[Finding, ...]
    capture: CaptureInfo | None
    base_ns: int
    reference: GraphReference | None = None
    work: OperatorWork = field(default_factory=no_work)
    rank: int | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether leaf operators of a CPU stand for GPU ops."""
        if self.capture is None or self.capture.device != "cpu":
            return False
        return bool((self.ops.kind == CPU_OPERATOR).all())
