"""Verdicts, changes, layers, roles and parts of a step in words, the same in every output."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import ExpertsBalance, ObserverReport, Report
from decodescope.analyzer.schema.step_report import StepCost, StepKindReport, StructureReport
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    count,
    counted,
    duration,
    interval_text,
    number,
    percent,
    rate,
    ratio_text,
    signed_duration,
    significant,
)

if TYPE_CHECKING:
    from decodescope.analyzer.schema.comparison_report import (
        Change,
        ChangeVerdict,
        DiffAnswer,
        SpeedRatio,
    )
    from decodescope.analyzer.schema.run_report import Interval

_BOUND_WORDS = {"kernels": "kernel-bound", "copies": "copy-bound", "unknown": "bound unknown"}
_PART_WORDS = {
    "host_wait": "waiting for the host",
    "launch_call": "inside launch calls",
    "launch_latency": "behind launch calls",
    "unlinked": "before unlinked ops",
    "graph_internal": "between ops of the graph",
    "kernel_floor": "floor between kernels",
    "dependency": "waiting for a stream",
    "matmul": "other products",
    "profiler": "cost of the profiler",
}

INFERRED_NOTE = "inferred from kernel names: no range of the model contains these ops"
ROLE_KNOWN_BY = {"exact": "name", "partial": "place"}
_LAYERS_BY = {
    "ranges": "as the ranges name them",
    "capture": "as the graph's capture names them",
    "annotations": "as the graph's annotations name them",
    "repetition": "found by repetition of kernel names",
}
GAP_MEANINGS = {
    "unlinked": "launched outside the trace",
    "graph_internal": "between ops of one CUDA graph",
    "host_wait": "the CPU launched too late",
    "launch_call": "inside the launch call itself",
    "kernel_floor": "the hardware's minimum",
    "dependency": "waited for a stream or an event",
    "launch_latency": "launched, but started late",
}
CPU_GAP_MEANINGS = GAP_MEANINGS | {"host_wait": "Python and dispatch in between"}
STANDINGS_NOTE = (
    "a variant beats another if it has more tokens/s or a smaller KL beyond noise, and is not "
    "shown worse in the other of the two"
)
STEP_NOTE = (
    "the median step of each side, without interruptions; the rows add up to it; a kernel that "
    "does the work of several roles counts for one"
)


def verdict_words(verdict: "ChangeVerdict") -> str:
    return "no interval" if verdict == "unknown" else verdict.replace("_", " ")


def speed_text(speed: "SpeedRatio") -> str:
    """`x1.243 (95 %: x1.212 to x1.270), faster`; without an interval the ratio and the verdict."""
    text = ratio_text(speed.value) + interval_words(speed.interval)
    return f"{text}, {verdict_words(speed.verdict)}"


def interval_words(interval: "Interval | None") -> str:
    if interval is None:
        return ""
    level = f"{interval.confidence * 100:g} %"
    return f" ({level}: {interval_text(interval, ratio_text)})"


def step_ratio_text(answer: "DiffAnswer") -> str:
    """`x1.243 (95 %: x1.212 to x1.270), slower`: a ratio of step times, or why there is none;
    without an interval, why there is none of that."""
    if answer.ratio is None:
        return "no ratio: a side has no steps"
    why = answer.reason if answer.interval is None else verdict_words(answer.verdict)
    return f"{ratio_text(answer.ratio)}{interval_words(answer.interval)}, {why}"


def straggler_text(communication: CommunicationReport) -> str:
    """Which one the others wait for and what it costs them, or why there is none."""
    straggler, member = communication.straggler, communication.member
    if straggler is None:
        return f"no straggler: {communication.no_straggler}"
    return (
        f"straggler: {member} {straggler.rank} entered {count(straggler.last_entries)} of "
        f"{count(straggler.collectives)} collectives last ({straggler.even_entries:.0f} by "
        f"chance); then each other {member} waited {duration(straggler.cost_ns)} in all, "
        f"{percent(straggler.cost_share)} % of the window"
    )


def beaten_text(beaten_by: tuple[str, ...] | None) -> str:
    """Which variants beat one in speed and error: the fastest by name, the others counted; None is
    a variant that lacks one of the two."""
    if beaten_by is None:
        return "not ranked"
    if not beaten_by:
        return "nothing"
    first, *others = beaten_by
    return f"{first} +{len(others)}" if others else first


def change_text(change: "Change") -> str:
    """How far `other` is from `base`: per cent up to a factor of three, the factor beyond; "new" or
    "gone" where one side has nothing."""
    base, other = change.base, change.other
    if base is None or other is None:
        return UNKNOWN
    if base == other:
        return "same"
    if base <= 0 or other <= 0:
        return "new" if other > 0 else "gone"
    ratio = other / base
    if ratio >= 3:
        return f"x{significant(ratio)}"
    if ratio <= 1 / 3:
        return f"÷{significant(1 / ratio)}"
    return f"{(ratio - 1) * 100:+.1f} %"


def relative_change_words(change: "Change") -> str:
    """The same of a part of a step, which a side that is null does not have."""
    if change.base is None:
        return "new"
    return "gone" if change.other is None else change_text(change)


def bound_words(bound: Bound) -> str:
    return _BOUND_WORDS.get(bound, f"{bound}-bound")


def device_words(device: int | str) -> str:
    """A device of a report: "GPU 0", "rank 1 GPU 3", "cpu"."""
    return f"GPU {device}" if isinstance(device, int) else device


def ops_word(report: Report) -> str:
    return "operators" if report.on_cpu else "GPU ops"


def part_words(part: str) -> str:
    return _PART_WORDS.get(part, part)


def whole_microseconds(ns: int | None) -> str:
    """Nanoseconds as whole microseconds, without the unit."""
    return UNKNOWN if ns is None else f"{round(ns / 1000):,}"


def whole_change(ns: int) -> str:
    """The same of a change, with its sign."""
    return f"+{whole_microseconds(ns)}" if ns >= 500 else whole_microseconds(ns)


def steps_words(report: Report) -> str:
    """The steps that figures per step are means of."""
    steps, all_steps = report.main_steps.steps, len(report.steps)
    if not steps:
        return "whole trace"
    if steps == all_steps:
        return f"mean of {count(steps)} steps" if steps > 1 else "one step"
    return f"{'mean of ' if steps > 1 else ''}{count(steps)} of {count(all_steps)} steps"


def counted_steps(steps: int, kind: str = "unknown") -> str:
    """`9 decode steps`; without an unknown kind."""
    of_kind = "" if kind == "unknown" else f"{kind} "
    return counted(steps, f"{of_kind}step")


def step_words(report: Report, step: int | None) -> str:
    """The step that figures are of: a chosen one, or (None) the one with the median time; "" for a
    trace without steps."""
    if step is not None:
        kind = report.steps[step].kind
        return f"step {step}" if kind == "unknown" else f"step {step}, {kind}"
    if report.answer.step is None:
        return ""
    return f"median of {counted_steps(report.answer.steps, report.answer.kind)}"


def launch_words(report: Report) -> Iterator[str]:
    """Graph launches, queue depth and short kernels, each in a sentence."""
    launches = report.launches
    if launches.graph_launches:
        noun = "graph launch" if launches.graph_launches == 1 else "graph launches"
        ends = {min(launches.gpu_ops_per_graph_launch), max(launches.gpu_ops_per_graph_launch)}
        spread = " to ".join(map(count, sorted(ends)))
        yield f"{count(launches.graph_launches)} {noun} of {spread} {ops_word(report)}"
    queue = f"queue depth: median {number(launches.median_queue_depth)} at a launch"
    if (depth := launches.queue_depth) is not None:
        queue += f"; over time mean {number(depth.mean)}, at most {count(depth.max)}, "
        queue += f"empty {percent(depth.empty_share)} % of the time"
    yield queue
    if (short := launches.short_kernels) is not None and short.count:
        yield (
            f"{count(short.count)} kernels ({percent(short.share)} % of those launched one by one) "
            f"ran for less time than their launch call took: {duration(short.gpu_ns)} of work for "
            f"{duration(short.api_ns)} of calls"
        )


def main_steps_words(report: Report) -> str:
    """The time of a step as a sum, and the ops outside of the steps; "" for a whole trace."""
    main = report.main_steps
    if not main.steps:
        return ""
    idle_ns = main.all_gaps.total_ns
    parts = {
        "operators" if report.on_cpu else "kernels": main.kernels_attributed_ns,
        "copies": main.copies_attributed_ns,
        "graphs": main.graphs_attributed_ns,
        "other ops": main.busy_ns - main.attributed_ns,
        "idle": idle_ns,
    }
    means_ns = {name: round(ns / main.steps) for name, ns in parts.items()}
    sums = [f"{name} {signed_duration(ns)}" for name, ns in means_ns.items() if ns]
    time = duration((main.busy_ns + idle_ns) / main.steps)
    devices = " on all devices" if len(report.devices) > 1 else ""
    text = f"a step ({steps_words(report)}){devices}: {' + '.join(sums)} = {time}"
    if main.outside_ops:
        ops = f"{count(main.outside_ops)} {ops_word(report)}"
        text += f"; outside of these steps: {ops}, {duration(main.outside_attributed_ns)}"
    return text


def overlap_words(report: Report) -> str:
    """The meaning of kernels' figures where ops overlap; "" where they do not."""
    if not report.overlapping:
        return ""
    steps = report.main_steps.steps or 1
    total_ns = sum(kernel.total_ns for kernel in report.kernels) / steps
    attributed_ns = sum(kernel.attributed_ns for kernel in report.kernels) / steps
    text = (
        f"ops overlap: their durations add up to {duration(total_ns)}, attributed times to "
        f"{duration(attributed_ns)}; ranks and shares are of attributed time"
    )
    if any(kernel.roofline is not None for kernel in report.kernels):
        text += ", rates and the share of the limit of durations: lower bounds"
    return text


