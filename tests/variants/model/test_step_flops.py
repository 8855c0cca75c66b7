"""FLOPs of a step against PyTorch's own FLOP counter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import StepFlops
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers import families
from tests.helpers.fused_steps import load_family


def counted(loaded: Any, workload: DecodeWorkload, steps: int) -> list[int]:
    """FLOPs of each of `steps` steps, as counted by PyTorch in plain attention.

    Without the rotary angles, which some versions of transformers compute as a matrix product.
    """
    loaded.model.set_attn_implementation("eager")
    step = EagerStep(loaded, workload)
    step.prefill(torch.ones(workload.batch, workload.context, dtype=torch.int64))
    totals = []
    for _ in range(steps):
        with FlopCounterMode(display=False) as counter:
            step.step()
        by_module = counter.get_flop_counts()
        rotary = [name for name in by_module if name.endswith("rotary_emb")]
        angles = sum(sum(by_module[name].values()) for name in rotary)
        totals.append(counter.get_total_flops() - angles)
    return totals


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_flops_equal_those_that_pytorch_counts(
    load_small: Callable[..., Any], architecture: str, tied: bool, batch: int
) -> None:
    loaded = load_small(architecture, tie_word_embeddings=tied)
    flops = StepFlops(loaded.model, batch)
    found = counted(loaded, DecodeWorkload(batch, 7, 5, "fp32"), 5)
    assert found == [flops.at(position) for position in range(7, 12)]


@pytest.mark.parametrize("family", families.MIXTURES)
def test_flops_of_experts_are_those_of_the_chosen_ones(family: str) -> None:
    loaded = load_family(family, "cpu")
    found = counted(loaded, DecodeWorkload(2, 3, 3, "fp32"), 3)
    assert found == [StepFlops(loaded.model, 2).at(position) for position in range(3, 6)]


def test_a_sliding_window_bounds_attention(load_small: Callable[..., Any]) -> None:
    loaded = load_small("mistral", sliding_window=6)
    flops = StepFlops(loaded.model, 2)
    found = counted(loaded, DecodeWorkload(2, 3, 9, "fp32"), 9)
    assert found == [flops.at(position) for position in range(3, 12)]
    assert flops.at(5) == flops.at(20) > flops.at(4)


def test_convolution_layers_of_gpt2_and_its_position_table() -> None:
    config = AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=2, vocab_size=50)
    config.bos_token_id = config.eos_token_id = 1
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    loaded = LoadedModel(model, None, "random", "gpt2", 64)
    found = counted(loaded, DecodeWorkload(2, 4, 3, "fp32"), 3)
    assert found == [StepFlops(model, 2).at(position) for position in range(4, 7)]


def test_llama_1b_by_hand() -> None:
    model = build_random(presets()["llama-3.2-1b"].config, "meta", torch.bfloat16)
    weights = 16 * (2 * 2048 * 2048 + 2 * 512 * 2048 + 3 * 8192 * 2048) + 128_256 * 2048
    assert StepFlops(model, 1).at(128) == 2 * weights + 16 * 4 * 32 * 64 * 129
