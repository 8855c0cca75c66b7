"""One trace in, all its figures out."""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from decodescope.analyzer.answer.answer import find_answer
from decodescope.analyzer.answer.host_frames import host_frames
from decodescope.analyzer.answer.parts import MedianStep, busy_parts, op_shares, window_of
from decodescope.analyzer.attribution.ranges import Ranges, attribution, find_ranges
from decodescope.analyzer.names.rules import bundled_rules
from decodescope.analyzer.reports.device_report import (
    device_reports,
    idle_by_name,
    interruption_reports,
    largest_gaps,
)
from decodescope.analyzer.reports.gap_list import REPORTED_GROUPS, grouped_gaps
from decodescope.analyzer.reports.health import health, why_no_answer
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, launch_report
from decodescope.analyzer.reports.main_steps import (
    find_main_steps,
    main_steps_report,
    step_kind_reports,
)
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.reports.structure_reports import find_costs, structure_reports
from decodescope.analyzer.reports.user_facts import NOTHING, Given
from decodescope.analyzer.roofline.roofline import OpWork, op_work
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION, GapGroup, Health, Report, StepReport
from decodescope.analyzer.structure.paths import with_inferred_paths
from decodescope.analyzer.structure.step_structure import Structure, find_structure
from decodescope.analyzer.timing.interruptions.find_interruptions import find_interruptions
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    interrupted_in_steps,
    median_step,
    timed_steps,
)
from decodescope.analyzer.timing.step_annotations import UNKNOWN
from decodescope.analyzer.timing.step_kinds import main_kind_steps
from decodescope.analyzer.timing.timeline import Timeline, find_timeline, step_idle_ns
from decodescope.analyzer.trace import Bools, Int64s, Trace

if TYPE_CHECKING:
    from decodescope.analyzer.collectives.waits import OpWaits


@dataclass(frozen=True, slots=True, eq=False)
class Analysis(Timeline):
    """A report, and the timeline, ranges, structure, work of each op and interruptions that it
    was built from, for views that draw time. `median_step` is the one with the median time,
    None if no step launched anything; `main_ops` says of each op whether the figures per step count
    it. `gap_groups` are those of all gaps, as `grouped_gaps` finds them."""

    ranges: Ranges
    structure: Structure
    work: OpWork
    interruptions: tuple[Interruption, ...]
    median_step: int | None
    main_ops: Bools
    gap_groups: tuple[tuple[GapGroup, ...], Int64s]
    report: Report

    def op_waits(self) -> "OpWaits | None":
        """How long each op waited for other devices, None without two that communicate; computed
        anew by every call."""
        from decodescope.analyzer.reports.communication import waits_of

        return waits_of(self) if len(self.busy) > 1 else None


def analyze(trace: Trace, facts: Given = NOTHING) -> Analysis:
    """Compute every figure of `Report`. Works for any trace, also one without GPU activity.

    Raises:
        InputError: one of the `facts` beside the trace is not what it should be.
    """
    timeline = _with_captures(find_timeline(trace), facts.captures)
    trace = timeline.trace
    own_ranges = find_ranges(timeline)
    structure = find_structure(timeline, facts.rules or bundled_rules())
    ranges = with_inferred_paths(timeline, own_ranges, structure)
    work = op_work(trace, ranges.reference_op, facts.peak)
    interruptions = find_interruptions(timeline)
    interrupted_ns = interrupted_in_steps(timeline.steps, interruptions)
    main_steps = main_kind_steps(timeline.steps, timeline.step_annotations)
    timed = timed_steps(timeline.steps, main_steps)
    step = median_step(timeline.steps, interrupted_ns, timed)
    main = find_main_steps(timeline, main_steps, interrupted_ns, interruptions)
    launches = launch_report(timeline, main.ops)
    reported_interruptions = interruption_reports(timeline, interruptions)
    median = _median(timeline, own_ranges, structure, work, step, interruptions)
    shares = median.shares
    costs = find_costs(median, facts)
    answer = Answer()
    if shares is not None:
        answer = find_answer(
            timeline,
            shares.window,
            median.parts,
            steps=0 if step is None else len(main_steps),
            annotation=median.annotation,
            costs=costs,
            host=host_frames(timeline, timed, interruptions),
            interruptions_ns=sum(interruption.length_ns for interruption in interruptions),
            launches=launches,
        )
    trace_health = health(
        timeline, answer.profiler_ratio, reported_interruptions, ranges.tree.cut, costs.findings
    )
    groups = grouped_gaps(timeline, np.arange(len(timeline.gaps)))
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        health=trace_health,
        devices=device_reports(timeline),
        launches=launches,
        steps=_step_reports(timeline, interrupted_ns, timed),
        kernels=kernel_reports(timeline, work, main.ops),
        ranges=range_reports(timeline, ranges, main),
        answer=_with_reservations(answer, trace_health),
        capture=trace.capture,
        largest_gaps=largest_gaps(timeline, ranges),
        gap_groups=groups[0][:REPORTED_GROUPS],
        gap_group_count=len(groups[0]),
        attribution=attribution(own_ranges, int((ranges.op_node != own_ranges.op_node).sum())),
        kernels_ranked_by="attributed_ns" if timeline.overlapping else "total_ns",
        step_kinds=step_kind_reports(timeline, interrupted_ns),
        structure=median.report,
        layers=median.layers,
        step_cost=costs.step,
        interruptions=reported_interruptions,
        communication=_communication(timeline),
        main_steps=main_steps_report(timeline, main),
    )
    return Analysis(
        **{column.name: getattr(timeline, column.name) for column in fields(timeline)},
        ranges=ranges,
        structure=structure,
        work=work,
        interruptions=interruptions,
        median_step=step,
        main_ops=main.ops,
        gap_groups=groups,
        report=report,
    )