def layers_words(structure: StructureReport) -> str:
    motifs = zip(structure.motif_layers, structure.layer_ops, strict=True)
    of_each = ", ".join(f"{count(layers)} of {count(ops)} ops" for layers, ops in motifs)
    certainty = "" if structure.confidence == "exact" else ", some unlike the others"
    return (
        f"{counted(structure.layers, 'layer')} ({of_each}), "
        f"{counted(structure.prologue_ops, 'op')} before and {count(structure.epilogue_ops)} "
        f"after them, "
        f"{_LAYERS_BY.get(structure.source, structure.source)}{certainty}"
    )


def experts_words(balance: ExpertsBalance) -> str:
    distinct, busiest = number(round(balance.distinct, 1)), percent(balance.busiest_share)
    return f"{distinct} of {balance.experts} experts a layer, the busiest {busiest} %"


def cost_words(cost: StepCost) -> str:
    """The bytes that the step must read and its sizes, in a sentence."""
    sizes = ["at least 1 request" if cost.batch is None else counted(cost.batch, "request")]
    sizes += [f"{count(cost.kv_tokens)} KV positions"] if cost.kv_tokens is not None else []
    formats = f" ({cost.weights})" if cost.weights else ""
    devices = f", 1 of {cost.tensor_parallel} devices" if cost.tensor_parallel > 1 else ""
    peak = cost.peak_bytes_per_s
    at = f", {bytes_size(peak)}/s at most" if peak else ", at an unknown bandwidth"
    guess = "?" * (cost.source == "guess")
    least = "at least " * cost.is_lower_bound
    return (
        f"{cost.model}{guess}{formats}: {', '.join(sizes)}{devices}; a step reads "
        f"{least}{bytes_size(cost.bytes_per_step)}{at}"
    )


