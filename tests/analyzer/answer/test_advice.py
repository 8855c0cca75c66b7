"""Advice fits the source: our own variants, an engine's options, or the kernel that loses most."""

from typing import Any

import pytest

from decodescope.analyzer.answer.advice import Circumstances, known_better, next_steps
from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.answers import part_of
from tests.helpers.comparison_reports import capture_of
from tests.helpers.read_once import analysed_once

KERNELS = (part_of("gate_up", 900, 2, 600), part_of("host_wait", 100))


def advised(**changes: Any) -> tuple[str, ...]:
    facts: dict[str, Any] = {
        "bound": "kernels",
        "parts": KERNELS,
        "engine": None,
        "capture": None,
        "late_label": None,
        "has_graphs": False,
        "per": " a step",
    }
    return tuple(next_steps(Circumstances(**(facts | changes))))


@pytest.mark.parametrize(
    ("variant", "less"),
    [
        ("fused+graph", "FP8 or INT8 weights, K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+kv_fp8_e5m2", "FP8 or INT8 weights, a shorter KV cache"),
        ("fused+graph+fp8_e4m3", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+int8+head16", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("torchao-fp8", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+w8a8+kv_fp8_e4m3", "a shorter KV cache"),
    ],
)
def test_advice_leaves_out_what_a_memory_bound_step_does_already(variant: str, less: str) -> None:
    capture = capture_of(1000, variant=variant)
    assert advised(bound="memory", capture=capture, engine="decodescope") == (
        f"only fewer bytes make it faster: {less}; a larger batch reads the weights once for more "
        "tokens",
    )


@pytest.mark.parametrize(
    ("label", "advice"),
    [
        ("python", "CUDA graph"),
        ("sync", ".item()"),
        ("allocation", "KV cache"),
        ("memcpy_api", "pinned"),
        ("other_api", "module loads"),
        (None, "CUDA graph"),
    ],
)
def test_a_host_bound_step_is_advised_by_what_the_host_does(label: str, advice: str) -> None:
    assert advice in advised(bound="host", late_label=label)[0]


def test_a_host_bound_graph_is_not_advised_to_become_one() -> None:
    assert advised(bound="host", late_label="python", has_graphs=True) == (
        "the step is a graph: launch the next replay before this one ends, without reading its "
        "token",
    )


@pytest.mark.parametrize(
    ("engine", "bound", "option"),
    [
        ("vllm", "host", "cudagraph_mode"),
        ("vllm", "communication", "fuse_allreduce_rms"),
        ("vllm", "memory", "--kv-cache-dtype fp8"),
        ("sglang", "host", "--cuda-graph-max-bs"),
        ("sglang", "communication", "--enable-flashinfer-allreduce-fusion"),
        ("tensorrt-llm", "host", "cuda_graph_config"),
    ],
)
def test_an_engines_step_is_advised_by_its_own_options(
    engine: str, bound: str, option: str
) -> None:
    (advice,) = advised(bound=bound, engine=engine)
    assert option in advice
    assert "variant" not in advice


def test_our_variants_are_named_for_our_own_runs_only() -> None:
    own = advised(bound="host", capture=capture_of(1000), engine="decodescope")
    assert "fused+graph" in own[0]
    assert "variant" not in advised(bound="host")[0]


def test_kernels_are_advised_by_the_part_that_loses_most() -> None:
    (advice,) = advised()
    assert advice.startswith("start with gate_up: 67% of its limit; 300 ns a step could go")
    assert "the kernel of fused+graph reaches 89% (llama-3.2-1b, bf16, batch 1, H200)" in advice
    near = (part_of("gate_up", 900, 2, 890), part_of("host_wait", 9))
    assert advised(parts=near) == ("start with gate_up: 99% of its limit; 10 ns a step could go",)
    window = advised(parts=near, per="")
    assert window == ("start with gate_up: 99% of its limit; 10 ns could go",)
    without_limit = (part_of("attention", 900, 2), part_of("host_wait", 100))
    assert advised(parts=without_limit)[0].startswith("start with attention: 900 ns a step")


def test_a_group_with_one_remedy_comes_before_kernels_that_lose_less_each() -> None:
    kernels = tuple(part_of(name, 60, 2) for name in ("attention", "norm", "rope"))
    idle = (part_of("host_wait", 50), part_of("launch_latency", 20))
    first, second = advised(parts=(*kernels, *idle))
    assert "CUDA graph" in first
    assert second.startswith("start with attention")
    (only,) = advised(parts=(*kernels, part_of("host_wait", 50)))
    assert only.startswith("start with attention")


def test_idle_time_of_unknown_cause_asks_for_the_hosts_calls() -> None:
    parts = (part_of("unlinked", 900), part_of("gate_up", 100, 2))
    assert advised(bound="host", parts=parts)[0].startswith("record the host's API calls")


def test_the_known_better_kernels_are_those_of_the_bundled_recording() -> None:
    """Their figures have the provenance of the recording: GPU, versions, commit."""
    path = next(p for p in bundled_recordings() if p.stem == "h200-llama-3.2-1b-fused+graph")
    parts = {part.part: part for part in analysed_once(path).report.answer.parts}
    for name, better in known_better().items():
        part = parts[name]
        assert part.limit_ns is not None
        assert better.of_limit == round(part.limit_ns / part.ns, 2)
