import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.variants.measuring.measure import measure_run, phases
from decodescope.variants.measuring.window import Subject
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.eager_step import EagerStep

Load = Callable[..., Any]


class BufferedStep(EagerStep):
    """Keeps its ids in one buffer; a reset scrambles those that later steps may overwrite."""

    def __init__(self, loaded: Any, workload: DecodeWorkload) -> None:
        super().__init__(loaded, workload)
        self._tokens = torch.zeros(workload.batch, workload.cache_length + 1, dtype=torch.int64)

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        return self._kept(super().prefill(ids))

    def step(self) -> torch.Tensor:
        return self._kept(super().step())

    def reset(self, position: int) -> None:
        super().reset(position)
        self._tokens[:, position + 1 :] = -1

    def _kept(self, ids: torch.Tensor) -> torch.Tensor:
        view = self._tokens[:, self.position]
        return view.copy_(ids)


def measured(
    loaded: Any,
    workload: DecodeWorkload,
    path: Path,
    build: Callable[[Any, DecodeWorkload], EagerStep] = EagerStep,
) -> Any:
    step = build(loaded, workload)
    session = ProfilerSession("cpu")
    session.warm_up()
    prompt = make_prompt(loaded, workload)
    return measure_run(step, Subject(loaded, workload, "cpu", "eager"), prompt, session, path)


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 12, 17, 18, 30])
def test_a_run_gives_the_tokens_of_greedy_generation(
    load_small: Load, tmp_path: Path, tokens: int
) -> None:
    loaded = load_small("llama", eos_token_id=None)
    result = measured(loaded, DecodeWorkload(2, 9, tokens, "fp32"), tmp_path / "window.json")

    prompt = make_prompt(loaded, DecodeWorkload(2, 9, tokens, "fp32"))
    expected = loaded.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
    )[:, 9:]
    assert result.output_token_ids == expected.tolist()
    assert len(result.step_ns) == phases(tokens).timed
    assert min(result.step_ns) > 0
    assert result.prefill_ns > 0


@pytest.mark.parametrize("tokens", [1, 12, 30])
def test_ids_are_copied_before_a_reset(load_small: Load, tmp_path: Path, tokens: int) -> None:
    loaded = load_small("llama", eos_token_id=None)
    results = [
        measured(loaded, DecodeWorkload(2, 9, tokens, "fp32"), tmp_path / "window.json", build)
        for build in (EagerStep, BufferedStep)
    ]
    assert results[0].output_token_ids == results[1].output_token_ids


@given(st.integers(1, 400))
def test_phases_fit_the_tokens(tokens: int) -> None:
    plan = phases(tokens)
    assert plan.timed >= 1
    assert plan.window.steps >= 1
    if plan.rewind:
        assert max(plan.warm_up, plan.timed, plan.window.total) <= tokens
    else:
        assert plan.warm_up + plan.timed + plan.window.total == tokens
        assert (plan.window.warm, plan.window.lead, plan.window.steps) == (1, 1, 3)


def test_a_long_run_visits_every_position_once(load_small: Load, tmp_path: Path) -> None:
    workload = DecodeWorkload(1, 9, 40, "fp32")
    result = measured(load_small("llama"), workload, tmp_path / "window.json")
    assert result.capture.position + result.capture.steps == workload.cache_length
    assert len(result.step_ns) == 40 - 5 - 1 - 1 - 3


def test_the_window_carries_the_unprofiled_step_time(load_small: Load, tmp_path: Path) -> None:
    workload = DecodeWorkload(2, 9, 12, "fp32")
    path = tmp_path / "window.json"
    result = measured(load_small("llama"), workload, path)
    info = result.capture
    assert (info.position, info.steps, info.context, info.batch) == (11, 3, 9, 2)
    assert info.unprofiled_step_ns is not None
    assert min(result.step_ns) <= info.unprofiled_step_ns <= max(result.step_ns)
    kv_position_bytes = 2 * 2 * 3 * 2 * 16 * 4
    assert info.bytes_per_step - result.bytes_per_step == (12 - 14.5) * kv_position_bytes

    trace = json.loads(path.read_bytes())
    names = [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert names.count("decode_step") == 3
    assert names.count("decode_lead") == trace["decodescope"]["lead_steps"] == 1
    assert names.count("layer.2") == 3 + 1
    assert trace["decodescope"]["position"] == 11

    report = analyze(load(path)).report
    assert len(report.steps) == 3
    by_path = {one.path: one.gpu_ops for one in report.ranges}
    assert by_path["decode_step"] == sum(one.gpu_ops for one in report.steps)
    assert by_path["decode_step"] == report.devices[0].gpu_ops


@pytest.mark.parametrize(
    ("tokens", "steps", "position"), [(1, 1, 9), (2, 1, 10), (3, 1, 11), (4, 2, 11)]
)
def test_short_runs_have_short_windows(
    load_small: Load, tmp_path: Path, tokens: int, steps: int, position: int
) -> None:
    workload = DecodeWorkload(1, 9, tokens, "fp32")
    result = measured(load_small("qwen3"), workload, tmp_path / "w.json")
    assert len(result.step_ns) == len(result.output_token_ids[0]) == tokens
    assert (result.capture.steps, result.capture.position) == (steps, position)


def test_ranges_are_off_again_after_an_error(load_small: Load, tmp_path: Path) -> None:
    loaded = load_small("llama")
    with pytest.raises(Exception, match="cannot be written"):
        measured(loaded, DecodeWorkload(1, 4, 4, "fp32"), tmp_path / "gone" / "w.json")
    assert not any(module._forward_hooks for module in loaded.model.modules())
