"""Decode steps: which ops each step launched, and how busy the device was.

Steps are read from host markers. Markers are (the first kind found wins) decodescope's own
`decode_step`, the profiler's `ProfilerStep#N`, and the step ranges that serving engines and scripts
write (`execute_context_…`, `step[DECODE …]`, `step 7`, `iteration_3`): see `step_annotations`. In a
trace without any, the Python frames of serving engines mark steps: see `frame_steps`. Without
these, steps are inferred from exact repetition: see `inferred_steps`. Either way, the ops of a step
are those that its calls launched. Without ops, the host alone tells how long they took.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from decodescope.analyzer.timing.intervals import Union, containing, covered_inside, merged
from decodescope.analyzer.timing.launches import LaunchCalls, launches_without_ops
from decodescope.analyzer.timing.step_annotations import MARKERS
from decodescope.analyzer.trace import Bools, HostTimes, Int64s, Intervals, Trace, grouped, rows_by

if TYPE_CHECKING:
    from decodescope.analyzer.timing.inferred_steps import FoundSteps, StepSource


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """One row for each step, in order of host start.

    `source` says what the steps were found by. `marker` indexes `Trace.ranges` ("markers") or
    `Trace.frames` ("frames"); it is -1 for an inferred step. `host` is the interval of the marker,
    to the end of the frames that belong to the step; of an inferred step, it is from the start of
    its first launch call to the end of its last one. `span` is the GPU span: the first start and
    last end of the ops that the step launched (both 0 if `gpu_ops` is 0). `device` is the one with
    most of them and `devices` lists all of them, `busy_ns` is the time inside the span in which any
    of these was busy. `following` is the next step with ops that the same thread marked (of
    inferred steps, the one that begins with the thread's next launch call), -1 for none: steps of
    several ranks or threads interleave. `op_step` gives each op of the trace its step, -1 for none.

    `time_ns` is how long the step took: from the start of its GPU span to that of `following`, so
    that the times of consecutive steps add up and contain the waiting between them. The last step,
    and one that `following` overtakes (it is then -1), takes as long as its GPU span; 0 without
    ops. In a trace without a single op, a step takes from its host start to that of `following`,
    the last one as long as `host`.
    """

    source: "StepSource"
    marker: Int64s
    host: Intervals
    following: Int64s
    device: Int64s
    devices: tuple[tuple[int, ...], ...]
    span: Intervals
    time_ns: Int64s
    busy_ns: Int64s
    gpu_ops: Int64s
    launch_calls: Int64s
    op_step: Int64s

    def __len__(self) -> int:
        return len(self.marker)


def find_steps(trace: Trace, unions: dict[int, Union], launches: LaunchCalls) -> Steps:
    """The steps of a trace; empty if it has no step markers and shows no repetition of steps."""
    without_ops = not len(trace.ops)
    if without_ops:
        launches = launches_without_ops(trace)
    marker = step_markers(trace)
    unmarked = None if len(marker) else _unmarked_steps(trace, unions, launches)
    if unmarked is not None:
        source, marker, host = unmarked.source, unmarked.marker, unmarked.host
        following, call_step = unmarked.following, unmarked.call_step
    else:
        source = "markers" if len(marker) else "none"
        host = Intervals(trace.ranges.start_ns[marker], trace.ranges.end_ns[marker])
        following = np.full(len(marker), -1, dtype=np.int64)
        for markers in grouped(marker, trace.ranges.pid, trace.ranges.tid):
            of_thread = np.searchsorted(marker, markers)
            following[of_thread[:-1]] = of_thread[1:]
        call_step = _step_at(trace, marker, trace.calls.starts)
    if trace.on_cpu:
        op_step = _step_at(trace, marker, trace.cpu_op_starts)
    else:
        op_step = np.append(call_step, -1)[trace.ops.launch]
    count, launching = len(host), call_step[launches.call]
    numbers, ops_on, span = _placed(trace, op_step, count)
    uses, gpu_ops = ops_on > 0, ops_on.sum(axis=1)
    devices = tuple(tuple(numbers[used].tolist()) for used in uses)
    if not without_ops:
        following = _next_on_device(following, uses, span)
    timed = host if without_ops else span
    until_next_ns = timed.start_ns[following] - timed.start_ns
    busy_ns = np.zeros(count, dtype=np.int64)
    for used, indices in by_devices(devices).items():
        busy = merged([unions[number] for number in used])
        busy_ns[indices] = covered_inside(busy, span.take(np.array(indices)))
    return Steps(
        source=source,
        marker=marker,
        host=host,
        following=following,
        device=np.where(gpu_ops > 0, numbers[ops_on.argmax(axis=1)], 0),
        devices=devices,
        span=span,
        time_ns=np.where(following >= 0, until_next_ns, timed.length_ns),
        busy_ns=busy_ns,
        gpu_ops=gpu_ops,
        launch_calls=np.bincount(launching[launching >= 0], minlength=count).astype(np.int64),
        op_step=op_step,
    )


def _unmarked_steps(
    trace: Trace, unions: dict[int, Union], launches: LaunchCalls
) -> "FoundSteps | None":
    if len(trace.frames) and not trace.on_cpu:
        from decodescope.analyzer.timing.frame_steps import find_frame_steps

        if (steps := find_frame_steps(trace, launches)) is not None:
            return steps
    from decodescope.analyzer.timing.inferred_steps import infer_steps

    return infer_steps(trace, unions, launches)


def _next_on_device(following: Int64s, uses: Bools, span: Intervals) -> Int64s:
    """The next step of each that runs on one of its devices and begins later, -1 for none."""
    after = following.copy()
    while (skipped := np.flatnonzero((after >= 0) & ~(uses & uses[after]).any(axis=1))).size:
        after[skipped] = following[after[skipped]]
    return np.where((after >= 0) & (span.start_ns[after] > span.start_ns), after, -1)


def by_devices(devices: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """The steps grouped by the devices that they used, without those that used none."""
    together: dict[tuple[int, ...], list[int]] = {}
    for index, used in enumerate(devices):
        if used:
            together.setdefault(used, []).append(index)
    return together


def step_markers(trace: Trace) -> Int64s:
    """Indices of the outermost ranges that mark steps, in order of start."""
    ranges, outermost = trace.ranges, []
    for pattern in MARKERS:
        ends_ns: dict[tuple[int, int], int] = {}
        for row in np.flatnonzero(trace.by_name(ranges.name, pattern.match)).tolist():
            thread = (int(ranges.pid[row]), int(ranges.tid[row]))
            if int(ranges.start_ns[row]) >= ends_ns.get(thread, -(2**62)):
                outermost.append(row)
                ends_ns[thread] = int(ranges.end_ns[row])
        if outermost:
            break
    return np.array(outermost, dtype=np.int64)


def _step_at(trace: Trace, marker: Int64s, times: HostTimes) -> Int64s:
    """The step whose marker contains each time, -1 for none.

    A marker counts for all threads of its process, unless two of them mark steps of their own at
    the same time; then each marker counts for its own thread only.
    """
    step = np.full(len(times.at_ns), -1, dtype=np.int64)
    times_of = rows_by(times.pid)
    for process, step_indices in rows_by(trace.ranges.pid[marker]).items():
        inside = times_of.get(process, marker[:0])
        markers = trace.ranges.take(marker[step_indices])
        if (markers.start_ns[1:] >= markers.end_ns[:-1]).all():
            marker_rows = containing(markers, times.at_ns[inside])
            step[inside] = np.append(step_indices, -1)[marker_rows]
            continue
        on_thread = rows_by(times.tid[inside])
        for thread, own in rows_by(markers.tid).items():
            rows = inside[on_thread.get(thread, marker[:0])]
            marker_rows = containing(markers.take(own), times.at_ns[rows])
            step[rows] = np.append(step_indices[own], -1)[marker_rows]
    return step


def _placed(trace: Trace, op_step: Int64s, count: int) -> tuple[Int64s, Int64s, Intervals]:
    """The devices of the trace and, so that there is one, a 0 behind them; how many ops each step
    ran on each of these: [steps, devices]; and the GPU span of each step."""
    devices, device = np.unique(trace.ops.device, return_inverse=True)
    devices = np.append(devices, 0)
    ops_on = np.zeros((count, len(devices)), dtype=np.int64)
    start, end = np.zeros((2, count), dtype=np.int64)
    rows = np.flatnonzero(op_step >= 0)
    np.add.at(ops_on, (op_step[rows], device[rows]), 1)
    for ops in grouped(rows, op_step):
        start[op_step[ops[0]]] = trace.ops.start_ns[ops].min()
        end[op_step[ops[0]]] = trace.ops.end_ns[ops].max()
    return devices, ops_on, Intervals(start, end)
