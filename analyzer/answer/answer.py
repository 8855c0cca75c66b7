"""The answer of a trace, put together from its steps, parts, limits and bound."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.answer.advice import Circumstances, next_steps
from decodescope.analyzer.answer.bound import StepLimit, bound_of, reasons
from decodescope.analyzer.answer.parts import (
    PROFILER,
    Window,
    all_parts,
    idle_ns,
    limits_of,
    without_profiler,
)
from decodescope.analyzer.roofline.roofline import Costs
from decodescope.analyzer.schema.answer import (
    Answer,
    AnswerPart,
    Bound,
    HostFrame,
    LimitBound,
    ModelSource,
)
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS
from decodescope.analyzer.timing.step_annotations import StepAnnotation
from decodescope.analyzer.timing.timeline import Timeline, idle_inside


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """The facts beside the time of the parts: the number of `steps` of the main kind, the
    `annotation` of the one with the median time, the costs of that step, the host's frames, and how
    long the devices were interrupted."""

    steps: int
    annotation: StepAnnotation
    costs: Costs
    host: tuple[HostFrame, ...]
    interruptions_ns: int
    launches: LaunchReport


def find_answer(
    timeline: Timeline, window: Window, busy: tuple[AnswerPart, ...], facts: AnswerFacts
) -> Answer:
    """The answer of a trace with ops, from the `busy` parts and the idle time of a window."""
    trace, annotation, cost = timeline.trace, facts.annotation, facts.costs.step
    unprofiled_ns = trace.capture.unprofiled_step_ns if trace.capture else None
    step_ns = None if window.step is None else window.length_ns
    profiler_ns = step_ns - unprofiled_ns if step_ns and unprofiled_ns else 0
    idle = without_profiler(idle_ns(timeline, window), profiler_ns)
    parts = all_parts(busy, idle, facts.costs, window.length_ns)
    limit = _step_limit(facts.costs)
    bound: Bound = "unknown" if trace.on_cpu else bound_of(parts, limit)
    batch = annotation.batch if annotation.batch is not None or cost is None else cost.batch
    timed_ns = unprofiled_ns or step_ns
    circumstances = Circumstances(
        bound=bound,
        parts=parts,
        engine=annotation.engine,
        capture=trace.capture,
        late_label=_late_label(timeline, window),
        has_graphs=2 * facts.launches.graph_launches > facts.launches.calls,
    )
    whole = "the window" if window.step is None else "the step"
    if PROFILER in idle:
        whole = duration(window.length_ns - idle[PROFILER])
    because = reasons(parts, limit, bound, cost, facts.launches, whole)
    advice = next_steps(circumstances)
    if trace.on_cpu:
        because = ("device: cpu; leaf operators stand for GPU ops and are not launched",)
        advice = ("run it on a GPU: `--device cuda`",)
    return Answer(
        kind=annotation.kind,
        steps=facts.steps,
        step=window.step,
        step_ns=step_ns,
        whole_ns=window.length_ns,
        tokens_per_s=batch * 1e9 / timed_ns if batch and timed_ns else None,
        batch=batch,
        limit_ns=limit.ns,
        limit_is_lower_bound=limit.ns is not None and limit.is_lower_bound,
        limit_bound=limit.bound,
        model=None if cost is None else cost.model,
        model_source=_model_source(cost, limit),
        bound=bound,
        parts=parts,
        interruptions_ns=facts.interruptions_ns,
        host=facts.host,
        because=because,
        next=advice,
        unprofiled_step_ns=unprofiled_ns,
    )


def _step_limit(costs: Costs) -> StepLimit:
    """The sum of the parts' limits; without any, the bytes and FLOPs of the whole step."""
    cost = costs.step
    if limits := limits_of(costs):
        ns = {"memory": 0, "compute": 0}
        for limit in limits.values():
            ns[limit.bound] += limit.ns
        bound: LimitBound = "memory" if ns["memory"] >= ns["compute"] else "compute"
        return StepLimit(sum(ns.values()), bound, is_lower_bound=costs.is_lower_bound)
    if cost is None or not cost.peak_bytes_per_s:
        return StepLimit()
    memory_ns = cost.bytes_per_step * 1e9 / cost.peak_bytes_per_s
    flops, peak = cost.flops_per_step, cost.peak_flops_per_s
    compute_ns = flops * 1e9 / peak if flops and peak else 0.0
    bound = "memory" if memory_ns >= compute_ns else "compute"
    return StepLimit(round(max(memory_ns, compute_ns)), bound, is_lower_bound=False)


def _model_source(cost: StepCost | None, limit: StepLimit) -> ModelSource | None:
    if cost is None:
        return None if limit.ns is None else "shapes"
    sources: dict[str, ModelSource] = {"capture": "capture", "model": "named", "guess": "guessed"}
    return sources[cost.source]


def _late_label(timeline: Timeline, window: Window) -> str | None:
    """What the host did for most of the time for which a device of the window waited for it."""
    waits = timeline.host_waits
    if len(window.devices) == 1:
        waits = waits.of_gaps(*timeline.gaps_of(window.devices[0]))
    elif len(waits):
        waits = waits.take(np.argsort(waits.start_ns, kind="stable"))
    waited_ns = idle_inside(waits, window.pieces, len(HOST_WAIT_LABELS)).sum(axis=0)
    return HOST_WAIT_LABELS[int(waited_ns.argmax())] if waited_ns.any() else None
