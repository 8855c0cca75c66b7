"""Whether the figures of a trace can be trusted, and what it is if it shows no running decode
steps."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from decodescope.analyzer.attribution.range_tree import MAX_PATH, MAX_PATHS
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import Finding, Health, HealthStatus
from decodescope.analyzer.schema.step_report import InterruptionReport, StepKind
from decodescope.analyzer.text.formatting import count, counted, duration
from decodescope.analyzer.timing.gaps import MIN_BURST_GAPS, floor_is_hidden
from decodescope.analyzer.timing.intervals import covered_until, lower_median
from decodescope.analyzer.timing.launches import (
    DEVICE_WORK,
    GraphCaptures,
    calls_named,
    find_captures,
    graph_launch_calls,
    incomplete_replays,
    lost_launches,
)
from decodescope.analyzer.timing.step_kinds import alike_by, sharing_processes
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Trace
from decodescope.analyzer.vocabulary.words import experts_words

_HARMLESS = (
    "profiler_overhead",
    "cpu_capture",
    "no_steps",
    "empty_steps",
    "distorted_window",
    "missing_ranks",
    "profiler_errors",
    "inferred_steps",
    "unlike_steps",
    "coarse_timestamps",
    "interruptions",
    "experts",
    "capture_not_used",
    "capture_tells_nothing",
)

# Most launches have no op: the devices' busy time is not known.
LOST_KERNELS = "lost_kernels"
# The file has totals of kernels in place of a timeline.
TOTALS_ONLY = "totals_only"
_INFERRED = {
    "frames": "Python frames of the engine",
    "graphs": "graph launches that repeat in the same order",
    "repetition": "launches that repeat in the same order",
}
# Above this profiled step time ÷ unprofiled one, launch times are not those of an unprofiled step.
DISTORTED = 1.25
# Above this share of the window, a graph capture decides what the window looks like.
RELEVANT_CAPTURE = 0.15
_NAMED_APIS = 3
_NAMED_PROCESSES = 8
_HOW_TO_RECORD = {
    "nsys-sqlite": "nsys profile --trace=cuda",
    **dict.fromkeys(("rocprof-json", "rocpd"), "rocprofv3 --runtime-trace"),
}


def health(
    timeline: Timeline,
    profiler_ratio: float | None = None,
    interruptions: Sequence[InterruptionReport] = (),
    ranges_cut: int = 0,
) -> Health:
    """ "no_gpu_activity" without a single op or total; "degraded" if ops are unlinked or the reader
    left something out; otherwise "ok". `ranges_cut` is the number of ranges that the range tree
    left out."""
    trace = timeline.trace
    unlinked = 0 if trace.on_cpu else int(np.count_nonzero(trace.ops.launch < 0))
    findings = (
        *_identity_findings(trace),
        *trace.findings,
        *_findings(timeline, profiler_ratio, unlinked),
        *_use_of_experts(trace),
    )
    if interruptions:
        findings += (Finding("interruptions", _interruptions(interruptions)),)
    if ranges_cut:
        findings += (
            Finding(
                "cut_ranges",
                f"{ranges_cut} ranges or operators are nested too deep or are too many (a path has "
                f"at most {MAX_PATH:,} characters, all paths {MAX_PATHS:,}): their ops count with "
                "the range around them",
            ),
        )
    status: HealthStatus = "ok"
    if not len(trace.ops) and not len(trace.totals):
        status = "no_gpu_activity"
    elif any(finding.code not in _HARMLESS for finding in findings):
        status = "degraded"
    return Health(status=status, unlinked_gpu_ops=unlinked, findings=findings)


def _use_of_experts(trace: Trace) -> Iterator[Finding]:
    capture = trace.capture
    if capture is not None and capture.batch > 1 and capture.experts is not None:
        words = experts_words(capture.experts)
        yield Finding("experts", f"the step before the window used {words} of the choices")


def _findings(timeline: Timeline, profiler_ratio: float | None, unlinked: int) -> Iterator[Finding]:
    trace, launches, steps = timeline.trace, timeline.launches, timeline.steps
    if not len(trace.ops):
        if steps.source in _INFERRED:
            yield Finding("inferred_steps", _found_by(steps))
        return
    if trace.on_cpu:
        yield Finding("cpu_capture", "device: cpu; leaf operators stand for GPU ops")
    if unlinked:
        yield Finding(
            "unlinked_gpu_ops",
            f"{unlinked} of {len(trace.ops)} GPU ops have no launch call in the trace; "
            "they count as busy, the gaps before them as unlinked",
        )
    early = trace.ops.start_ns[launches.first_op] < trace.calls.start_ns[launches.call]
    if early.any():
        yield Finding(
            "starts_before_call",
            f"{int(early.sum())} ops start before their launch call: the clocks of host and "
            "device disagree",
        )
    if jumped := _calls_that_overlap(trace):
        yield Finding(
            "overlapping_calls",
            f"{jumped} of {len(trace.calls)} API calls begin inside another call of their "
            "thread and end after it: "
            "the host's clock went backwards, or the trace mixes threads",
        )
    yield from _missing_records(timeline)
    if profiler_ratio is not None and profiler_ratio > DISTORTED:
        yield Finding(
            "distorted_window",
            f"a profiled step took {profiler_ratio:.2f} times as long: gaps and launch times "
            "are of slowed steps" + "; the bound rests on unprofiled ones" * (not trace.on_cpu),
        )
    measured = trace.capture is not None and trace.capture.kernel_floor_ns is not None
    estimated = not measured and not trace.on_cpu and len(timeline.gaps) >= MIN_BURST_GAPS
    if estimated and floor_is_hidden(trace, timeline.gaps):
        yield Finding(
            "coarse_timestamps",
            "the timestamps hide the time between ops that are queued back to back (they are whole "
            "microseconds, or most gaps are one and the same few ns): no kernel floor is estimated",
        )
    if not len(steps):
        yield Finding(
            "no_steps",
            "no step markers and no launches that repeat as steps do, so no figures per step",
        )
    elif steps.source in _INFERRED:
        yield Finding(
            "inferred_steps",
            f"{_found_by(steps)}; a kind that no frame tells follows from launch shapes, attention "
            "kernels and GPU time",
        )
    elif not steps.gpu_ops.any():
        yield Finding("empty_steps", "no GPU op was launched inside a step marker")
    if unlike := _unlike(timeline):
        yield Finding("unlike_steps", unlike)


def _found_by(steps: Steps) -> str:
    return f"no step markers; {len(steps)} steps were found by {_INFERRED[steps.source]}"


def _missing_records(timeline: Timeline) -> Iterator[Finding]:
    """Launches whose ops are not in the trace, or not all."""
    trace, launches = timeline.trace, timeline.launches
    lost, made = lost_launches(trace, launches)
    if len(lost):
        at_head = len(lost) == made or bool(len(launches) and lost[-1] < launches.call[0])
        yield Finding(
            "launches_without_ops",
            f"{len(lost)} of {made} kernel launches have no kernel in the trace, which was cut "
            "or lost records: busy time, queue depths and the ops of steps lack them"
            + "; CUPTI of CUDA 12.6 Update 2 to 13.1 loses some, above all at the head of a window"
            * at_head,
        )
    graphs = graph_launch_calls(trace)
    graph_count, with_ops = int(graphs.sum()), int(launches.is_graph.sum())
    if graph_count > with_ops:
        yield Finding(
            "graph_launch_without_ops",
            f"{graph_count - with_ops} of {graph_count} graph launches have no GPU op in the "
            "trace: what they ran is missing from every figure",
        )
    incomplete, missing, replays = incomplete_replays(trace, launches)
    if incomplete:
        yield Finding(
            "incomplete_replays",
            f"{incomplete} of {replays} graph launches have fewer ops than others of their graph "
            f"({missing} in all), as the trace was cut or lost records: busy time and the ops of "
            "steps lack them",
        )
    if 2 * (len(lost) + graph_count - with_ops) > made + graph_count:
        yield Finding(
            LOST_KERNELS,
            "the kernels of most launches are missing: idle time may be theirs",
        )


def _unlike(timeline: Timeline) -> str:
    """How steps that should be alike differ, if any are of several sorts."""
    steps, facts = timeline.steps, timeline.step_annotations
    processes = sharing_processes(timeline.trace, steps)
    if processes is not None:
        shared = Counter(processes[steps.gpu_ops > 0].tolist()).most_common(_NAMED_PROCESSES)
        sizes = ", ".join(f"{number} of process {pid}" for pid, number in shared)
        return (
            f"steps of several processes share a device ({sizes}): figures per step are of one "
            "process, and the time of its steps holds ops of the others"
        )
    sorts: dict[tuple[StepKind, int | None], dict[int, list[int]]] = defaultdict(dict)
    for index in np.flatnonzero(steps.gpu_ops).tolist():
        of_kind = sorts[alike_by(facts[index])]
        of_kind.setdefault(facts[index].sort, []).append(int(steps.gpu_ops[index]))
    sizes = ", ".join(
        f"{len(ops)} of {count(lower_median(np.array(ops)))} ops"
        for of_kind in sorts.values()
        if len(of_kind) > 1
        for ops in of_kind.values()
    )
    return sizes and (
        f"steps of one kind are unlike ({sizes}): of several models or engines, or cut by the "
        "window; figures per step are of those that are most"
    )


def _interruptions(interruptions: Sequence[InterruptionReport]) -> str:
    by_cause: Counter[str] = Counter()
    for interruption in interruptions:
        by_cause[interruption.cause.replace("_", " ")] += interruption.ns
    causes = ", ".join(f"{cause} {duration(ns)}" for cause, ns in by_cause.most_common())
    times = "once" if len(interruptions) == 1 else f"{len(interruptions)} times"
    return f"the devices were interrupted {times} ({causes}): set apart, and in no figure of a step"


def _calls_that_overlap(trace: Trace) -> int:
    """How many calls partly overlap with the previous one of their thread."""
    calls, total = trace.calls, 0
    for rows in calls.by_thread():
        start_ns, end_ns = calls.start_ns[rows], calls.end_ns[rows]
        overlap = (start_ns[1:] < end_ns[:-1]) & (end_ns[1:] > end_ns[:-1])
        total += int(np.count_nonzero(overlap))
    return total


def _identity_findings(trace: Trace) -> Iterator[Finding]:
    """The trace is that of a graph capture; or it has no GPU op, and why."""
    captures = find_captures(trace)
    if captures.launches and (sentence := _capture(trace, captures)):
        yield Finding("graph_capture", sentence)
    if len(totals := trace.totals):
        runs, total_ns = int(totals.count.sum()), int(totals.total_ns.sum())
        yield Finding(
            TOTALS_ONLY,
            f"{counted(runs, 'run')} of {counted(len(totals), 'kernel')} were added up "
            f"({duration(total_ns)} in all), without the time of any: nothing is known of steps, "
            "gaps, busy time, launches and overlap",
        )
    elif not len(trace.ops):
        foreign = any(finding.code == "not_understood" for finding in trace.findings)
        missing = "op of a CUDA, ROCm or XPU device" if foreign else "kernel, copy or fill"
        yield Finding(
            "no_gpu_activity", f"no {missing} in this trace: {_why(trace, captures, foreign)}"
        )


def why_no_answer(health: Health) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why a trace does not show the time of decode steps, and what to record instead; both empty
    for any other trace."""
    codes = {finding.code for finding in health.findings}
    if codes >= {"no_gpu_activity", "not_understood"}:
        reason = "no activity of a CUDA, ROCm or XPU device in this trace"
        return (reason,), ("give a trace of such a device",)
    if "no_gpu_activity" in codes:
        reason = "no GPU activity in this trace"
        return (reason,), ("record the GPU's activity (see the trace health)",)
    if TOTALS_ONLY in codes:
        reason = "a tree of totals has no times, so no steps, gaps or launches"
        return (reason,), ('record a timeline: proton.start(data="trace")',)
    if "graph_capture" in codes:
        reason = "a graph capture does not show how fast its replays are"
        return (reason,), ("profile its replays, after the capture",)
    return (), ()


