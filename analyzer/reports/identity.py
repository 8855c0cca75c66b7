"""What a trace is where it is not the profile of running decode steps, and why it has no ops."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.schema.report import Health, Verdict
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.timing.captures import GraphCaptures, find_captures
from decodescope.analyzer.timing.intervals import covered_until
from decodescope.analyzer.timing.launches import DEVICE_WORK, calls_named
from decodescope.analyzer.trace import Bools, Trace

# Above this share of the window, a graph capture decides what the window looks like.
RELEVANT_CAPTURE = 0.15
_NAMED_APIS = 3
_HOW_TO_RECORD = {
    "nsys-sqlite": "nsys profile --trace=cuda",
    "rocprof-json": "rocprofv3 --runtime-trace",
}


def identity_findings(trace: Trace) -> Iterator[tuple[str, str]]:
    """(code, message): the trace is that of a graph capture; or it has no GPU op, and why."""
    captures = find_captures(trace)
    if captures.launches and (said := _capture(trace, captures)):
        yield "graph_capture", said
    if not len(trace.ops):
        foreign = any(finding.code == "not_understood" for finding in trace.findings)
        what = "op of a CUDA, ROCm or XPU device" if foreign else "kernel, copy or fill"
        yield "no_gpu_activity", f"no {what} in this trace: {_why(trace, captures, foreign)}"


def no_verdict(health: Health) -> Verdict | None:
    """The verdict of a trace from which none can be drawn, None for any other."""
    codes = {finding.code for finding in health.findings}
    if codes >= {"no_gpu_activity", "not_understood"}:
        reason = "no activity of a CUDA, ROCm or XPU device in this trace"
        return Verdict("unknown", (reason,), ("give a trace of such a device",))
    if "graph_capture" in codes:
        reason = "a graph capture does not show how fast its replays are"
        return Verdict("unknown", (reason,), ("profile its replays, after the capture",))
    return None


def _capture(trace: Trace, captures: GraphCaptures) -> str | None:
    graphs = _some(captures.count, "graph capture")
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
    held = " and ".join(_some(len(found), what) for found, what in host if len(found))
    if not held:
        return "nothing in it is understood" if trace.source.events else "it is empty"
    option = _HOW_TO_RECORD.get(trace.source.format, "ProfilerActivity.CUDA")
    wanted = "" if foreign else f"; if a GPU worked for them, record with {option}"
    return f"it holds {held} of the host only{wanted}"


def _some(number: int, what: str) -> str:
    return f"{count(number)} {what}{'s' * (number != 1)}"


def _apis(trace: Trace, chosen: Bools) -> str:
    """The names of the chosen calls with their counts, the most frequent first."""
    names = Counter(trace.names[name] for name in trace.calls.name[chosen].tolist())
    shown = ", ".join(f"{name} {count(number)}" for name, number in names.most_common(_NAMED_APIS))
    return shown + ", …" * (len(names) > _NAMED_APIS)
