"""The answer of a trace, put together from its steps, parts, limits and bound.

The bound of a step is the one cause that decides, and the figures that show it.

- memory, compute: the limit is 60 % or more of the step; most of it is due to bytes or to FLOPs.
- host, communication, copies, kernels: the group that has most of the time over the limit. Idle
  time between kernels (inside a graph, at the kernel floor, waiting for another stream) counts with
  the kernels, and idle time before ops whose launch call is unknown with the host.
- unknown: the trace has no GPU op; or the host would decide, and the kernels of most launches are
  missing, so that the device may have been busy.

Without a limit, the group with most time decides. In a capture of ours, the step is judged without
the profiler's cost. The queue depth is evidence, not a condition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.answer.advice import Circumstances, next_steps
from decodescope.analyzer.answer.parts import (
    PROFILER,
    WORK,
    FoundTrace,
    MedianStep,
    Window,
    all_parts,
    idle_ns,
    limits_of,
    lost_by_group,
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
    StepLimitBound,
)
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import bytes_size, duration
from decodescope.analyzer.timing.gaps import HOST_WAIT_LABELS
from decodescope.analyzer.timing.interruptions.interruption import median_step, timed_steps
from decodescope.analyzer.timing.timeline import Timeline, idle_inside
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.vocabulary.words import part_words

NEAR_LIMIT = 0.6
_SHOWN = 3
_LEAST_SHARE = 0.01
_GROUP_WORDS = {
    "host": "the host was late",
    "communication": "communication that nothing covers",
    "copies": "copies while no kernel runs",
    "kernels": "kernels, and the time between them",
}


@dataclass(frozen=True, slots=True)
class StepLimit:
    """The least time of a step: `ns` (None if unknown), at least that if `is_lower_bound`, most of
    it because of `bound`."""

    ns: int | None = None
    bound: StepLimitBound | None = None
    is_lower_bound: bool = True


def find_answer(
    found: MedianStep,
    window: Window,
    costs: Costs,
    *,
    steps: int,
    host: tuple[HostFrame, ...],
    interruptions_ns: int,
    launches: LaunchReport,
    unprofiled_ns: int | None,
    profiler_ns: int,
) -> Answer:
    """The answer of a trace with ops, from the step that stands for it, its `window` and its costs,
    the number of `steps` of the main kind, the host's frames, how long the devices were
    interrupted, the step time without a profiler, and what the profiler costs a step."""
    timeline, annotation, cost = found.timeline, found.annotation, costs.step
    trace = timeline.trace
    step_ns = None if window.step is None else window.length_ns
    idle = without_profiler(idle_ns(timeline, window), profiler_ns)
    parts = all_parts(found.parts, idle, costs, window.length_ns)
    limit = step_limit(costs)
    bound: Bound = "unknown" if trace.on_cpu else bound_of(parts, limit)
    batch = annotation.batch if annotation.batch is not None or cost is None else cost.batch
    timed_ns = unprofiled_ns or step_ns
    whole = "the window" if window.step is None else "the step"
    if PROFILER in idle:
        whole = duration(window.length_ns - idle[PROFILER])
    because = (*reasons(parts, limit, bound, cost, launches, whole), *_below_limit(found, parts))
    circumstances = Circumstances(
        bound=bound,
        parts=parts,
        engine=annotation.engine,
        capture=trace.capture,
        late_label=_late_label(timeline, window),
        has_graphs=2 * launches.graph_launches > launches.calls,
        per="" if window.step is None else " a step",
    )
    advice = tuple(dict.fromkeys(next_steps(circumstances)))
    if trace.on_cpu:
        because = ("device: cpu; leaf operators stand for GPU ops and are not launched",)
        advice = ("run it on a GPU: `--device cuda`",)
    return Answer(
        kind=annotation.kind,
        steps=steps,
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
        interruptions_ns=interruptions_ns,
        host=host,
        because=because,
        next=advice,
        unprofiled_step_ns=unprofiled_ns,
    )


def answer_without_ops(found: FoundTrace, steps: Int64s) -> Answer:
    """The answer of a trace without ops: the host's time from one of its main `steps` to the next,
    if it shows any."""
    step = median_step(found.steps, found.interrupted_ns, timed_steps(found.steps, steps))
    if step is None:
        return Answer()
    annotation, step_ns = found.step_annotations[step], int(found.steps.time_ns[step])
    return Answer(
        kind=annotation.kind,
        steps=len(steps),
        step_ns=step_ns,
        tokens_per_s=annotation.batch * 1e9 / step_ns if annotation.batch else None,
        batch=annotation.batch,
    )


def step_limit(costs: Costs) -> StepLimit:
    """The sum of the parts' limits; without any, the bytes and FLOPs of the whole step."""
    cost = costs.step
    if limits := limits_of(costs):
        ns: dict[LimitBound, int] = {"memory": 0, "compute": 0, "links": 0}
        for limit in limits.values():
            ns[limit.bound] += limit.ns
        bound: StepLimitBound = "memory" if ns["memory"] >= ns["compute"] else "compute"
        return StepLimit(sum(ns.values()), bound, cost is None or cost.is_lower_bound)
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
    """The host's activity for most of the time for which a device of the window waited for it."""
    waits = timeline.host_waits
    if len(window.devices) == 1:
        waits = waits.of_gaps(*timeline.gaps_of(window.devices[0]))
    elif len(waits):
        waits = waits.take(np.argsort(waits.start_ns, kind="stable"))
    waited_ns = idle_inside(waits, window.pieces, len(HOST_WAIT_LABELS)).sum(axis=0)
    return HOST_WAIT_LABELS[int(waited_ns.argmax())] if waited_ns.any() else None


