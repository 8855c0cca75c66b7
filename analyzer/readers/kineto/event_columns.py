"""Sorts typed events by category and turns each category into columns."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from decodescope.analyzer.readers.kineto.begin_end import BeginEnd
from decodescope.analyzer.readers.kineto.event import Event, EventArgs, Id, to_nanoseconds
from decodescope.analyzer.readers.kineto.event_arguments import (
    AnnotationColumn,
    KernelColumn,
    MessageRows,
    ShapeColumn,
)
from decodescope.analyzer.readers.kineto.operator_work import WorkColumns
from decodescope.analyzer.readers.trace_columns import NOT_GIVEN, Growing, Names, host_events
from decodescope.analyzer.trace import GRAPH, KERNEL, MEMCPY, MEMSET, GpuOps, HostEvents, Int64s

_GPU_KINDS = {
    **dict.fromkeys(("kernel", "Kernel", "concurrent_kernel"), KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), MEMCPY),
    **dict.fromkeys(("gpu_memset", "Memset"), MEMSET),
    "gpu_graph": GRAPH,
}
_PLATFORMS = ("cuda", "hip", "xpu", "privateuse1")
_CALL_CATEGORIES = (
    *("Runtime", "Driver"),
    *(f"{platform}_{api}" for platform in _PLATFORMS for api in ("runtime", "driver")),
)
# What events of a category become; other categories have no group.
_GROUP_OF: dict[str | None, str] = {
    **dict.fromkeys(_GPU_KINDS, "gpu"),
    **dict.fromkeys(_CALL_CATEGORIES, "calls"),
    **dict.fromkeys(("cpu_op", "Operator"), "cpu_ops"),
    "user_annotation": "ranges",
    "python_function": "frames",
    "overhead": "overhead",
}
_HOST_GROUPS = ("calls", "cpu_ops", "ranges", "frames", "overhead")
_Groups = dict[str, list[Event]]
# Categories whose meaning is known, and which no figure needs.
_UNUSED_CATEGORIES = frozenset(
    (
        "gpu_user_annotation",
        "cuda_sync",
        "cuda_event",
        "external_correlation",
        "Trace",
        # Those of our own exports.
        "model_range",
        "inferred_range",
        "gap",
        "interruption",
        "collective_wait",
    )
)
_NO_CATEGORY = "(no category)"
_MODULE_PREFIX = "nn.Module: "
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0*")
# Frames of built-in methods name the object, each time another one.
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")
_NO_ARGS = EventArgs()
# CUPTI numbers a node `graph id << 32 | number`; some versions of torch write the number alone.
_FIRST_PACKED = 1 << 32
_ZERO = msgspec.Raw(b"0")
_MARKS = frozenset("BE")


class EventColumns:
    """Takes batches of events; after `pairs.finish`, `gpu` and `host` (by group: calls, operators,
    ranges, Python's frames and the profiler's own pauses) hold their columns, `work` the operators'
    known work, `kernels` the kernels that calls name, `annotations` those of graph nodes, and
    `messages` what collectives exchange.

    `events` counts all events, `with_phase` those with a phase, `timed` those that last some time,
    `dropped` those without a usable time or duration, `unknown` the timed ones whose category is
    not understood, `phases` the first events by phase, until one is timed. `pairs` counts the
    halves of events that begin and end on their own.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.shapes = ShapeColumn()
        self.gpu = Growing(GpuOps)
        self.host = {name: Growing(HostEvents) for name in _HOST_GROUPS}
        self.work = WorkColumns()
        self.kernels = KernelColumn(self.names)
        self.annotations = AnnotationColumn()
        self.messages = MessageRows()
        self.pairs = BeginEnd()
        self.events = 0
        self.with_phase = 0
        self.timed = 0
        self.dropped = 0
        self.unknown: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()

    def add(self, batch: list[Event]) -> None:
        groups = _no_events()
        find = {category: groups[name].append for category, name in _GROUP_OF.items()}.get
        outside: list[str | None] = []
        marks: list[Event] = []
        without_phase = 0
        for event in batch:
            phase = event.ph
            if phase == "X":
                keep = find(event.cat)
                if keep is not None:
                    keep(event)
                else:
                    outside.append(event.cat)
            elif phase in _MARKS:
                marks.append(event)
            elif phase == "b":
                outside.append(f"{event.cat or _NO_CATEGORY} (asynchronous)")
            elif not phase:
                without_phase += 1
        self.events += len(batch)
        self.with_phase += len(batch) - without_phase
        self._count(groups, outside)
        if not self.timed:
            self.phases.update(event.ph for event in batch)
        self._add_groups(groups)
        if marks:
            self._add_marks(marks)

    def _count(self, groups: _Groups, outside: list[str | None]) -> None:
        self.timed += len(outside) + sum(map(len, groups.values()))
        for category, number in Counter(outside).items():
            if category not in _UNUSED_CATEGORIES:
                self.unknown[category or _NO_CATEGORY] += number

    def _add_groups(self, groups: _Groups) -> None:
        modules, groups["frames"] = _modules_apart(groups["frames"])
        groups["ranges"] += modules
        if groups["gpu"]:
            self._add_gpu(groups["gpu"])
        for name in _HOST_GROUPS:
            if groups[name]:
                self._add_host(name, groups[name])

    def _add_marks(self, marks: list[Event]) -> None:
        """Begun events get columns of their own, and their ends when all marks are known."""
        at_ns, usable = to_nanoseconds([mark.ts for mark in marks])
        if not usable.all():
            self.dropped += int(np.count_nonzero(~usable))
            marks = [mark for mark, keep in zip(marks, usable, strict=True) if keep]
            at_ns = at_ns[usable]
        pid = self._integers([mark.pid for mark in marks])
        tid = self._integers([mark.tid for mark in marks])
        first = self.pairs.add(marks, at_ns, pid, tid)
        groups, outside = _no_events(), list[str | None]()
        places = dict[int, int]()
        for place, mark in enumerate(marks, first):
            if mark.ph == "B":
                mark.dur = _ZERO
                places[id(mark)] = place
                if mark.cat in _GROUP_OF:
                    groups[_GROUP_OF[mark.cat]].append(mark)
                else:
                    outside.append(mark.cat)
        self._count(groups, outside)
        self._add_groups(groups)
        for name, events in groups.items():
            if events:
                group: Growing[Any] = self.gpu if name == "gpu" else self.host[name]
                self.pairs.began(group, [places[id(event)] for event in events])

    def _times(self, events: list[Event]) -> tuple[list[Event], Int64s, Int64s]:
        literals = [event.ts for event in events]
        literals += [event.dur for event in events]
        times_ns, is_number = to_nanoseconds(literals)
        start_ns, length_ns = times_ns.reshape(2, -1)
        usable = is_number.reshape(2, -1).all(axis=0) & (length_ns >= 0)
        if not usable.all():
            self.dropped += int(np.count_nonzero(~usable))
            events = [event for event, keep in zip(events, usable, strict=True) if keep]
            start_ns, length_ns = start_ns[usable], length_ns[usable]
        return events, start_ns, start_ns + length_ns

    def _add_gpu(self, events: list[Event]) -> None:
        events, start, end = self._times(events)
        args = [event.args or _NO_ARGS for event in events]
        pairs = list(zip(args, events, strict=True))
        device = [event.pid if arg.device is None else arg.device for arg, event in pairs]
        stream = [event.tid if arg.stream is None else arg.stream for arg, event in pairs]
        kinds = [_GPU_KINDS[event.cat or ""] for event in events]
        graph_id = self._integers([arg.graph_id for arg in args])
        nodes = self._integers([arg.graph_node_id for arg in args])
        names = [event.name for event in events]
        node_id = _packed_nodes(graph_id, nodes)
        self.annotations.add(names, args, node_id)
        part = GpuOps(
            start_ns=start,
            end_ns=end,
            name=self.names.index(names),
            device=self._integers(device),
            stream=self._integers(stream),
            kind=np.array(kinds, dtype=np.int8),
            correlation=self._integers([arg.correlation for arg in args]),
            external_id=self._external_ids(args),
            graph_id=graph_id,
            graph_node_id=node_id,
            launch=np.full(len(events), NOT_GIVEN, dtype=np.int64),
            shape=self.shapes.index(args),
        )
        self.gpu.append(part)
        self.messages.add(args, part)

    def _add_host(self, group: str, events: list[Event]) -> None:
        dropped = self.dropped
        events, start, end = self._times(events)
        if group == "overhead":
            self.dropped = dropped
        names = [event.name for event in events]
        if group == "frames":
            names = [
                _ADDRESS.sub("", name) if name and " at 0x" in name else name for name in names
            ]
        part = host_events(
            start_ns=start,
            end_ns=end,
            name=self.names.index(names),
            pid=self._integers([event.pid for event in events]),
            tid=self._integers([event.tid for event in events]),
        )
        if group != "frames":
            args = [event.args or _NO_ARGS for event in events]
            correlation = self._integers([arg.correlation for arg in args])
            part = replace(part, correlation=correlation, external_id=self._external_ids(args))
        self.host[group].append(part)
        if group == "cpu_ops":
            self.work.add(names, args, part)
        elif group == "calls":
            self.kernels.add(args, part)

    def _external_ids(self, args: list[EventArgs]) -> Int64s:
        ids = self._integers([arg.external_id for arg in args])
        missing = ids == NOT_GIVEN
        if missing.any():
            ids[missing] = self._integers([arg.old_external_id for arg in args])[missing]
        return ids

    def _integers(self, values: list[Id]) -> Int64s:
        try:
            return np.fromiter(values, dtype=np.int64, count=len(values))
        except (ValueError, TypeError, OverflowError):
            return np.array([self._integer(value) for value in values], dtype=np.int64)

    def _integer(self, value: Id) -> int:
        """An id as int64; text that is not a number gets a negative id of its own."""
        if value is None:
            return NOT_GIVEN
        try:
            number = int(value)
        except (ValueError, OverflowError):
            # Tables that a program read and wrote again have 2.0 for 2.
            if (whole := _WHOLE.fullmatch(str(value))) is None:
                return -2 - self.names[str(value)]
            number = int(whole[1])
        return number if abs(number) < 2**62 else NOT_GIVEN


def _no_events() -> _Groups:
    return {name: [] for name in _GROUP_OF.values()}


def _packed_nodes(graph_id: Int64s, node: Int64s) -> Int64s:
    """`graph id << 32 | number` of each node, also where the number is given alone."""
    alone = (node >= 0) & (node < _FIRST_PACKED) & (graph_id > 0) & (graph_id < _FIRST_PACKED >> 1)
    return np.where(alone, graph_id << 32 | node, node)


def _modules_apart(functions: list[Event]) -> tuple[list[Event], list[Event]]:
    """The calls of modules, as ranges named like the module, and the frames of other functions."""
    modules: list[Event] = []
    frames: list[Event] = []
    for event in functions:
        is_module = event.name is not None and event.name.startswith(_MODULE_PREFIX)
        (modules if is_module else frames).append(event)
    for event in modules:
        event.name = (event.name or "").removeprefix(_MODULE_PREFIX)
    return modules, frames
