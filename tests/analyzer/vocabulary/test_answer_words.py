"""The first lines of an answer, for every kind of knowledge about the step."""

from typing import Any

import pytest
from msgspec.structs import replace

from decodescope.analyzer.schema.answer import Answer, AnswerPart, HostFrame
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.vocabulary.answer_words import frame_words, lines_of

ANSWER = Answer(
    kind="decode",
    steps=9,
    step=3,
    step_ns=18_900_000,
    whole_ns=18_900_000,
    limit_ns=10_500_000,
    limit_bound="memory",
    model="llama-3-70b",
    model_source="named",
    bound="kernels",
    parts=(
        AnswerPart("gate_up", "kernels", 16_000_000, 10_500_000, 5_500_000, 16 / 18.9),
        AnswerPart("host_wait", "host", 2_900_000, None, 2_900_000, 2.9 / 18.9),
    ),
    because=("kernels: 5.50 ms over their limit", "waiting: 2.90 ms", "the limit is 10.5 ms"),
    next=("start with gate_up",),
)


def headline(tensor_parallel: int = 1, **changes: Any) -> str:
    return lines_of(replace(ANSWER, **changes), tensor_parallel=tensor_parallel).headline


def test_the_headline_says_step_limit_and_how_far_over_it() -> None:
    assert headline(4) == (
        "decode · 9 steps · 18.9 ms a step · limit 10.5 ms (llama-3-70b, TP 4) · x1.80 over"
    )
    assert headline(limit_is_lower_bound=True, model_source="guessed").endswith(
        "limit ≥ 10.5 ms (llama-3-70b?) · at most x1.80 over"
    )
    assert headline(limit_ns=None, model=None).endswith("a step · limit not known")
    assert headline(model_source="capture").endswith(" · limit 10.5 ms · x1.80 over")
    assert "10.5 ms (shapes in the trace) · x" in headline(model=None, model_source="shapes")


def test_a_step_without_the_profiler_is_named_and_judged() -> None:
    cost = AnswerPart("profiler", "profiler", 8_400_000, None, 8_400_000, 8.4 / 18.9)
    kernels = AnswerPart("gate_up", "kernels", 10_500_000, 10_500_000, 0, 10.5 / 18.9)
    shown = headline(
        parts=(kernels, cost), unprofiled_step_ns=10_400_000, tokens_per_s=96.15, batch=1
    )
    assert " · unprofiled 10.4 ms · 96.2 tokens/s · " in shown
    assert shown.endswith("x1.00 over")


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"kind": "unknown", "steps": 1}, "1 step · 18.9 ms a step · "),
        ({"kind": "prefill"}, "prefill · 9 steps · 18.9 ms a step · "),
        ({"step": None, "step_ns": None, "kind": "unknown"}, "no steps · 18.9 ms in all · "),
    ],
)
def test_no_headline_of_a_trace_with_ops_says_unknown(changes: dict[str, Any], start: str) -> None:
    shown = headline(**changes)
    assert shown.startswith(start)
    assert "unknown" not in shown


def test_a_trace_without_ops_has_a_headline() -> None:
    assert lines_of(Answer()) == lines_of(Answer())
    assert (lines_of(Answer()).headline, lines_of(Answer()).reasons) == ("no timed GPU ops", ())


def test_the_reason_that_decides_is_the_first() -> None:
    kernels = lines_of(ANSWER).reasons
    assert kernels[0] == "kernel-bound; kernels: 5.50 ms over their limit"
    assert kernels[1:] == ("waiting: 2.90 ms", "the limit is 10.5 ms")
    cpu = replace(ANSWER, bound="unknown", because=("device: cpu",))
    assert lines_of(cpu).reasons == ("device: cpu",)


def test_a_refused_model_is_in_the_lines() -> None:
    findings = [Finding("other", "x"), Finding("model_not_used", "it has 32 layers, not 24")]
    assert lines_of(ANSWER, findings).refused == ("it has 32 layers, not 24",)
    assert lines_of(ANSWER, findings[:1]).refused == ()


def test_other_steps_and_interruptions_are_set_apart() -> None:
    rows = [
        StepKindReport("decode", 9, 16, None, None, 18_900_000),
        StepKindReport("prefill", 1, 1, None, None, 84_000_000),
        StepKindReport("decode", 2, 15, None, None, 17_000_000),
        StepKindReport("unknown", 3, None, None, None, 5_000),
        StepKindReport("draft", 3, None, None, None, 5_000),
    ]
    apart = replace(ANSWER, interruptions_ns=200_000)
    assert lines_of(apart, step_kinds=rows).apart == (
        "1 prefill step (84.0 ms), 2 decode steps of batch 15 (17.0 ms), 3 steps (5.00 µs), "
        "1 more kinds, 200 µs of interruptions"
    )
    assert lines_of(ANSWER, step_kinds=rows[:1]).apart == ""


def test_the_host_is_named_where_it_decides() -> None:
    frames = (
        HostFrame("core.py(410): step", "aten::mul", None, 2_000_000),
        HostFrame(None, "aten::add", "cudaLaunchKernel", 500_000),
        HostFrame("other.py(1): g", None, None, 1_000),
    )
    late = replace(ANSWER, bound="host", host=frames)
    assert lines_of(late).host == (
        "the host was in core.py(410): step (2.00 ms), aten::add · cudaLaunchKernel (500 µs)"
    )
    assert lines_of(replace(late, bound="kernels")).host == ""
    assert lines_of(replace(late, host=())).host == ""


def test_a_prefill_step_generates_no_tokens_per_second() -> None:
    changes = {"tokens_per_s": 11.8, "batch": 1}
    assert "tokens/s" in headline(**changes)
    assert "tokens/s" not in headline(kind="prefill", **changes)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (HostFrame("a.py(3): f", "aten::mul", "cudaLaunchKernel", 5), "a.py(3): f"),
        (HostFrame(None, "aten::mul", "cudaLaunchKernel", 5), "aten::mul · cudaLaunchKernel"),
        (HostFrame(None, None, "cudaLaunchKernel", 5), "cudaLaunchKernel"),
    ],
)
def test_what_the_host_did(host: HostFrame, words: str) -> None:
    assert frame_words(host) == words
