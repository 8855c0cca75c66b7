"""One trace in, all its figures out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from decodescope.analyzer.answer.answer import answer_without_ops, find_answer, step_limit
from decodescope.analyzer.answer.host_frames import host_frames
from decodescope.analyzer.answer.parts import (
    FoundTrace,
    MedianStep,
    busy_parts,
    op_shares,
    window_of,
)
from decodescope.analyzer.attribution.ranges import attribution, find_ranges
from decodescope.analyzer.names.rules import bundled_rules
from decodescope.analyzer.reports.device_report import (
    device_reports,
    idle_by_name,
    interruption_reports,
    largest_gaps,
)
from decodescope.analyzer.reports.gap_list import REPORTED_GROUPS, grouped_gaps
from decodescope.analyzer.reports.health import health, why_no_answer, with_lost_kernels
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, launch_report
from decodescope.analyzer.reports.main_steps import (
    MainSteps,
    find_main_steps,
    main_steps_report,
    step_kind_reports,
)
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.reports.structure_reports import (
    choose_model,
    find_costs,
    structure_reports,
)
from decodescope.analyzer.reports.user_facts import NOTHING, Given
from decodescope.analyzer.roofline.roofline import Costs, op_work
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, GapGroup, Health, Report
from decodescope.analyzer.schema.step_report import StepReport
from decodescope.analyzer.structure.paths import with_inferred_paths
from decodescope.analyzer.structure.step_structure import find_structure
from decodescope.analyzer.timing.interruptions.find_interruptions import find_interruptions
from decodescope.analyzer.timing.interruptions.interruption import (
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
class Analysis(FoundTrace):
    """A report and what it was built from, for views that draw time. The figures of a step are of
    `median_step`: the one with the median time, or a chosen one; None if no step launched anything.
    `main_ops` says of each op whether the figures per step count it, `given` has the model that was
    chosen, and `gap_groups` are those of all gaps."""

    median_step: int | None
    main_ops: Bools
    given: Given
    gap_groups: tuple[tuple[GapGroup, ...], Int64s]
    report: Report
    model_basis: "ModelBasis"

    def with_model(self, facts: Given) -> "Analysis":
        """The analysis by the model, its sizes and its weights in `facts`, as `analyze` would make
        it; captures, peak and rules must be those that it was made with."""
        basis = self.model_basis
        given, findings = choose_model(basis.median, facts)
        costs = find_costs(basis.median, given)
        changed = _by_model(costs, basis.answer_of(costs), basis.health, findings)
        return replace(self, given=given, report=msgspec.structs.replace(self.report, **changed))

    def op_waits(self) -> "OpWaits | None":
        """How long each op waited for other devices, as `waits_of`."""
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
    interruptions = find_interruptions(timeline)
    found = FoundTrace(
        **_columns(timeline),
        own_ranges=own_ranges,
        ranges=ranges,
        structure=structure,
        work=op_work(trace, ranges.reference_op, facts.peak),
        interruptions=interruptions,
        interrupted_ns=interrupted_in_steps(timeline.steps, interruptions),
        main_kind_indices=main_kind_steps(timeline.steps, timeline.step_annotations),
    )
    timed = timed_steps(timeline.steps, found.main_kind_indices)
    median = median_step(timeline.steps, found.interrupted_ns, timed)
    step = _found_step(found, median if len(trace.ops) else None)
    given, findings = choose_model(step, facts)
    costs = find_costs(step, given)
    unprofiled_ns = trace.capture.unprofiled_step_ns if trace.capture else None
    step_ns = 0 if step.step is None or step.shares is None else step.shares.window.length_ns
    main, figures, answer_of = _figures(
        found,
        step,
        found.main_kind_indices,
        interruptions_ns=sum(interruption.length_ns for interruption in interruptions),
        unprofiled_ns=unprofiled_ns,
        profiler_ns=step_ns - unprofiled_ns if step_ns and unprofiled_ns else 0,
    )
    answer = answer_of(costs)
    reported_interruptions = interruption_reports(timeline, interruptions)
    trace_health = health(timeline, answer.profiler_ratio, reported_interruptions, ranges.tree.cut)
    groups = grouped_gaps(timeline, np.arange(len(timeline.gaps)))
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=trace.source,
        devices=device_reports(timeline),
        steps=_step_reports(found, timed),
        capture=trace.capture,
        largest_gaps=largest_gaps(timeline, ranges),
        gap_groups=groups[0][:REPORTED_GROUPS],
        gap_group_count=len(groups[0]),
        attribution=attribution(own_ranges, int((ranges.op_node != own_ranges.op_node).sum())),
        kernels_ranked_by="attributed_ns" if timeline.overlapping else "total_ns",
        step_kinds=step_kind_reports(timeline, found.interrupted_ns),
        interruptions=reported_interruptions,
        communication=_communication(timeline),
        **figures,
        **_by_model(costs, answer, trace_health, findings),
    )
    return Analysis(
        **_columns(found),
        median_step=step.step,
        main_ops=main.ops,
        given=given,
        gap_groups=groups,
        report=report,
        model_basis=ModelBasis(step, answer_of, trace_health),
    )


def analysis_of_step(analysis: Analysis, index: int) -> Analysis:
    """The analysis of a trace with the figures of its step `index`, which launched something: its
    answer, kernels, ranges, launches, layers and costs. The profiler costs a step of the main kind
    as much as the median one. What the report says of the whole trace stays."""
    of_trace = analysis.report.answer
    unprofiled_ns = of_trace.unprofiled_step_ns if index in analysis.main_kind_indices else None
    step = _found_step(analysis, index)
    costs = find_costs(step, _given_of(analysis, index))
    main, figures, answer_of = _figures(
        analysis,
        step,
        np.array([index]),
        interruptions_ns=int(analysis.interrupted_ns[index]),
        unprofiled_ns=None,
        profiler_ns=(of_trace.step_ns or 0) - unprofiled_ns if unprofiled_ns else 0,
    )
    by_costs = {"answer": answer_of(costs), "step_cost": costs.step}
    report = msgspec.structs.replace(analysis.report, **figures, **by_costs)
    return replace(analysis, median_step=index, main_ops=main.ops, report=report)


def step_limits_ns(analysis: Analysis, step_indices: Iterable[int]) -> dict[int, int]:
    """The limits of steps that launched something; unknown ones are left out."""
    limits_ns = {}
    for index in step_indices:
        costs = find_costs(_found_step(analysis, index), _given_of(analysis, index))
        if (ns := step_limit(costs).ns) is not None:
            limits_ns[index] = ns
    return limits_ns


def _given_of(analysis: Analysis, index: int) -> Given:
    """The facts about a step: the user's batch and context are those of the main kind."""
    if index in analysis.main_kind_indices:
        return analysis.given
    return replace(analysis.given, batch=None, context=None)


