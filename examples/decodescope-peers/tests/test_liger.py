"""The liger variant patches modules of its own, and leaves transformers' module as it was."""

import sys
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any

import pytest
import torch
from transformers.models.llama import modeling_llama

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.eager_step import EagerStep
from decodescope_peers.liger import build_liger

WORKLOAD = DecodeWorkload(1, 5, 8, "fp32")
PROMPT = torch.arange(3, 8)[None]
Load = Callable[..., Any]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for Liger: replaces what it replaces, by functions that count and compute the same."""
    found: list[str] = []
    rotation = modeling_llama.apply_rotary_pos_emb

    def rotate(*arguments: Any) -> Any:
        found.append("rope")
        return rotation(*arguments)

    def apply(fused_linear_cross_entropy: bool, model: Any) -> None:
        assert not fused_linear_cross_entropy
        modeling_llama.apply_rotary_pos_emb = rotate
        modeling_llama.LlamaMLP = object
        for layer in model.model.layers:

            def mlp(self: Any, x: torch.Tensor) -> Any:
                found.append("mlp")
                return type(self).forward(self, x)

            layer.mlp.forward = MethodType(mlp, layer.mlp)

    liger = ModuleType("liger_kernel.transformers")
    liger.apply_liger_kernel_to_llama = apply  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", liger)
    return found


def test_ligers_operators_run_in_its_step_and_nowhere_else(
    load_llama: Load, calls: list[str]
) -> None:
    loaded = load_llama()
    before = dict(vars(modeling_llama))
    step = build_liger(loaded, WORKLOAD)
    assert vars(modeling_llama) == before
    tokens = [step.prefill(PROMPT), *(step.step() for _ in range(3))]
    assert calls == ["rope", "mlp"] * 3 * 4
    assert vars(modeling_llama) == before
    eager = EagerStep(loaded, WORKLOAD)
    assert tokens == [eager.prefill(PROMPT), *(eager.step() for _ in range(3))]
    assert len(calls) == 2 * 3 * 4
    weight = step._model.model.layers[0].mlp.up_proj.weight
    assert weight is loaded.model.model.layers[0].mlp.up_proj.weight


def test_an_error_in_a_step_leaves_transformers_as_it_was(
    load_llama: Load, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = build_liger(load_llama(), WORKLOAD)
    before = dict(vars(modeling_llama))

    def fails(**_: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(step._model, "forward", fails)
    with pytest.raises(RuntimeError, match="no such kernel"):
        step.prefill(PROMPT)
    assert vars(modeling_llama) == before
    assert calls == []