def with_lost_kernels(answer: Answer, health: Health) -> Answer:
    """The answer, without a bound where lost kernels may fill the time that the host seems to
    take."""
    lost = any(finding.code == LOST_KERNELS for finding in health.findings)
    if not lost or answer.bound != "host":
        return answer
    return msgspec.structs.replace(
        answer,
        bound="unknown",
        because=("the kernels of most launches are missing: the device may have been busy",),
        next=("record the window again (see the trace health)",),
    )


def _capture(trace: Trace, captures: GraphCaptures) -> str | None:
    graphs = counted(captures.count, "graph capture")
    recorded = (
        f"{count(captures.launches)} kernel launches were recorded into graphs and ran nothing"
    )
    if captures.launches > len(trace.ops):
        return (
            f"the profile of {graphs}: {recorded}, {count(len(trace.ops))} GPU ops ran beside "
            "them; it shows what the graphs hold, not how fast they are: profile their replays"
        )
    bounds = np.array((trace.ops.start_ns.min(), trace.ops.end_ns.max()), dtype=np.int64)
    during_ns = int(np.diff(covered_until(captures.during, bounds))[0])
    window_ns = int(np.diff(bounds)[0])
    if during_ns <= RELEVANT_CAPTURE * window_ns:
        return None
    return (
        f"{graphs} took {duration(during_ns)}, {during_ns / window_ns:.1%} of the window: "
        f"{recorded}; idle time and launches are those of start-up: profile after the graphs are "
        "captured"
    )


