"""The steps that every figure per step is of, and the rows of the kinds of steps.

These are the steps of the main kind that no interruption touches, or all of that kind if none is
left. A trace in which no step launched an op counts as a whole.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rules import communicates
from decodescope.analyzer.reports.device_report import totals_by_kind
from decodescope.analyzer.reports.distributions import percentiles, total_of
from decodescope.analyzer.schema.report import GAP_CLASSES, MainStepsReport
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.timing.attributed_time import begins_in_order
from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    timed_steps,
    without_interruptions,
)
from decodescope.analyzer.timing.intervals import (
    Union,
    covered_inside,
    intersections,
    lower_median,
    union,
)
from decodescope.analyzer.timing.step_kinds import steps_with_ops
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import MEMCPY, MEMSET, Bools, GpuOps, Int64s, Intervals, rows_by


@dataclass(frozen=True, slots=True, eq=False)
class MainSteps:
    """`steps` are their indices, empty for a whole trace; `ops` says of each op of the trace
    whether one of them launched it. `busy_ns`, `communication_ns` of it and `idle` (the parts of
    gaps) are the time of their devices in them, without interruptions."""

    steps: Int64s
    ops: Bools
    busy_ns: int
    communication_ns: int
    idle: GapParts


def find_main_steps(
    timeline: Timeline,
    main_kind_indices: Int64s,
    interrupted_ns: Int64s,
    interruptions: Sequence[Interruption],
) -> MainSteps:
    """The uninterrupted ones of the steps `main_kind_indices`."""
    steps = timeline.steps
    chosen = main_kind_indices[steps.gpu_ops[main_kind_indices] > 0]
    clean = chosen[interrupted_ns[chosen] == 0]
    chosen = clean if len(clean) else chosen
    is_main = np.zeros(len(steps) + 1, dtype=np.bool_)
    is_main[chosen] = True
    ops = is_main[steps.op_step] if len(chosen) else np.ones(len(steps.op_step), dtype=np.bool_)
    talks = timeline.trace.by_name(timeline.trace.ops.name, communicates)
    busy_ns, communication_ns, idle = 0, 0, [timeline.parts.take(slice(0))]
    for device, op_rows in rows_by(timeline.trace.ops.device).items():
        busy = timeline.busy[device]
        start_ns, end_ns = int(busy.start_ns[0]), int(busy.end_ns[-1])
        times = without_interruptions(interruptions, (device,), start_ns, end_ns)
        if len(chosen):
            times = intersections(times_on(timeline, op_rows, chosen), times)[2]
        busy_ns += int(covered_inside(busy, times).sum())
        if talks[op_rows].any():
            talking = _talking(timeline.trace.ops.take(op_rows), talks[op_rows])
            communication_ns += int(covered_inside(talking, times).sum())
        parts = timeline.parts.of_gaps(*timeline.gaps_of(device))
        row, _, inside = intersections(parts, times)
        idle.append(GapParts(inside.start_ns, inside.end_ns, parts.gap[row], parts.kind[row]))
    return MainSteps(chosen, ops, busy_ns, communication_ns, GapParts.concatenate(idle))


def _talking(ops: GpuOps, talks: Bools) -> Union:
    """The times of the ops of one device that communicate. An op begins when those before it on its
    stream have ended."""
    begin_ns, end_ns = begins_in_order(ops, ops.stream)[talks], ops.end_ns[talks]
    order = np.argsort(begin_ns, kind="stable")
    return union(begin_ns[order], end_ns[order])


def times_on(timeline: Timeline, op_rows: Int64s, chosen: Int64s) -> Intervals:
    """The times of the steps `chosen` on the device of `op_rows`, joined: from the first op of each
    to the first one of the step that follows it, or else to its last one."""
    ops, steps = timeline.trace.ops.take(op_rows), timeline.steps
    begin_ns, end_ns = np.full((2, len(steps) + 1), np.iinfo(np.int64).min)
    step = steps.op_step[op_rows]
    np.maximum.at(end_ns, step, ops.end_ns)
    launching, first = np.unique(step, return_index=True)
    begin_ns[launching] = ops.start_ns[first]
    # The last place, which -1 is, stands for no step.
    begin_ns[-1] = np.iinfo(np.int64).min
    until_ns = begin_ns[steps.following]
    present = chosen[np.isin(chosen, launching)]
    present = present[np.argsort(begin_ns[present], kind="stable")]
    begin_ns, until_ns, end_ns = begin_ns[present], until_ns[present], end_ns[present]
    return union(begin_ns, np.where(until_ns > begin_ns, until_ns, end_ns))


def main_steps_report(timeline: Timeline, main: MainSteps) -> MainStepsReport:
    """The figures of the main steps together, and of the ops outside of them."""
    kind, attributed_ns = timeline.trace.ops.kind, timeline.attributed_ns
    idle, kernels = main.idle, kind == timeline.trace.kernel_kind
    copies = (kind == MEMCPY) | (kind == MEMSET)
    gap_ns = np.zeros(len(timeline.gaps), dtype=np.int64)
    np.add.at(gap_ns, idle.gap, idle.length_ns)

    def attributed(chosen: Bools) -> int:
        return int(attributed_ns[chosen].sum())

    return MainStepsReport(
        steps=len(main.steps),
        busy_ns=main.busy_ns,
        communication_ns=main.communication_ns,
        all_gaps=total_of(gap_ns[gap_ns > 0]),
        gaps={
            name: total for name, total in totals_by_kind(idle, GAP_CLASSES).items() if total.count
        },
        gpu_ops=int(np.count_nonzero(main.ops)),
        launch_calls=int(np.count_nonzero(main.ops[timeline.launches.first_op])),
        kernels_attributed_ns=attributed(main.ops & kernels),
        copies_attributed_ns=attributed(main.ops & copies),
        graphs_attributed_ns=attributed(main.ops & ~kernels & ~copies),
        outside_ops=int(np.count_nonzero(~main.ops)),
        outside_attributed_ns=attributed(~main.ops),
    )


def step_kind_reports(timeline: Timeline, interrupted_ns: Int64s) -> tuple[StepKindReport, ...]:
    """One row for each kind, batch and sort of the steps with ops, most steps first."""
    steps, annotations = timeline.steps, timeline.step_annotations
    rows: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for index in steps_with_ops(steps).tolist():
        annotation = annotations[index]
        batch = -1 if annotation.batch is None else annotation.batch
        rows[annotation.kind, batch, annotation.sort].append(index)
    attributed_ns = np.zeros(len(steps) + 1, dtype=np.int64)
    np.add.at(attributed_ns, steps.op_step, timeline.attributed_ns)
    reports = []
    for _, step_indices in sorted(rows.items(), key=lambda row: (-len(row[1]), row[0])):
        indices = np.array(step_indices)
        of_kind = [annotations[index] for index in step_indices]
        timed = timed_steps(steps, indices)
        times = percentiles((steps.time_ns - interrupted_ns)[timed])
        reports.append(
            StepKindReport(
                kind=of_kind[0].kind,
                steps=len(indices),
                batch=of_kind[0].batch,
                kv_tokens=_known_median(annotation.kv_tokens for annotation in of_kind),
                query_tokens=_known_median(annotation.query_tokens for annotation in of_kind),
                median_ns=times.p50 if times else None,
                min_ns=times.min if times else None,
                p99_ns=times.p99 if times else None,
                gpu_ops=int(steps.gpu_ops[indices].sum()),
                attributed_ns=int(attributed_ns[indices].sum()),
            )
        )
    return tuple(reports)


def _known_median(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return lower_median(np.array(known)) if known else None
