"""Steps from the Python frames of serving engines, where no range marks them.

An engine's worker calls one function for each step (`_STEP`), on the thread that launches the
step's ops. These functions, and the frames that tell a step's kind, are:

vLLM: `execute_model` of vllm/v1/worker/gpu_model_runner.py (vllm/worker/model_runner.py in V0);
  `sample_tokens` of the same file belongs to the step before it
SGLang: `run_batch` of managers/scheduler.py, or, where another thread runs the model,
  `forward_decode` and `forward_extend` of model_executor/model_runner.py. `replay` of the runner of
  CUDA graphs decodes; the workers in speculative/ draft and verify
TensorRT-LLM: `_forward_step` of _torch/pyexecutor/py_executor.py; `_sample_async` belongs to the
  step before it

Only outermost frames count. A frame that launched no op is no step, and neither is one that the end
of the trace cut: other frames around it end in the same instant.
"""

import re

import numpy as np

from decodescope.analyzer.schema.step_report import StepKind
from decodescope.analyzer.timing.inferred_steps import FoundSteps
from decodescope.analyzer.timing.intervals import containing, outermost, union
from decodescope.analyzer.timing.launches import LaunchCalls, first_matches, threads_at
from decodescope.analyzer.trace import Bools, HostEvents, HostTimes, Int64s, Intervals, Trace

_VLLM = r"vllm/(?:v1/)?worker/(?:gpu/|gpu_)?model_runner\.py\(\d+\): "
_SGLANG = r"sglang/srt/"
_TENSORRT_LLM = r"tensorrt_llm/_torch/pyexecutor/py_executor\.py\(\d+\): "
_STEP = re.compile(
    rf"(?:^|/)(?:{_VLLM}execute_model|{_TENSORRT_LLM}_forward_step"
    rf"|{_SGLANG}managers/scheduler\.py\(\d+\): run_batch"
    rf"|{_SGLANG}model_executor/model_runner\.py\(\d+\): forward_(?:decode|extend))$"
)
_AFTER = re.compile(rf"(?:^|/)(?:{_VLLM}sample_tokens|{_TENSORRT_LLM}_sample_async)$")
# In order of precedence: a verifying step also drafts, and both call `forward_extend`.
_KINDS: dict[StepKind, re.Pattern[str]] = {
    "verify": re.compile(rf"(?:^|/){_SGLANG}speculative/\w+\.py\(\d+\): verify$"),
    "draft": re.compile(rf"(?:^|/){_SGLANG}speculative/\w+\.py\(\d+\): (?:forward_)?draft"),
    "prefill": re.compile(rf"(?:^|/){_SGLANG}model_executor/model_runner\.py.*: forward_extend$"),
    "decode": re.compile(
        rf"(?:^|/){_SGLANG}model_executor/"
        r"(?:model_runner\.py.*: forward_decode|cuda_graph_runner\.py.*: replay)$"
    ),
}


def find_frame_steps(trace: Trace, launches: LaunchCalls) -> FoundSteps | None:
    """The steps of a trace that Python frames mark, None without such frames."""
    frames = trace.frames
    role = first_matches(trace, frames, (_STEP, _AFTER))
    ops = np.zeros(len(trace.calls), dtype=np.int64)
    ops[launches.call] = launches.ops
    first_frame = np.full(len(trace.calls), -1, dtype=np.int64)
    host_end_ns = frames.end_ns.copy()
    previous = np.full(len(frames), -1, dtype=np.int64)
    for frame_rows, call_rows in threads_at(frames, np.flatnonzero(role >= 0), trace.calls.starts):
        outer = frame_rows[outermost(frames.take(frame_rows))]
        step = outer[role[outer] == 0]
        begun = np.searchsorted(step, outer, side="right") - 1
        inside = containing(frames.take(outer), trace.calls.start_ns[call_rows])
        step_of = np.where((inside >= 0) & (begun[inside] >= 0), begun[inside], -1)
        launched = np.bincount(
            step_of[step_of >= 0], ops[call_rows[step_of >= 0]], minlength=len(step)
        )
        kept = np.flatnonzero((launched > 0) & ~_cut(frames, step))
        np.maximum.at(host_end_ns, step[begun[begun >= 0]], frames.end_ns[outer[begun >= 0]])
        first_frame[call_rows] = np.where(
            np.isin(step_of, kept) & (step_of >= 0), np.append(step, -1)[step_of], -1
        )
        previous[step[kept[1:]]] = step[kept[:-1]]
    marker = np.unique(first_frame[first_frame >= 0])
    if not len(marker):
        return None
    following = np.full(len(marker), -1, dtype=np.int64)
    later = np.flatnonzero(previous[marker] >= 0)
    following[np.searchsorted(marker, previous[marker[later]])] = later
    call_step = np.where(first_frame >= 0, np.searchsorted(marker, first_frame), -1)
    host = Intervals(frames.start_ns[marker], host_end_ns[marker])
    return FoundSteps("frames", marker, host, following, call_step)


def frame_kinds(trace: Trace, marker: Int64s, host: Intervals) -> list[StepKind]:
    """The kind of each step, by the frames inside it on its thread; "unknown" if none tells."""
    frames = trace.frames
    kind = first_matches(trace, frames, tuple(_KINDS.values()))
    best = np.full(len(marker), len(_KINDS), dtype=np.int64)
    of_step = frames.take(marker)
    for frame_rows, step_rows in threads_at(frames, np.flatnonzero(kind >= 0), of_step.starts):
        inside = containing(host.take(step_rows), frames.start_ns[frame_rows])
        np.minimum.at(best, step_rows[inside[inside >= 0]], kind[frame_rows[inside >= 0]])
    names: tuple[StepKind, ...] = (*_KINDS, "unknown")
    return [names[number] for number in best.tolist()]


def drafting(trace: Trace, times: HostTimes) -> Bools:
    """Whether a frame that drafts is open at each time on its thread."""
    drafts = first_matches(trace, trace.frames, (_KINDS["draft"],)) == 0
    inside = np.zeros(len(times), dtype=np.bool_)
    for frame_rows, time_rows in threads_at(trace.frames, np.flatnonzero(drafts), times):
        drafted = union(trace.frames.start_ns[frame_rows], trace.frames.end_ns[frame_rows])
        inside[time_rows] = containing(drafted, times.at_ns[time_rows]) >= 0
    return inside


def engine_of(frame: str) -> str | None:
    """The engine whose frame this is, as `StepAnnotation.engine` names it."""
    engines = {"vllm/": "vllm", "sglang/": "sglang", "tensorrt_llm/": "tensorrt-llm"}
    return next((name for folder, name in engines.items() if folder in frame), None)


def _cut(frames: HostEvents, rows: Int64s) -> Bools:
    """Which frames end with the trace, together with a frame that began before them."""
    last_ns = frames.end_ns.max()
    first = frames.start_ns[frames.end_ns == last_ns].min()
    return np.asarray((frames.end_ns[rows] == last_ns) & (frames.start_ns[rows] > first))
