"""Sorts typed events by what they are and turns each kind into columns."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.readers.kineto.event import Event, EventArgs, Id
from decodescope.analyzer.readers.kineto.microseconds import LIMIT_NS, to_nanoseconds
from decodescope.analyzer.readers.kineto.operator_work import WorkColumns
from decodescope.analyzer.trace import GRAPH, KERNEL, MEMCPY, MEMSET, GpuOps, HostEvents, Int64s

GPU_KINDS = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "gpu_graph": GRAPH,
}
CALL_CATEGORIES = (
    "cuda_runtime",
    "cuda_driver",
    "Runtime",
    "Driver",
    "hip_runtime",
    "hip_driver",
    "xpu_runtime",
    "xpu_driver",
    "privateuse1_runtime",
    "privateuse1_driver",
)
CPU_OP_CATEGORIES = ("cpu_op", "Operator")
RANGE_CATEGORIES = ("user_annotation",)
MODULE_PREFIX = "nn.Module: "
UNNAMED = "(unnamed)"
_NO_ARGS = EventArgs()
_NOT_GIVEN = -1


class _Numbers(dict[str | None, int]):
    """Gives each text that is asked for the next number."""

    def __missing__(self, text: str | None) -> int:
        if not text:
            return self[UNNAMED]
        self[text] = number = len(self)
        return number


class Names:
    """Interns strings in order of appearance."""

    def __init__(self) -> None:
        self._ids = _Numbers()

    def index(self, events: Sequence[Event]) -> Int64s:
        numbers = map(self._ids.__getitem__, [event.name for event in events])
        return np.fromiter(numbers, dtype=np.int64, count=len(events))

    def of_text(self, text: str) -> int:
        return self._ids[text]

    def texts(self) -> tuple[str, ...]:
        """In order of their index."""
        return tuple(text for text in self._ids if text)

    def sorted_table(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """The names in alphabetical order, and the new index of each old one."""
        table = tuple(sorted(self.texts()))
        moved = np.zeros(len(table), dtype=np.int32)
        for new, text in enumerate(table):
            moved[self._ids[text]] = new
        return table, moved


class ColumnGroup:
    """Columns of one kind of event, gathered batch by batch."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._parts: dict[str, list[Int64s]] = {name: [] for name in columns}

    def append(self, part: dict[str, Int64s]) -> None:
        for name in self._columns:
            self._parts[name].append(part[name])

    def column(self, name: str) -> Int64s:
        parts = self._parts[name]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def columns(self) -> dict[str, Int64s]:
        return {name: self.column(name) for name in self._columns}


_HOST_COLUMNS = HostEvents.__slots__
_GPU_COLUMNS = tuple(name for name in GpuOps.__slots__ if name != "launch")