def _columns(timeline: Timeline) -> dict[str, Any]:
    return {column.name: getattr(timeline, column.name) for column in fields(timeline)}


def _found_step(found: FoundTrace, step: int | None) -> MedianStep:
    """The facts of a step before its costs; None is a trace without steps."""
    shares = None
    if len(found.trace.ops):
        shares = op_shares(found, found.structure, window_of(found, step, found.interruptions))
    structured, layers = structure_reports(found, found.own_ranges, found.structure, step, shares)
    return MedianStep(
        timeline=found,
        step=step,
        shares=shares,
        report=structured,
        layers=layers,
        parts=() if shares is None else busy_parts(found, found.structure, shares),
        annotation=UNKNOWN if step is None else found.step_annotations[step],
    )


def _figures(
    found: FoundTrace,
    median: MedianStep,
    steps: Int64s,
    *,
    interruptions_ns: int,
    unprofiled_ns: int | None,
    profiler_ns: int,
) -> tuple[MainSteps, dict[str, Any], Callable[[Costs], Answer]]:
    """The figures of `steps` by the names of a report's fields, and the answer of the `median` one
    by its costs. The others are as in `find_answer`."""
    main = find_main_steps(found, steps, found.interrupted_ns, found.interruptions)
    launches = launch_report(found, main.ops)
    host = host_frames(found, timed_steps(found.steps, steps), found.interruptions)

    def answer_of(costs: Costs) -> Answer:
        if median.shares is None:
            return answer_without_ops(found, steps)
        return find_answer(
            median,
            median.shares.window,
            costs,
            steps=0 if median.step is None else len(steps),
            host=host,
            launches=launches,
            interruptions_ns=interruptions_ns,
            unprofiled_ns=unprofiled_ns,
            profiler_ns=profiler_ns,
        )

    figures = {
        "launches": launches,
        "kernels": kernel_reports(found, found.work, main.ops),
        "ranges": range_reports(found, found.ranges, main),
        "structure": median.report,
        "layers": median.layers,
        "main_steps": main_steps_report(found, main),
    }
    return main, figures, answer_of


