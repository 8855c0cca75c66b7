"""One trace in, all its figures out."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

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
from decodescope.analyzer.roofline.roofline import Costs, OpWork, op_work
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Health, Report, StepReport
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
    it. `model_basis` is what a report by another model follows from."""

    ranges: Ranges
    structure: Structure
    work: OpWork
    interruptions: tuple[Interruption, ...]
    median_step: int | None
    main_ops: Bools
    report: Report
    model_basis: "ModelBasis"

    def with_model(self, facts: Given) -> "Analysis":
        """The analysis by the model, its sizes and its weights in `facts`, as `analyze` would make
        it; captures, peak and rules must be those that it was made with."""
        basis = self.model_basis
        costs = find_costs(basis.median, facts)
        changed = _by_model(costs, basis.answer_of(costs), basis.health)
        return replace(self, report=msgspec.structs.replace(self.report, **changed))

    def op_waits(self) -> "OpWaits | None":
        """How long each op waited for other devices, None without two that communicate; computed
        anew by every call."""
        from decodescope.analyzer.reports.communication import waits_of

        return waits_of(self) if len(self.busy) > 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class ModelBasis:
    """The median step, its answer by costs, and the health without what is found of a model."""

    median: MedianStep
    answer_of: Callable[[Costs], Answer]
    health: Health


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
    shares = None
    if len(trace.ops):
        shares = op_shares(timeline, structure, window_of(timeline, step, interruptions))
    structured, layers = structure_reports(timeline, own_ranges, structure, step, shares)
    parts = () if shares is None else busy_parts(timeline, structure, shares)
    annotation = UNKNOWN if step is None else timeline.step_annotations[step]
    median = MedianStep(
        timeline, step, annotation, structure, work, shares, structured, layers, parts
    )
    costs = find_costs(median, facts)
    answer_of: Callable[[Costs], Answer] = _no_answer
    if shares is not None:
        answer_of = partial(
            find_answer,
            timeline,
            shares.window,
            parts,
            steps=0 if step is None else len(main_steps),
            annotation=annotation,
            host=host_frames(timeline, timed, interruptions),
            interruptions_ns=sum(interruption.length_ns for interruption in interruptions),
            launches=launches,
        )
    answer = answer_of(costs)
    trace_health = health(timeline, answer.profiler_ratio, reported_interruptions, ranges.tree.cut)
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        devices=device_reports(timeline),
        launches=launches,
        steps=_step_reports(timeline, interrupted_ns, timed),
        kernels=kernel_reports(timeline, work, main.ops),
        ranges=range_reports(timeline, ranges, main),
        capture=trace.capture,
        largest_gaps=largest_gaps(timeline, ranges),
        attribution=attribution(own_ranges, int((ranges.op_node != own_ranges.op_node).sum())),
        kernels_ranked_by="attributed_ns" if timeline.overlapping else "total_ns",
        step_kinds=step_kind_reports(timeline, interrupted_ns),
        structure=structured,
        layers=layers,
        interruptions=reported_interruptions,
        communication=_communication(timeline),
        main_steps=main_steps_report(timeline, main),
        **_by_model(costs, answer, trace_health),
    )
    return Analysis(
        **{column.name: getattr(timeline, column.name) for column in fields(timeline)},
        ranges=ranges,
        structure=structure,
        work=work,
        interruptions=interruptions,
        median_step=step,
        main_ops=main.ops,
        report=report,
        model_basis=ModelBasis(median, answer_of, trace_health),
    )


def _no_answer(costs: Costs) -> Answer:
    return Answer()


def _by_model(costs: Costs, answer: Answer, trace_health: Health) -> dict[str, Any]:
    """The fields of a report that depend on the model: its findings do not change the status."""
    findings = (*trace_health.findings, *costs.findings)
    trace_health = msgspec.structs.replace(trace_health, findings=findings)
    answer = _with_reservations(answer, trace_health)
    return {"answer": answer, "health": trace_health, "step_cost": costs.step}


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