class EventColumns:
    """Takes batches of events; afterwards `gpu`, `calls`, `cpu_ops`, `ranges` hold their columns,
    and `work` what is known of the operators' work.

    `dropped` counts events of those kinds without a usable time or duration, `overhead_events` and
    `overhead_ns` what the profiler says it cost, `events` everything seen, `open_ended` begin/end
    pairs, which Kineto does not write and which are not read.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.gpu = ColumnGroup(_GPU_COLUMNS)
        self.calls = ColumnGroup(_HOST_COLUMNS)
        self.cpu_ops = ColumnGroup(_HOST_COLUMNS)
        self.ranges = ColumnGroup(_HOST_COLUMNS)
        self.work = WorkColumns()
        self.events = 0
        self.with_phase = 0
        self.dropped = 0
        self.overhead_events = 0
        self.overhead_ns = 0
        self.open_ended = 0

    def add(self, batch: list[Event]) -> None:
        """Append one batch."""
        gpu: list[Event] = []
        calls: list[Event] = []
        cpu_ops: list[Event] = []
        ranges: list[Event] = []
        python: list[Event] = []
        overhead: list[Event] = []
        into: dict[str | None, Callable[[Event], None]] = {
            **dict.fromkeys(GPU_KINDS, gpu.append),
            **dict.fromkeys(CALL_CATEGORIES, calls.append),
            **dict.fromkeys(CPU_OP_CATEGORIES, cpu_ops.append),
            **dict.fromkeys(RANGE_CATEGORIES, ranges.append),
            "python_function": python.append,
            "overhead": overhead.append,
        }
        find = into.get
        without_phase = 0
        for event in batch:
            if event.ph == "X":
                keep = find(event.cat)
                if keep is not None:
                    keep(event)
            elif event.ph == "B" and event.cat in into:
                self.open_ended += 1
            elif not event.ph:
                without_phase += 1
        self.events += len(batch)
        self.with_phase += len(batch) - without_phase
        ranges += _modules(python)
        self._add_gpu(gpu)
        self._add_host(calls, self.calls)
        self._add_host(cpu_ops, self.cpu_ops, self.work)
        self._add_host(ranges, self.ranges)
        self._add_overhead(overhead)

    def _times(self, events: list[Event]) -> tuple[list[Event], Int64s, Int64s]:
        start_ns, start_usable = to_nanoseconds([event.ts for event in events])
        length_ns, length_usable = to_nanoseconds([event.dur for event in events])
        usable = start_usable & length_usable & (length_ns >= 0) & (length_ns <= LIMIT_NS)
        if not usable.all():
            self.dropped += int(np.count_nonzero(~usable))
            events = [event for event, keep in zip(events, usable, strict=True) if keep]
            start_ns, length_ns = start_ns[usable], length_ns[usable]
        return events, start_ns, start_ns + length_ns

    def _add_gpu(self, events: list[Event]) -> None:
        if not events:
            return
        events, start, end = self._times(events)
        args = [event.args or _NO_ARGS for event in events]
        device = [
            arg.device if arg.device is not None else event.pid
            for arg, event in zip(args, events, strict=True)
        ]
        stream = [
            arg.stream if arg.stream is not None else event.tid
            for arg, event in zip(args, events, strict=True)
        ]
        kinds = [GPU_KINDS[event.cat or ""] for event in events]
        self.gpu.append(
            {
                "start_ns": start,
                "end_ns": end,
                "name": self.names.index(events),
                "device": self._integers(device),
                "stream": self._integers(stream),
                "kind": np.array(kinds, dtype=np.int64),
                "correlation": self._integers([arg.correlation for arg in args]),
                "external_id": self._integers(_external_ids(args)),
                "graph_id": self._integers([arg.graph_id for arg in args]),
                "graph_node_id": self._integers([arg.graph_node_id for arg in args]),
            }
        )

    def _add_host(
        self, events: list[Event], group: ColumnGroup, work: WorkColumns | None = None
    ) -> None:
        if not events:
            return
        events, start, end = self._times(events)
        args = [event.args or _NO_ARGS for event in events]
        columns = {
            "start_ns": start,
            "end_ns": end,
            "name": self.names.index(events),
            "pid": self._integers([event.pid for event in events]),
            "tid": self._integers([event.tid for event in events]),
            "correlation": self._integers([arg.correlation for arg in args]),
            "external_id": self._integers(_external_ids(args)),
        }
        group.append(columns)
        if work is not None:
            work.add([event.name for event in events], args, columns)

    def _add_overhead(self, events: list[Event]) -> None:
        if not events:
            return
        dropped_before = self.dropped
        events, start, end = self._times(events)
        self.dropped = dropped_before
        self.overhead_events += len(events)
        self.overhead_ns += int((end - start).sum())

    def _integers(self, values: list[Id]) -> Int64s:
        try:
            return np.array([_NOT_GIVEN if v is None else v for v in values], dtype=np.int64)
        except (ValueError, TypeError, OverflowError):
            return np.array([self._integer(value) for value in values], dtype=np.int64)

    def _integer(self, value: Id) -> int:
        """An id as int64; text that is no number gets a negative id of its own."""
        if value is None:
            return _NOT_GIVEN
        try:
            number = int(value)
        except (ValueError, OverflowError):
            return -2 - self.names.of_text(str(value))
        return number if abs(number) < 2**62 else _NOT_GIVEN


def _modules(python: list[Event]) -> list[Event]:
    """Calls of modules as ranges, named as the module; other Python functions are left out."""
    modules = [event for event in python if event.name and event.name.startswith(MODULE_PREFIX)]
    for event in modules:
        event.name = (event.name or "").removeprefix(MODULE_PREFIX)
    return modules


def _external_ids(args: list[EventArgs]) -> list[Id]:
    return [arg.external_id if arg.external_id is not None else arg.old_external_id for arg in args]