def _why(trace: Trace, captures: GraphCaptures, foreign: bool) -> str:
    """Why a trace has no GPU op, as far as it shows; `foreign`: it has events not understood."""
    if any(finding.code == "counted_kernels" for finding in trace.findings):
        return "its kernels were counted, not timed"
    if any(finding.code == "lone_copies" for finding in trace.findings):
        return "all its kernels were lost"
    if captures.launches:
        return "its launches were recorded into graphs and ran nothing"
    work = calls_named(trace, DEVICE_WORK)
    if work.any():
        return (
            f"{count(int(work.sum()))} calls launch or copy ({_apis(trace, work)}), but what they "
            "ran was not recorded. Likely the profiler stopped before the GPU was done "
            "(synchronize first), another one held it (Nsight, DCGM), or privileges are missing"
        )
    if len(trace.calls):
        return f"none of its {count(len(trace.calls))} API calls launches or copies anything"
    host = ((trace.cpu_ops, "operator"), (trace.ranges, "range"))
    held = " and ".join(counted(len(events), noun) for events, noun in host if len(events))
    if not held:
        return "nothing in it is understood" if trace.source.events else "it is empty"
    option = _HOW_TO_RECORD.get(trace.source.format, "ProfilerActivity.CUDA")
    wanted = "" if foreign else f"; if a GPU worked for them, record with {option}"
    return f"it holds {held} of the host only{wanted}"


def _apis(trace: Trace, chosen: Bools) -> str:
    names = Counter(trace.names[name] for name in trace.calls.name[chosen].tolist())
    shown = ", ".join(f"{name} {count(number)}" for name, number in names.most_common(_NAMED_APIS))
    return shown + ", …" * (len(names) > _NAMED_APIS)