def _by_model(
    costs: Costs, answer: Answer, trace_health: Health, findings: tuple[Finding, ...]
) -> dict[str, Any]:
    """The fields of a report that depend on the model: its findings do not change the status."""
    of_model = costs.findings or findings
    trace_health = msgspec.structs.replace(
        trace_health, findings=(*trace_health.findings, *of_model)
    )
    answer = _with_reservations(answer, trace_health)
    return {"answer": answer, "health": trace_health, "step_cost": costs.step}


def _with_reservations(answer: Answer, trace_health: Health) -> Answer:
    """The answer, after the reason why the trace does not show the time of decode steps."""
    answer = with_lost_kernels(answer, trace_health)
    because, advice = why_no_answer(trace_health)
    if not because:
        return answer
    return msgspec.structs.replace(answer, because=(*because, *answer.because), next=advice)


def _with_captures(timeline: Timeline, captures: tuple[Trace, ...]) -> Timeline:
    if not captures:
        return timeline
    # Few traces come with captures; the others do without this module.
    from decodescope.analyzer.attribution.capture_choice import choose_captures

    reference, findings = choose_captures(timeline, captures)
    findings = (*timeline.trace.findings, *findings)
    return replace(timeline, trace=replace(timeline.trace, reference=reference, findings=findings))


def _communication(timeline: Timeline) -> CommunicationReport | None:
    if len(timeline.busy) < 2:
        return None
    # Few traces have several GPUs; the others do without this module.
    from decodescope.analyzer.reports.communication import gpu_communication

    return gpu_communication(timeline)


def _step_reports(found: FoundTrace, timed: Int64s) -> tuple[StepReport, ...]:
    steps, timed_indices, idle_ns = found.steps, set(timed.tolist()), step_idle_ns(found)
    hosts_ns, spans_ns = steps.host.length_ns, steps.span.length_ns
    without_ops = not len(found.trace.ops)

    def step_report(index: int) -> StepReport:
        annotation, interrupted_ns = found.step_annotations[index], int(found.interrupted_ns[index])
        gpu_ops, busy_ns = int(steps.gpu_ops[index]), int(steps.busy_ns[index])
        span_ns = int(spans_ns[index])
        return StepReport(
            index=index,
            name=found.step_name(index),
            kind=annotation.kind,
            batch=annotation.batch,
            kv_tokens=annotation.kv_tokens,
            host_ns=int(hosts_ns[index]),
            gpu_span_ns=span_ns if gpu_ops else None,
            busy_ns=busy_ns,
            idle_ns=span_ns - busy_ns if gpu_ops else None,
            launch_calls=int(steps.launch_calls[index]),
            gpu_ops=gpu_ops,
            gaps=idle_by_name(idle_ns[index]),
            time_ns=int(steps.time_ns[index]) - interrupted_ns if gpu_ops or without_ops else None,
            timed=index in timed_indices,
            interrupted_ns=interrupted_ns,
        )

    return tuple(map(step_report, range(len(steps))))
