"""The ways of transformers to multiply by experts: which one is taken, and where it is set."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.experts import (
    expert_counts,
    multiplying_by_experts,
    set_prompt_way,
    step_way,
)
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets
from tests.helpers import families


def without_memory(family: str, dtype: torch.dtype) -> Any:
    config = AutoConfig.for_model(**families.CONFIGS[family])
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


@pytest.mark.parametrize(
    ("batch", "dtype", "eager", "compiled"),
    [
        (1, torch.bfloat16, "batched_mm", "grouped_mm"),
        (16, torch.bfloat16, "batched_mm", "grouped_mm"),
        # Copies of more than 128 experts.
        (17, torch.bfloat16, None, "grouped_mm"),
        (17, torch.float16, None, "batched_mm"),
    ],
)
def test_the_way_of_a_step(
    batch: int, dtype: torch.dtype, eager: str | None, compiled: str
) -> None:
    model = build_random(presets()["qwen3-30b-a3b"], "meta", dtype)
    assert expert_counts(model.config) == (128, 8)
    assert step_way(model, batch, False) == eager
    assert step_way(model, batch, True) == compiled
    assert model.config._experts_implementation == "grouped_mm"


@pytest.mark.parametrize(
    ("family", "dtype", "prompt"),
    [
        ("mixtral", torch.float32, "grouped_mm"),
        ("qwen3-moe", torch.float32, "grouped_mm"),
        # Rows of 40 bytes.
        ("qwen3-moe", torch.bfloat16, "eager"),
        ("qwen3-moe-of-all", torch.float32, "eager"),
    ],
)
def test_rows_that_torch_cannot_group_are_copied(
    family: str, dtype: torch.dtype, prompt: str
) -> None:
    model = without_memory(family, dtype)
    set_prompt_way(model)
    assert model.config._experts_implementation == prompt
    assert step_way(model, 64, False) == (None if prompt == "grouped_mm" else "batched_mm")
    assert step_way(model, 1, True) == "batched_mm"


def test_a_dense_model_and_one_on_the_cpu_stay_as_they_are() -> None:
    assert step_way(without_memory("llama2", torch.bfloat16), 1, True) is None
    mixture = families.build("mixtral")
    assert step_way(mixture, 1, False) is None
    with pytest.raises(KeyError, match="batched_mm"), multiplying_by_experts(mixture, "batched_mm"):
        raise KeyError(mixture.config._experts_implementation)
    assert mixture.config._experts_implementation == "eager"
