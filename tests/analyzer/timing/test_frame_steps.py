"""Steps of engines that only their Python frames mark, and the kinds of these steps."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.timing.frame_steps import find_frame_steps
from decodescope.analyzer.timing.launches import find_launch_calls
from decodescope.analyzer.timing.step_kinds import kinds_of
from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of

VLLM = "vllm/v1/worker/gpu_model_runner.py(1002): execute_model"
SAMPLE = "vllm/v1/worker/gpu_model_runner.py(1100): sample_tokens"
WORKER = "vllm/v1/worker/gpu_worker.py(263): execute_model"
SGLANG = "/sgl-workspace/sglang/python/sglang/srt/"
RUN_BATCH = f"{SGLANG}managers/scheduler.py(1980): run_batch"
DECODE = f"{SGLANG}model_executor/model_runner.py(1700): forward_decode"
EXTEND = f"{SGLANG}model_executor/model_runner.py(1720): forward_extend"
REPLAY = f"{SGLANG}model_executor/cuda_graph_runner.py(800): replay"
FORWARD = "tensorrt_llm/_torch/pyexecutor/py_executor.py(1300): _forward_step"
LAYER = (
    "rms_norm_kernel",
    "gemm_qkv",
    "reshape_and_cache_flash_kernel",
    "flash_fwd_kernel",
    "gemm_o",
    "act_and_mul_kernel",
)


def frame(start: int, end: int, name: str, *, tid: int = 1, pid: int = PID) -> Event:
    return event("python_function", name, start, end, pid, tid)


@dataclass(frozen=True)
class Step:
    """A step of `frames` (outermost first), whose kernels take `length` ns each; `tokens` are the
    blocks of the one that writes the cache, which has no launch shape if there are none."""

    frames: Sequence[str] = (VLLM,)
    length: int = 900
    tokens: int | None = None
    attention: str = LAYER[3]
    layers: int = 4


DECODING = Step(tokens=1)
PREFILL = Step(tokens=1049, length=5_000, attention="flash_fwd_prompt_kernel")


def events_of(
    *steps: Step, tid: int = 1, begin: int = 1_000, device: int = 0, period: int = 200_000
) -> list[Event]:
    """The steps one after another, `period` apart on the host and on the device."""
    events: list[Event] = []
    for index, step in enumerate(steps):
        at = begin + index * period
        number = 10_000_000 * tid + at
        events += [
            frame(at + k, at + 50_000 - k, name, tid=tid) for k, name in enumerate(step.frames)
        ]
        start = at + 2_000
        for place, name in enumerate(LAYER * step.layers):
            number += 1
            shown = step.attention if name == LAYER[3] else name
            blocks = {"grid": [step.tokens, 1, 1], "block": [64, 1, 1]}
            shape = blocks if name == LAYER[2] and step.tokens else {}
            events.append(call(at + 100 * place + 20, at + 100 * place + 70, number, tid=tid))
            events.append(
                op(start, start + step.length, number, name=shown, device=device, **shape)
            )
            start += step.length + 100
    return events


def nothing_launched(at: int, tid: int = 1) -> list[Event]:
    return [frame(at, at + 500, VLLM, tid=tid)]


def kinds(analysis: Analysis) -> list[str]:
    return [one.kind for one in kinds_of(analysis.trace, analysis.steps)]


def test_a_prefill_and_nine_decode_steps_of_vllm() -> None:
    events = events_of(PREFILL, *[DECODING] * 9) + nothing_launched(2_100_000)
    outer = [{**one, "name": WORKER} for one in events if one["name"] == VLLM]
    analysis = analyze(trace_of(*events, *outer))
    assert (analysis.steps.source, len(analysis.steps)) == ("frames", 10)
    assert kinds(analysis) == ["prefill", *["decode"] * 9]
    assert analysis.steps.gpu_ops.tolist() == [24] * 10
    assert analysis.steps.following.tolist() == [*range(1, 10), -1]
    assert set(analysis.steps.time_ns[:9].tolist()) == {200_000}
    rows = {row.kind: (row.steps, row.query_tokens) for row in analysis.report.step_kinds}
    assert rows == {"decode": (9, 1), "prefill": (1, 1049)}
    assert {one.engine for one in kinds_of(analysis.trace, analysis.steps)} == {"vllm"}
    assert {step.name for step in analysis.report.steps} == {"execute_model"}
    assert analysis.report.health.status == "ok"
    (finding,) = analysis.report.health.findings
    assert finding.code == "inferred_steps"
    assert "10 steps were found by Python frames" in finding.message


@pytest.mark.parametrize("at", [0, 4, 9])
def test_without_launch_shapes_a_prefill_takes_longer_and_has_other_attention(at: int) -> None:
    decode, prefill = Step(), Step(length=5_000, attention="flash_fwd_prompt_kernel")
    steps = [decode] * 9
    steps.insert(at, prefill)
    analysis = analyze(trace_of(*events_of(*steps)))
    assert [index for index, kind in enumerate(kinds(analysis)) if kind == "prefill"] == [at]
    assert kinds(analysis).count("decode") == 9
    alike = analyze(trace_of(*events_of(*[decode] * 8, Step(length=5_000), decode)))
    assert kinds(alike) == ["unknown"] * 10
    only_others = analyze(trace_of(*events_of(*[decode] * 8, Step(attention="attention_b"))))
    assert kinds(only_others) == ["unknown"] * 9


def test_kernels_made_for_decoding_tell_the_kind() -> None:
    paged = Step(attention="paged_attention_ll4mi_QKV_mfma16_kernel")
    assert kinds(analyze(trace_of(*events_of(paged, paged)))) == ["decode"] * 2
    large = Step(attention="paged_attention_ll4mi_QKV_mfma16_kernel", tokens=2_048)
    assert kinds(analyze(trace_of(*events_of(large)))) == ["decode"]
    assert kinds(analyze(trace_of(*events_of(Step(layers=0, tokens=1))))) == []


def test_steps_that_repetition_shows_have_kinds_too() -> None:
    events = events_of(*[Step(("x.py(1): f",), tokens=1)] * 4)
    kernels = [one for one in events if one["cat"] == "kernel"]
    for first in kernels[:: len(kernels) // 4]:
        first["name"] = "embedding_kernel"
    analysis = analyze(trace_of(*events))
    assert (analysis.steps.source, set(kinds(analysis))) == ("repetition", {"decode"})


def test_one_step_and_only_a_prefill() -> None:
    one = analyze(trace_of(*events_of(DECODING)))
    assert (one.steps.source, kinds(one), one.steps.following.tolist()) == (
        "frames",
        ["decode"],
        [-1],
    )
    assert kinds(analyze(trace_of(*events_of(PREFILL)))) == ["prefill"]
    assert kinds(analyze(trace_of(*events_of(Step(tokens=700))))) == ["unknown"]


def test_no_frame_of_an_engine_is_no_step() -> None:
    trace = trace_of(*events_of(Step(frames=("model.py(3): execute_model", "run.py(9): step"))))
    assert len(trace.frames) == 2
    assert analyze(trace).steps.source == "none"
    assert find_frame_steps(trace, find_launch_calls(trace)) is None


def test_sampling_after_the_model_belongs_to_its_step() -> None:
    events: list[Event] = []
    for step in range(3):
        events += events_of(DECODING, begin=1_000 + 200_000 * step, tid=1)
        at = 1_000 + 200_000 * step + 60_000
        events.append(frame(at, at + 5_000, SAMPLE))
        events.append(call(at + 10, at + 60, 900 + step))
        events.append(op(at + 1_000, at + 2_000, 900 + step, name="argmax_kernel"))
        events.append(call(at + 6_000, at + 6_100, 800 + step))
        events.append(op(at + 8_000, at + 8_500, 800 + step, name="logger_kernel"))
    analysis = analyze(trace_of(*events))
    assert analysis.steps.gpu_ops.tolist() == [25] * 3
    assert analysis.steps.host.length_ns.tolist() == [65_000] * 3
    outside = analysis.trace.ops.name[analysis.steps.op_step < 0]
    assert {analysis.trace.names[name] for name in outside} == {"logger_kernel"}


def test_sglang_tells_the_kind_by_its_frames() -> None:
    steps = [Step((RUN_BATCH, inner)) for inner in (EXTEND, REPLAY, DECODE, "x.py(1): forward")]
    verify = f"{SGLANG}speculative/eagle_worker.py(700): verify"
    draft = f"{SGLANG}speculative/eagle_worker.py(600): draft"
    steps += [Step((RUN_BATCH, verify, EXTEND)), Step((RUN_BATCH, draft, DECODE))]
    analysis = analyze(trace_of(*events_of(*steps)))
    assert kinds(analysis) == ["prefill", "decode", "decode", "unknown", "verify", "draft"]
    alone = analyze(trace_of(*events_of(Step((EXTEND,)), Step((DECODE,)), Step((DECODE,)))))
    assert kinds(alone) == ["prefill", "decode", "decode"]


def test_annotated_forwards_of_a_draft_worker_are_draft_steps() -> None:
    draft = f"{SGLANG}speculative/eagle_worker.py(600): draft"
    marks = ("step[DECODE bs=4]", "step[TARGET_VERIFY bs=4]", "step[DECODE bs=4]")
    spans = [
        span(1_010 + 200_000 * step, 50_000 + 200_000 * step, name)
        for step, name in enumerate(marks)
    ]
    events = events_of(Step((draft,)), Step((RUN_BATCH,)), Step((RUN_BATCH,)))
    other_thread = frame(400_000, 600_000, draft, tid=2)
    assert kinds(analyze(trace_of(*events, *spans, other_thread))) == ["draft", "verify", "decode"]


def test_frames_of_another_thread_launch_nothing() -> None:
    scheduler = [frame(0, 900_000, RUN_BATCH, tid=2)]
    analysis = analyze(trace_of(*scheduler, *events_of(Step((EXTEND,)), Step((DECODE,)))))
    assert kinds(analysis) == ["prefill", "decode"]


def test_tensorrt_llm_and_whole_microseconds() -> None:
    events = events_of(*[Step((FORWARD,), length=9_000)] * 3, period=500_000)
    for one in events:
        ts, dur = (int(one[key][1:-1].split(".")[0]) for key in ("ts", "dur"))
        one["ts"], one["dur"] = f"@{ts}.000@", f"@{max(dur, 1)}.000@"
    analysis = analyze(trace_of(*events))
    assert (analysis.steps.source, len(analysis.steps)) == ("frames", 3)
    assert analysis.steps.time_ns.tolist()[:2] == [500_000] * 2


def test_two_engines_on_two_threads_keep_their_steps() -> None:
    first = events_of(PREFILL, DECODING, DECODING, tid=1)
    second = events_of(DECODING, DECODING, tid=2, begin=71_000, device=1)
    analysis = analyze(trace_of(*first, *second))
    assert analysis.steps.device.tolist() == [0, 1, 0, 1, 0]
    assert analysis.steps.following.tolist() == [2, 3, 4, -1, -1]
    assert kinds(analysis) == ["prefill", "decode", "decode", "decode", "decode"]
    assert analysis.steps.gpu_ops.tolist() == [24] * 5


def test_steps_that_the_window_cut_are_none() -> None:
    """The profiler writes frames that were open when it began with thread 0, and ends those that
    are open when it stops with the trace."""
    head = events_of(DECODING)
    head[0] = {**head[0], "pid": 0, "tid": 0}
    whole = events_of(DECODING, DECODING, begin=200_000)
    tail = events_of(DECODING, begin=600_000)
    bootstrap = frame(0, 650_000, "threading.py(1032): _bootstrap", pid=0, tid=0)
    analysis = analyze(trace_of(bootstrap, *head, *whole, *tail))
    assert analysis.steps.host.start_ns.tolist() == [200_000, 400_000]
    longer = {**bootstrap, "dur": "@700.000@"}
    assert len(analyze(trace_of(longer, *head, *whole, *tail)).steps) == 3


def test_marks_of_an_annotation_go_before_frames() -> None:
    steps = [DECODING] * 3
    spans = [
        span(
            1_000 + 200_000 * step, 52_000 + 200_000 * step, "execute_context_0(0)_generation_4(4)"
        )
        for step in range(3)
    ]
    analysis = analyze(trace_of(*events_of(*steps), *spans))
    assert analysis.steps.source == "markers"
    assert [(row.kind, row.batch) for row in analysis.report.step_kinds] == [("decode", 4)]


def _reference(trace: Trace) -> list[int]:
    """The start of the step frame of each call, -1 for none, one call and one frame at a time."""
    frames, calls = trace.frames, trace.calls
    names = [trace.names[name] for name in frames.name.tolist()]
    launching = set(trace.ops.launch.tolist())

    def inside(row: int, outer: int) -> bool:
        same = frames.tid[row] == frames.tid[outer] and row != outer
        return bool(same and row > outer and frames.start_ns[row] < frames.end_ns[outer])

    ours = [row for row, name in enumerate(names) if name in (VLLM, SAMPLE)]
    top = [row for row in ours if not any(inside(row, other) for other in ours)]
    step_of_call = []
    for place in range(len(calls)):
        at, tid = calls.start_ns[place], calls.tid[place]
        around = [
            row
            for row in top
            if frames.tid[row] == tid and frames.start_ns[row] <= at < frames.end_ns[row]
        ]
        if not around:
            step_of_call.append(-1)
            continue
        before = [
            row for row in top if frames.tid[row] == tid and row <= around[0] and names[row] == VLLM
        ]
        step_of_call.append(before[-1] if before else -1)
    steps = {step for place, step in enumerate(step_of_call) if place in launching}
    last = frames.end_ns.max() if len(frames) else 0
    cut = {
        row
        for row in steps
        if row >= 0
        and frames.end_ns[row] == last
        and any(
            frames.end_ns[other] == last and frames.start_ns[other] < frames.start_ns[row]
            for other in range(len(frames))
        )
    }
    return [
        int(frames.start_ns[step]) if step in steps - cut and step >= 0 else -1
        for step in step_of_call
    ]


def nest(numbers: random.Random, start: int, end: int, tid: int, deep: int) -> list[Event]:
    """Frames in frames between two times of one thread, no two of the same start."""
    events: list[Event] = []
    at = start
    while at < end - 4:
        begin = numbers.randint(at + 1, end - 2)
        until = numbers.randint(begin + 1, end - 1)
        name = numbers.choice((VLLM, VLLM, SAMPLE, "core.py(9): step"))
        events.append(frame(begin, until, name, tid=tid))
        if deep:
            events += nest(numbers, begin, until, tid, deep - 1)
        at = until
    return events


@pytest.mark.parametrize("seed", range(60))
def test_each_call_belongs_to_the_frame_that_made_it(seed: int) -> None:
    numbers = random.Random(seed)
    events: list[Event] = []
    for tid in range(1, numbers.randint(2, 4)):
        events += nest(numbers, 0, 3_000, tid, 2)
        for index, at in enumerate(sorted(numbers.sample(range(3_000), 40))):
            number = 100 * tid + index
            events.append(call(at, at + 1, number, tid=tid))
            if numbers.random() < 0.3:
                events.append(op(5_000 + at, 5_002 + at, number))
    trace = trace_of(*events)
    steps = find_frame_steps(trace, find_launch_calls(trace))
    expected = _reference(trace)
    if steps is None:
        assert expected == [-1] * len(expected)
        return
    starts = np.append(steps.host.start_ns, -1)
    assert starts[steps.call_step].tolist() == expected
    for step, after in enumerate(steps.following.tolist()):
        tid = trace.frames.tid[steps.marker]
        later = [other for other in range(step + 1, len(tid)) if tid[other] == tid[step]]
        assert after == (later[0] if later else -1)
