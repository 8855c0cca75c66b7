"""The figures of one step, or of the steps of the main kind together with the median one: whatever
of a report is not of the whole trace."""

from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.answer.answer import find_answer
from decodescope.analyzer.answer.host_frames import host_frames
from decodescope.analyzer.answer.parts import MedianStep, busy_parts, op_shares, window_of
from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.reports.launches_and_kernels import kernel_reports, launch_report
from decodescope.analyzer.reports.main_steps import MainSteps, find_main_steps, main_steps_report
from decodescope.analyzer.reports.range_reports import range_reports
from decodescope.analyzer.reports.structure_reports import structure_reports
from decodescope.analyzer.roofline.roofline import Costs, OpWork
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.structure.step_structure import Structure
from decodescope.analyzer.timing.interruptions.interruption import Interruption
from decodescope.analyzer.timing.step_annotations import UNKNOWN
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class FoundTrace(Timeline):
    """A timeline with the ranges, the structure and the work of its ops, its interruptions, for how
    long each step was interrupted, and the steps of the main kind. `own_ranges` are those of the
    trace, without inferred paths."""

    own_ranges: Ranges
    ranges: Ranges
    structure: Structure
    work: OpWork
    interruptions: tuple[Interruption, ...]
    interrupted_ns: Int64s
    of_main_kind: Int64s


@dataclass(frozen=True, slots=True)
class Circumstance:
    """What the figures of steps need beside them: the steps in which the host is looked for, the
    time of interruptions, the step time without a profiler, and what the profiler costs a step."""

    host_steps: Int64s
    interrupted_ns: int
    unprofiled_ns: int | None
    profiler_ns: int


def found_step(found: FoundTrace, step: int | None) -> MedianStep:
    """The facts of a step before its costs; None is a trace without steps."""
    shares = None
    if len(found.trace.ops):
        shares = op_shares(found, found.structure, window_of(found, step, found.interruptions))
    structured, layers = structure_reports(found, found.own_ranges, found.structure, step, shares)
    return MedianStep(
        timeline=found,
        step=step,
        annotation=UNKNOWN if step is None else found.step_annotations[step],
        structure=found.structure,
        work=found.work,
        shares=shares,
        report=structured,
        layers=layers,
        parts=() if shares is None else busy_parts(found, found.structure, shares),
    )


def figures_of(
    found: FoundTrace,
    standing: MedianStep,
    costs: Costs,
    steps: Int64s,
    circumstance: Circumstance,
) -> tuple[MainSteps, dict[str, Any]]:
    """The figures of `steps` by the names of a report's fields: totals over those that no
    interruption touches, and the answer of the one `standing` for them."""
    main = find_main_steps(found, steps, found.interrupted_ns, found.interruptions)
    launches, answer = launch_report(found, main.ops), Answer()
    if standing.shares is not None:
        answer = find_answer(
            found,
            standing.shares.window,
            standing.parts,
            steps=0 if standing.step is None else len(steps),
            annotation=standing.annotation,
            costs=costs,
            host=host_frames(found, circumstance.host_steps, found.interruptions),
            interruptions_ns=circumstance.interrupted_ns,
            launches=launches,
            unprofiled_ns=circumstance.unprofiled_ns,
            profiler_ns=circumstance.profiler_ns,
        )
    return main, {
        "launches": launches,
        "kernels": kernel_reports(found, found.work, main.ops),
        "ranges": range_reports(found, found.ranges, main),
        "answer": answer,
        "structure": standing.report,
        "layers": standing.layers,
        "step_cost": costs.step,
        "main_steps": main_steps_report(found, main),
    }