def bound_of(parts: Sequence[AnswerPart], limit: StepLimit) -> Bound:
    """The bound of a step with these parts, at least one."""
    judged_ns = _judged_ns(parts)
    if limit.ns is not None and limit.bound and limit.ns >= NEAR_LIMIT * judged_ns > 0:
        return limit.bound
    lost = lost_by_group(parts)
    return max(lost, key=lambda group: lost[group])


def reasons(
    parts: Sequence[AnswerPart],
    limit: StepLimit,
    bound: Bound,
    cost: StepCost | None,
    launches: LaunchReport,
    whole: str,
) -> tuple[str, ...]:
    """Sentences with the figures that decide, then the other evidence; `whole` names the time that
    the parts are of: "the step", "the window", or the time without the profiler's cost."""
    of_limit = tuple(_limit_reasons(parts, limit, cost))
    of_groups = tuple(_group_reasons(parts, bound, launches, whole))
    limit_decides = bound in ("memory", "compute")
    return of_limit + of_groups if limit_decides else of_groups + of_limit


def _below_limit(found: MedianStep, parts: Sequence[AnswerPart]) -> Iterator[str]:
    """Why a part takes less than its limit: other ops run beside its own."""
    if (shares := found.shares) is None:
        return
    op_lengths_ns = found.timeline.trace.ops.length_ns[shares.rows]
    run_ns = np.bincount(shares.part, op_lengths_ns, len(WORK)).astype(np.int64)
    for part in parts:
        if part.part in WORK and part.limit_ns is not None:
            length_ns = int(run_ns[WORK.index(part.part)])
            if part.ns < part.limit_ns <= length_ns:
                yield (
                    f"{part_words(part.part)} counts for {duration(part.ns)}, less than its limit: "
                    f"its ops run for {duration(length_ns)}, shared with others"
                )


def _judged_ns(parts: Sequence[AnswerPart]) -> int:
    """The time of the step without the profiler's cost."""
    return sum(part.ns for part in parts if part.group != "profiler")


def _limit_reasons(
    parts: Sequence[AnswerPart], limit: StepLimit, cost: StepCost | None
) -> Iterator[str]:
    judged_ns = _judged_ns(parts)
    if limit.ns is None or not judged_ns:
        why = "neither a model nor the trace says what must be read"
        if cost is not None and not cost.peak_bytes_per_s:
            why = "the bandwidth of this device is not; give it with --peak"
        yield f"the limit is not known: {why}"
        return
    at_least = "at least " if limit.is_lower_bound else ""
    near = "at least" if limit.ns >= NEAR_LIMIT * judged_ns else "below"
    sentence = (
        f"the limit is {at_least}{duration(limit.ns)}, {limit.ns / judged_ns:.1%} of "
        f"{duration(judged_ns)}: {near} {NEAR_LIMIT:.0%}"
    )
    if cost is not None and cost.peak_bytes_per_s:
        peak = f"{bytes_size(cost.peak_bytes_per_s)}/s"
        source = "measured" if cost.measured_peak_bytes_per_s else cost.peak_source
        sentence += f" ({bytes_size(cost.bytes_per_step)} at {peak}, {source})"
    yield sentence


def _group_reasons(
    parts: Sequence[AnswerPart], bound: Bound, launches: LaunchReport, whole: str
) -> Iterator[str]:
    lost, judged_ns = lost_by_group(parts), _judged_ns(parts)
    for group in sorted(lost, key=lambda group: (group != bound, -lost[group])):
        if lost[group] <= _LEAST_SHARE * judged_ns:
            continue
        largest = [part for part in parts if part.group == group and part.lost_ns > 0][:_SHOWN]
        listed = ", ".join(f"{part_words(part.part)} {duration(part.lost_ns)}" for part in largest)
        share = lost[group] / judged_ns
        over = " over their limit" if any(part.limit_ns for part in largest) else ""
        yield (
            f"{_GROUP_WORDS[group]}: {duration(lost[group])}{over}, {share:.1%} of {whole} "
            f"({listed})"
        )
    if bound == "host" and launches.median_queue_depth is not None:
        yield f"median queue depth at a launch: {launches.median_queue_depth:g}"
