"""The bound of a step: the one cause that decides, and the figures that show it.

- memory, compute: the limit is 60 % or more of the step; most of it is due to bytes or to FLOPs.
- host, communication, copies, kernels: the group that has most of the time over the limit. Idle
  time between kernels (inside a graph, at the kernel floor, waiting for another stream) counts with
  the kernels, and idle time before ops whose launch call is unknown with the host.
- unknown: the trace has no GPU op.

Without a limit, the group with most time decides. In a capture of ours, the step is judged without
the profiler's cost. The queue depth is evidence, not a condition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decodescope.analyzer.answer.parts import lost_ns
from decodescope.analyzer.schema.answer import AnswerPart, Bound, LimitBound
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import bytes_size, duration
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
    bound: LimitBound | None = None
    is_lower_bound: bool = True


def bound_of(parts: Sequence[AnswerPart], limit: StepLimit) -> Bound:
    """The bound of a step with these parts, at least one."""
    judged_ns = _judged_ns(parts)
    if limit.ns is not None and limit.bound and limit.ns >= NEAR_LIMIT * judged_ns > 0:
        return limit.bound
    lost = _lost_by_group(parts)
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
    return (*_limit_reasons(parts, limit, cost), *_group_reasons(parts, bound, launches, whole))


def _judged_ns(parts: Sequence[AnswerPart]) -> int:
    """The time of the step without the profiler's cost."""
    return sum(part.ns for part in parts if part.group != "profiler")


def _lost_by_group(parts: Sequence[AnswerPart]) -> dict[Bound, int]:
    lost: dict[Bound, int] = dict.fromkeys(("kernels", "host", "communication", "copies"), 0)
    for part in parts:
        if part.group != "profiler":
            lost[part.group] += lost_ns(part)
    return lost


def _limit_reasons(
    parts: Sequence[AnswerPart], limit: StepLimit, cost: StepCost | None
) -> Iterator[str]:
    judged_ns = _judged_ns(parts)
    if limit.ns is None or not judged_ns:
        yield "the limit is not known: neither a model nor the trace says what must be read"
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
    lost, judged_ns = _lost_by_group(parts), _judged_ns(parts)
    for group in sorted(lost, key=lambda group: (group != bound, -lost[group])):
        if lost[group] <= _LEAST_SHARE * judged_ns:
            continue
        largest = [part for part in parts if part.group == group and lost_ns(part) > 0][:_SHOWN]
        listed = ", ".join(f"{part_words(part.part)} {duration(lost_ns(part))}" for part in largest)
        share = lost[group] / judged_ns
        over = " over their limit" if any(part.limit_ns for part in largest) else ""
        yield (
            f"{_GROUP_WORDS[group]}: {duration(lost[group])}{over}, {share:.1%} of {whole} "
            f"({listed})"
        )
    if bound == "host" and launches.median_queue_depth is not None:
        yield f"median queue depth at a launch: {launches.median_queue_depth:g}"