def observer_words(observer: ObserverReport) -> str:
    """The tokens/s before, during and after a window, and the number of windows if it was taken
    again; "" if nothing of it is known."""
    measured = (
        observer.before_tokens_per_s,
        observer.during_tokens_per_s,
        observer.after_tokens_per_s,
    )
    rates = "→".join("?" if figure is None else rate(figure) for figure in measured) + " tok/s"
    is_known = any(figure is not None for figure in measured)
    again = f"{observer.windows} windows taken" * (observer.windows > 1)
    return " · ".join(filter(None, (rates * is_known, again)))


def step_sizes(row: StepKindReport, report: Report) -> tuple[str, str]:
    """Batch and KV tokens of a kind of steps. Where the annotations do not say them, those of the
    shapes or of the user, marked so: they count for the step that stands for the trace only."""
    cost = report.step_cost if row == report.standing_kind else None
    if cost is None:
        return count(row.batch), count(row.kv_tokens)
    by = "by shapes" if cost.batch_by_shapes else "given"
    return _size_words(row.batch, cost.batch, by), _size_words(
        row.kv_tokens, cost.kv_tokens, "given"
    )


def _size_words(annotated: int | None, known: int | None, by: str) -> str:
    return count(annotated) if annotated is not None or known is None else f"{count(known)} {by}"
