"""Sorts typed events by category and turns each category into columns."""

from collections.abc import Callable

import numpy as np

from decodescope.analyzer.readers.columns import LIMIT_NS, NOT_GIVEN, Names
from decodescope.analyzer.readers.kineto.event import Event, EventArgs, Id
from decodescope.analyzer.readers.kineto.microseconds import to_nanoseconds
from decodescope.analyzer.readers.kineto.operator_work import WorkColumns
from decodescope.analyzer.trace import GRAPH, KERNEL, MEMCPY, MEMSET, GpuOps, HostEvents, Int64s

_GPU_KINDS = {
    **dict.fromkeys(("kernel", "Kernel", "concurrent_kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset"), MEMSET),
    "gpu_graph": GRAPH,
}
_CALL_CATEGORIES = (
    *("cuda_runtime", "cuda_driver", "Runtime", "Driver", "hip_runtime", "hip_driver"),
    *("xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"),
)
_CPU_OP_CATEGORIES = ("cpu_op", "Operator")
_RANGE_CATEGORIES = ("user_annotation",)
_MODULE_PREFIX = "nn.Module: "
_NO_ARGS = EventArgs()


class EventColumns:
    """Takes batches of events; afterwards `gpu`, `calls`, `cpu_ops` and `ranges` hold their columns
    in parts, and `work` the operators' known work.

    `events` counts all events, `with_phase` those with a phase, `dropped` those of the categories
    above without a usable time or duration, `overhead_events` and `overhead_ns` the profiler's own
    pauses, `open_ended` begin/end pairs, which Kineto does not write and which are not read.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.gpu: list[GpuOps] = []
        self.calls: list[HostEvents] = []
        self.cpu_ops: list[HostEvents] = []
        self.ranges: list[HostEvents] = []
        self.work = WorkColumns()
        self.events = 0
        self.with_phase = 0
        self.dropped = 0
        self.overhead_events = 0
        self.overhead_ns = 0
        self.open_ended = 0

    def add(self, batch: list[Event]) -> None:
        """Append one batch."""
        gpu, calls, cpu_ops, ranges, python, overhead = (list[Event]() for _ in range(6))
        into: dict[str | None, Callable[[Event], None]] = {
            **dict.fromkeys(_GPU_KINDS, gpu.append),
            **dict.fromkeys(_CALL_CATEGORIES, calls.append),
            **dict.fromkeys(_CPU_OP_CATEGORIES, cpu_ops.append),
            **dict.fromkeys(_RANGE_CATEGORIES, ranges.append),
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
        events, start, end = self._times(events)
        args = [event.args or _NO_ARGS for event in events]
        device = _given([arg.device for arg in args], [event.pid for event in events])
        stream = _given([arg.stream for arg in args], [event.tid for event in events])
        kinds = [_GPU_KINDS[event.cat or ""] for event in events]
        self.gpu.append(
            GpuOps(
                start_ns=start,
                end_ns=end,
                name=self.names.index([event.name for event in events]),
                device=self._integers(device),
                stream=self._integers(stream),
                kind=np.array(kinds, dtype=np.int8),
                correlation=self._integers([arg.correlation for arg in args]),
                external_id=self._integers(_external_ids(args)),
                graph_id=self._integers([arg.graph_id for arg in args]),
                graph_node_id=self._integers([arg.graph_node_id for arg in args]),
                launch=np.full(len(events), NOT_GIVEN, dtype=np.int64),
            )
        )

    def _add_host(
        self, events: list[Event], group: list[HostEvents], work: WorkColumns | None = None
    ) -> None:
        events, start, end = self._times(events)
        args = [event.args or _NO_ARGS for event in events]
        names = [event.name for event in events]
        part = HostEvents(
            start_ns=start,
            end_ns=end,
            name=self.names.index(names),
            pid=self._integers([event.pid for event in events]),
            tid=self._integers([event.tid for event in events]),
            correlation=self._integers([arg.correlation for arg in args]),
            external_id=self._integers(_external_ids(args)),
        )
        group.append(part)
        if work is not None:
            work.add(names, args, part)

    def _add_overhead(self, events: list[Event]) -> None:
        dropped_before = self.dropped
        events, start, end = self._times(events)
        self.dropped = dropped_before
        self.overhead_events += len(events)
        self.overhead_ns += int((end - start).sum())

    def _integers(self, values: list[Id]) -> Int64s:
        try:
            return np.array([NOT_GIVEN if v is None else v for v in values], dtype=np.int64)
        except (ValueError, TypeError, OverflowError):
            return np.array([self._integer(value) for value in values], dtype=np.int64)

    def _integer(self, value: Id) -> int:
        """An id as int64; text that is not a number gets a negative id of its own."""
        if value is None:
            return NOT_GIVEN
        try:
            number = int(value)
        except (ValueError, OverflowError):
            return -2 - self.names.of_text(str(value))
        return number if abs(number) < 2**62 else NOT_GIVEN


def _modules(python: list[Event]) -> list[Event]:
    """Calls of modules as ranges named like the module; other Python functions are ignored."""
    modules = [event for event in python if event.name and event.name.startswith(_MODULE_PREFIX)]
    for event in modules:
        event.name = (event.name or "").removeprefix(_MODULE_PREFIX)
    return modules


def _external_ids(args: list[EventArgs]) -> list[Id]:
    return _given([arg.external_id for arg in args], [arg.old_external_id for arg in args])


def _given(ids: list[Id], replacements: list[Id]) -> list[Id]:
    """The ids, with the replacement of each one that is missing."""
    return [other if one is None else one for one, other in zip(ids, replacements, strict=True)]
