"""A trace as sorted columns: what a reader returns and what every analysis reads.

All times are integer nanoseconds on the trace's own clock; add `Trace.base_ns` for the wall clock.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.kernel_report import LaunchShape
from decodescope.analyzer.schema.report import CaptureInfo, Finding, Source

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]
Bools = NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET, CPU_OPERATOR, GRAPH = 0, 1, 2, 3, 4
CPU_DEVICE = -1


class Columns:
    """Base of the structures of arrays: every field is a column, every index a row."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    def __len__(self) -> int:
        return len(getattr(self, next(iter(self.__dataclass_fields__))))

    def take(self, rows: Int64s | Bools | slice) -> Self:
        columns = {name: getattr(self, name)[rows] for name in self.__dataclass_fields__}
        return type(self)(**columns)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after another; without parts, int64 columns of length 0."""
        columns: dict[str, NDArray[np.int64]] = {}
        for name in cls.__dataclass_fields__:
            arrays = [getattr(part, name) for part in parts]
            columns[name] = np.concatenate(arrays or [np.zeros(0, dtype=np.int64)])
        return cls(**columns)


def grouped(rows: Int64s, *keys: NDArray[np.integer]) -> Iterator[Int64s]:
    """The `rows` of each distinct key, in the order of the keys; `rows` index the keys' columns and
    keep their order within a key."""
    if not len(rows):
        return
    varying = [key for key in keys if (key[rows] != key[rows[0]]).any()]
    if not varying:
        yield rows
        return
    order = rows[np.lexsort([key[rows] for key in reversed(varying)])]
    changes = np.any([np.diff(key[order]) != 0 for key in varying], axis=0)
    yield from np.split(order, np.flatnonzero(changes) + 1)


def rows_in(column: NDArray[np.integer], values: NDArray[np.integer]) -> Int64s:
    """The first row of a sorted column that holds each value, -1 for none."""
    if not len(column):
        return np.full(len(values), -1, dtype=np.int64)
    row = np.minimum(np.searchsorted(column, values), len(column) - 1)
    return np.where(column[row] == values, row, -1)


def row_numbers(*columns: NDArray[np.integer]) -> Int64s:
    """A number from 0 for each row of the columns: equal rows share one, greater rows have a
    greater one."""
    order = np.lexsort(tuple(reversed(columns)))
    changes = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        ordered = column[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(changes)
    return numbers


def rows_by(key: NDArray[np.integer]) -> dict[int, Int64s]:
    """The rows of each value of `key`, in the order of the values."""
    return {int(key[rows[0]]): rows for rows in grouped(np.arange(len(key)), key)}


@dataclass(frozen=True, slots=True, eq=False)
class Intervals(Columns):
    """Intervals [start, end) in ns, one a row."""

    start_ns: Int64s
    end_ns: Int64s

    @property
    def length_ns(self) -> Int64s:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class GpuOps(Intervals):
    """Kernels, copies and fills, sorted by (start, end, device, stream); -1 means "not given".

    `name` indexes `Trace.names`, `shape` `Trace.shapes`; `kind` is KERNEL, MEMCPY, MEMSET,
    CPU_OPERATOR or GRAPH (a whole graph launch whose ops were not recorded); `launch` indexes
    `Trace.calls` (the host call that launched the op), -1 if that call is not in the trace. In a
    CPU capture, the leaf operators are the ops, on device `CPU_DEVICE`, with one stream per thread.
    """

    name: Int32s
    device: Int64s
    stream: Int64s
    kind: Int8s
    correlation: Int64s
    external_id: Int64s
    graph_id: Int64s
    graph_node_id: Int64s
    launch: Int64s
    shape: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class HostTimes(Columns):
    """Times on host threads, one a row."""

    at_ns: Int64s
    pid: Int64s
    tid: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class HostEvents(Intervals):
    """Events of host threads, sorted by (start, longest first).

    Used for API calls (runtime and driver), CPU operators, ranges and frames; `correlation` and
    `external_id` are -1 where an event has none.
    """

    name: Int32s
    pid: Int64s
    tid: Int64s
    correlation: Int64s
    external_id: Int64s

    @property
    def starts(self) -> HostTimes:
        """When and on which thread each event started."""
        return HostTimes(self.start_ns, self.pid, self.tid)

    def by_thread(self) -> Iterator[Int64s]:
        """The rows of each thread, in order."""
        return grouped(np.arange(len(self)), self.pid, self.tid)


@dataclass(frozen=True, slots=True, eq=False)
class OperatorWork(Columns):
    """The bytes and FLOPs of the operator calls whose arithmetic is known (matrix products).

    One row per call: bytes of inputs and outputs, each counted once, and FLOPs (a multiply-add
    counts as two). Sorted by `external_id`, which joins an operator with the GPU ops it launched.
    """

    external_id: Int64s
    bytes: Int64s
    flops: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class KernelTotals(Columns):
    """Kernels of a file that has no times: one row a kernel, with its runs and the sum of their
    durations; `name` indexes `Trace.names`."""

    name: Int32s
    count: Int64s
    total_ns: Int64s


@dataclass(frozen=True, slots=True)
class CollectiveMessage:
    """The message of one collective, as its kernel says: its name in the framework, the elements
    that a rank gives, their type (`BFloat16`), and the list of its ranks as text; "" and None where
    it does not say."""

    collective: str
    in_elements: int | None
    dtype: str
    group: str


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveMessages(Columns):
    """Which GPU ops say what they exchange: by start, device and stream, in this order; `message`
    indexes `Trace.message_table`."""

    start_ns: Int64s
    device: Int64s
    stream: Int64s
    message: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class CallKernels(Columns):
    """The kernels that host calls say they launch, as ROCm's profiler writes them, also for calls
    that a graph capture recorded.

    One row for each such call, sorted by `correlation`, which joins it; `name` indexes
    `Trace.names`. Calls that share an id have no row.
    """

    correlation: Int64s
    name: Int32s

    def of(self, calls: HostEvents) -> Int64s:
        """The kernel's name for each call, -1 if it does not say."""
        return np.append(self.name, -1)[rows_in(self.correlation, calls.correlation)]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One recorded trace. `names` is sorted; every `name` column indexes it.

    `device_names` maps device ordinals to names, `capture` is what decodescope wrote about its own
    window (None for other files), `findings` lists what the reader left out or repaired.
    `reference` attributes the ops of graph replays, `work` holds the operators' known work, `rank`
    is the rank of the recorded process in its distributed run, if the file names it. `shapes` holds
    the distinct launch shapes of its kernels, `messages` what its collectives exchange,
    `call_kernels` the kernels that calls name, `frames` the calls of Python functions
    (`path.py(12): name`), where the profiler recorded them. Merged ranks number their devices anew;
    `device_labels` holds what each is called. `overhead` holds the profiler's own pauses, where the
    file tells them; they belong to no thread. `totals` are all that a file without times has; it
    has no ops then.
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
    work: OperatorWork = field(default_factory=lambda: OperatorWork.concatenate(()))
    rank: int | None = None
    device_labels: dict[int, str] = field(default_factory=dict)
    shapes: tuple[LaunchShape, ...] = ()
    frames: HostEvents = field(default_factory=lambda: HostEvents.concatenate(()))
    overhead: HostEvents = field(default_factory=lambda: HostEvents.concatenate(()))
    call_kernels: CallKernels = field(default_factory=lambda: CallKernels.concatenate(()))
    messages: CollectiveMessages = field(default_factory=lambda: CollectiveMessages.concatenate(()))
    message_table: tuple[CollectiveMessage, ...] = ()
    totals: KernelTotals = field(default_factory=lambda: KernelTotals.concatenate(()))

    def by_name(self, name: Int32s, holds: Callable[[str], object]) -> Bools:
        """Whether `holds` is true of the name in each row of a `name` column; called once for each
        name."""
        table = np.zeros(len(self.names), dtype=np.bool_)
        for index in np.flatnonzero(np.bincount(name)).tolist():
            table[index] = bool(holds(self.names[index]))
        return np.asarray(table[name])

    def device_label(self, device: int) -> int | str:
        """A device in reports: its ordinal, "rank 1 GPU 3" or "rank 1 cpu" of merged ranks, or
        "cpu" if leaf operators are the ops."""
        if device == CPU_DEVICE and self.on_cpu:
            return "cpu"
        return self.device_labels.get(device, device)

    @property
    def on_cpu(self) -> bool:
        """Whether the leaf operators of a CPU capture are the ops."""
        if self.capture is None or self.capture.device != "cpu":
            return False
        return bool((self.ops.kind == CPU_OPERATOR).all())

    @property
    def kernel_kind(self) -> int:
        """The kind of op that counts as a kernel: CPU_OPERATOR in a CPU capture, else KERNEL."""
        return CPU_OPERATOR if self.on_cpu else KERNEL

    @property
    def cpu_op_starts(self) -> HostTimes:
        """When and on which thread each op of a CPU capture started. Devices of merged ranks are in
        the order of their processes; a process without operators is -1."""
        _, device = np.unique(self.ops.device, return_inverse=True)
        pids = np.append(np.unique(self.cpu_ops.pid), -1)
        pid = pids[np.minimum(device, len(pids) - 1)]
        return HostTimes(self.ops.start_ns, pid, self.ops.stream)