def _median(
    timeline: Timeline,
    own_ranges: Ranges,
    structure: Structure,
    work: OpWork,
    step: int | None,
    interruptions: tuple[Interruption, ...],
) -> MedianStep:
    """What is known of the step that stands for the trace, before its costs."""
    shares = None
    if len(timeline.trace.ops):
        shares = op_shares(timeline, structure, window_of(timeline, step, interruptions))
    report, layers = structure_reports(timeline, own_ranges, structure, step, shares)
    parts = () if shares is None else busy_parts(timeline, structure, shares)
    annotation = UNKNOWN if step is None else timeline.step_annotations[step]
    return MedianStep(timeline, step, annotation, structure, work, shares, report, layers, parts)


def _with_reservations(answer: Answer, trace_health: Health) -> Answer:
    """The answer, after the reason why the trace does not show the time of decode steps."""
    because, advice = why_no_answer(trace_health)
    if not because:
        return answer
    return msgspec.structs.replace(answer, because=(*because, *answer.because), next=advice)


def _with_captures(timeline: Timeline, captures: tuple[Trace, ...]) -> Timeline:
    """The timeline of the trace with the captured graphs that it replays."""
    if not captures:
        return timeline
    # Few traces come with captures; the others do without this module.
    from decodescope.analyzer.attribution.capture_choice import choose_captures

    reference, findings = choose_captures(timeline, captures)
    findings = (*timeline.trace.findings, *findings)
    return replace(timeline, trace=replace(timeline.trace, reference=reference, findings=findings))


def _communication(timeline: Timeline) -> CommunicationReport | None:
    """Who waits for whom among the GPUs of the trace, None without several that communicate."""
    if len(timeline.busy) < 2:
        return None
    # Few traces have several GPUs; the others do without this module.
    from decodescope.analyzer.reports.communication import gpu_communication

    return gpu_communication(timeline)


def _step_reports(
    timeline: Timeline, interrupted_ns: Int64s, timed: Int64s
) -> tuple[StepReport, ...]:
    steps = timeline.steps
    times_ns = (steps.time_ns - interrupted_ns).tolist()
    timed_indices = set(timed.tolist())
    rows = zip(
        steps.host.length_ns.tolist(),
        steps.busy_ns.tolist(),
        steps.span.length_ns.tolist(),
        steps.gpu_ops.tolist(),
        steps.launch_calls.tolist(),
        step_idle_ns(timeline),
        strict=True,
    )
    return tuple(
        StepReport(
            index=index,
            name=timeline.step_name(index),
            host_ns=host_ns,
            gpu_span_ns=span_ns if gpu_ops else None,
            busy_ns=busy_ns,
            idle_ns=span_ns - busy_ns if gpu_ops else None,
            launch_calls=calls,
            gpu_ops=gpu_ops,
            gaps=idle_by_name(idle_ns),
            time_ns=times_ns[index] if gpu_ops else None,
            timed=index in timed_indices,
        )
        for index, (host_ns, busy_ns, span_ns, gpu_ops, calls, idle_ns) in enumerate(rows)
    )
