"""The events of one trace over time, computed once: the columns that every report is built from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rules import FAMILIES, kernel_meaning
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.attributed_time import attributed_of_device
from decodescope.analyzer.timing.gaps import (
    Floors,
    GapParts,
    Gaps,
    busy_by_device,
    cut_gaps,
    find_gaps,
    find_host_waits,
)
from decodescope.analyzer.timing.intervals import Union, covered_inside, merged
from decodescope.analyzer.timing.launches import LaunchCalls, find_launch_calls
from decodescope.analyzer.timing.step_annotations import StepAnnotation
from decodescope.analyzer.timing.step_kinds import kinds_of
from decodescope.analyzer.timing.steps import Steps, by_devices, find_steps
from decodescope.analyzer.trace import (
    MEMCPY,
    MEMSET,
    GpuOps,
    Int8s,
    Int64s,
    Intervals,
    Trace,
    rows_by,
)

OVERLAP_SHARE = 0.02

_NUMBER = {family: number for number, family in enumerate(FAMILIES)}


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A trace with the busy intervals of each device (by device number), each op's attributed time,
    its launch calls, the gaps of all devices with their parts and the pieces of their host_wait
    parts, each device's kernel floor (None if unknown), its steps, and the known facts of each.

    `attributed_time` explains the attributed time of an op; those of a device add up to its busy
    time.
    """

    trace: Trace
    busy: dict[int, Union]
    attributed_ns: Int64s
    launches: LaunchCalls
    gaps: Gaps
    parts: GapParts
    host_waits: GapParts
    floors_ns: Floors
    steps: Steps
    step_annotations: tuple[StepAnnotation, ...]

    @property
    def overlapping(self) -> bool:
        """Whether durations mislead: (their sum - busy) / busy is over `OVERLAP_SHARE`, all devices
        together. Kernels are then shown and ranked by attributed time."""
        busy_ns = sum(busy.busy_ns for busy in self.busy.values())
        durations_ns = self.trace.ops.length_ns.sum(dtype=np.float64)
        return bool(durations_ns - busy_ns > OVERLAP_SHARE * busy_ns)

    def gaps_of(self, device: int) -> tuple[int, int]:
        """The rows [first, after) of a device's gaps."""
        first, after = np.searchsorted(self.gaps.device, (device, device + 1)).tolist()
        return first, after

    def idle_of(self, devices: tuple[int, ...]) -> GapParts:
        """The parts of the intervals in which none of `devices` was busy; on one device, the parts
        of its gaps."""
        if len(devices) == 1:
            return self.parts.of_gaps(*self.gaps_of(devices[0]))
        gaps = find_gaps(self.trace, (merged([self.busy[device] for device in devices]),))
        return cut_gaps(self.trace, gaps, self.launches, self.floors_ns)[0]

    def step_name(self, index: int) -> str:
        """The name of a step's marker (of a frame: its function), "step" for an inferred one."""
        marker = int(self.steps.marker[index])
        if marker < 0:
            return "step"
        if self.steps.source == "frames":
            return self.trace.names[int(self.trace.frames.name[marker])].rpartition(": ")[2]
        return self.trace.names[int(self.trace.ranges.name[marker])]


def find_timeline(trace: Trace) -> Timeline:
    """The timeline of any trace, also of one without GPU activity."""
    busy = busy_by_device(trace)
    launches = find_launch_calls(trace)
    gaps = find_gaps(trace, busy.values())
    parts, floors_ns = cut_gaps(trace, gaps, launches)
    op_attributed_ns = np.zeros(len(trace.ops), dtype=np.int64)
    for op_rows in rows_by(trace.ops.device).values():
        op_attributed_ns[op_rows] = attributed_of_device(trace, op_rows)
    steps = find_steps(trace, busy, launches)
    return Timeline(
        trace=trace,
        busy=busy,
        attributed_ns=op_attributed_ns,
        launches=launches,
        gaps=gaps,
        parts=parts,
        host_waits=find_host_waits(trace, gaps, parts),
        floors_ns=floors_ns,
        steps=steps,
        step_annotations=kinds_of(trace, steps),
    )


def step_idle_ns(timeline: Timeline) -> Int64s:
    """Idle ns inside each step's GPU span: int64 [steps, classes], classes as in `GAP_CLASSES`.

    A step is idle while none of the devices that it used is busy. On one device these are the
    device's gaps; on several, their common gaps, each cut by the launch call of the op that ends it
    (see `gaps`). Either way the classes add up to the step's idle time; 0 for a step without ops.
    """
    steps = timeline.steps
    idle_ns = np.zeros((len(steps), len(GAP_CLASSES)), dtype=np.int64)
    for devices, indices in by_devices(steps.devices).items():
        spans = steps.span.take(np.array(indices))
        idle_ns[indices] = idle_inside(timeline.idle_of(devices), spans)
    return idle_ns


def idle_inside(parts: GapParts, spans: Intervals, kinds: int = len(GAP_CLASSES)) -> Int64s:
    """Time of the parts (of one union, in order) inside each span: int64 [spans, kinds]."""
    inside_ns = np.zeros((len(spans), kinds), dtype=np.int64)
    for kind in np.flatnonzero(np.bincount(parts.kind)).tolist():
        inside_ns[:, kind] = covered_inside(parts.take(parts.kind == kind), spans)
    return inside_ns


def families_of(names: Sequence[str], ops: GpuOps) -> Int8s:
    """The family of each op, an index in `FAMILIES`: int8 [ops]. Copies and fills of the driver are
    copies whatever their names say, unless these say that they communicate."""
    used, place = np.unique(ops.name, return_inverse=True)
    of_name = [_NUMBER[kernel_meaning(names[name]).family] for name in used]
    families = np.array(of_name, dtype=np.int8)[place]
    local = np.isin(ops.kind, (MEMCPY, MEMSET)) & (families != _NUMBER["communication"])
    families[local] = _NUMBER["copy"]
    return families
