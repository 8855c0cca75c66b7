"""What a fused step launches, and the bytes that it reads."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.spec import FUSIONS
from decodescope.variants.steps.eager_step import EagerStep
from decodescope.variants.steps.fused.fused_step import FusedStep
from decodescope.variants.steps.fused.operations import step_operations, weight_bytes
from tests.helpers import families
from tests.helpers.fused_steps import fused, load_family


@pytest.mark.parametrize(
    ("words", "batch", "norms", "dtype"),
    [
        ("", 1, 0, torch.bfloat16),
        ("-norm", 1, 5, torch.bfloat16),
        ("", 2, 5, torch.bfloat16),
        ("+int8", 2, 5, torch.float16),
        ("+fp8_e4m3", 2, 0, torch.bfloat16),
        ("+int4", 2, 5, torch.float16),
        ("+w8a8", 2, 0, torch.bfloat16),
        ("+w8a8+head16", 2, 1, torch.bfloat16),
    ],
)
def test_norms_of_a_batch_are_launches_of_their_own(
    words: str, batch: int, norms: int, dtype: torch.dtype, device: str
) -> None:
    """Two layers and the head. Narrow weights take x in float16."""
    loaded = load_family("llama2", device, torch.bfloat16)
    step = fused(loaded, DecodeWorkload(batch, 3, 4, "bf16"), f"fused{words}")
    found = [
        (placed.path[-1], placed.operation.out.dtype)
        for placed in step_operations(step.plan)
        if isinstance(placed.operation, RmsNorm)
    ]
    paths = ["input_norm", "post_attention_norm"] * 2 + ["final_norm"]
    assert found == [(path, dtype) for path in (paths[-norms:] if norms else [])]


@pytest.mark.parametrize(
    ("family", "left_out", "launches"),
    [
        ("llama2", "", 5 * 2 + 2),
        ("llama2", "-gate_up", 7 * 2 + 2),
        ("llama2", "-residual", 7 * 2 + 2),
        ("phi3-partial", "", 5 * 2 + 2),
        ("granite", "", 5 * 2 + 2),
        ("olmo3", "", 7 * 2 + 2),
        ("gemma2", "", 7 * 2 + 2),
        ("gemma4", "", 7 * 2 + 2),
        ("gemma4-inputs", "", 11 * 4 + 5),
        ("gemma4-moe", "", 12 * 2 + 2),
        ("glm4", "", 7 * 2 + 2),
        ("cohere2", "", 6 * 2 + 3),
        ("qwen3-moe", "", 6 * 2 + 2),
        ("qwen3-moe", "-gate_up", 7 * 2 + 2),
        ("qwen3-moe", "-residual", 8 * 2 + 2),
    ],
)
def test_a_token_takes_as_few_launches_as_documented(
    family: str, left_out: str, launches: int
) -> None:
    workload = DecodeWorkload(1, 3, 4, "fp32")
    step = fused(load_family(family, "cpu"), workload, f"fused{left_out}")
    assert len(step_operations(step.plan)) == launches


@pytest.mark.parametrize("left_out", ["", *(f"-{part}" for part in FUSIONS), "-qkv-norm-residual"])
@pytest.mark.parametrize("family", ["mistral", "qwen3-biased"])
def test_bytes_read_are_those_of_any_variant(family: str, left_out: str) -> None:
    loaded = load_family(family, "cpu")
    workload = DecodeWorkload(2, 5, 3, "fp32")
    step, eager = fused(loaded, workload, f"fused{left_out}"), EagerStep(loaded, workload)
    assert step.weight_bytes_read == eager.weight_bytes_read
    assert step.kv_bytes_read(7) == eager.kv_bytes_read(7)
    assert step.ungraphed() is None


def folded_bytes(step: FusedStep, model: Any) -> int:
    """The bytes of vectors of the step's own, less those of the model that it does not read."""

    def vectors(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
        """Their bytes, by address."""
        return {one.data_ptr(): one.nbytes for one in tensors if one.dim() == 1}

    read = vectors(one for placed in step_operations(step.plan) for one in placed.operation.weights)
    return sum(read.values()) - sum(vectors(model.parameters()).values())


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        *((family, torch.bfloat16) for family in families.FAMILIES),
        ("gemma3", torch.float16),
        ("gemma3", torch.float32),
    ],
)
def test_the_matrices_a_step_reads_are_the_models(family: str, dtype: torch.dtype) -> None:
    loaded = load_family(family, "cpu", dtype)
    workload = DecodeWorkload(3, 5, 3)
    model_bytes = weight_bytes_read(loaded.model, 3)
    step = fused(loaded, workload)
    assert step.weight_bytes_read == model_bytes + folded_bytes(step, loaded.model)
    assert step.kv_bytes_read(9) == EagerStep(loaded, workload).kv_bytes_read(9)


@pytest.mark.parametrize("family", families.MIXTURES)
def test_of_a_mixture_all_is_read_but_experts_that_no_token_chooses(family: str) -> None:
    loaded = load_family(family, "cpu")
    step = fused(loaded, DecodeWorkload(1, 5, 3, "fp32"))
    # Its experts have a factor each, which are rows of scales in the step.
    factors = folded_bytes(step, loaded.model) if family == "gemma4-moe" else 0
    assert step.weight_bytes_read == weight_bytes_read(loaded.model, 1) + factors
    assert step.chosen_weight_bytes() == step.weight_bytes_read


def test_narrower_matrices_are_fewer_bytes() -> None:
    step = fused(load_family("llama2", "cpu"), DecodeWorkload(1, 5, 3, "fp32"))
    plan = step.plan
    layer = plan.parts.layers[0]
    narrow = WeightMatrix(layer.o.data.half(), torch.ones(layer.o.rows))
    layers = (replace(layer, o=narrow), *plan.parts.layers[1:])
    narrower = replace(plan, parts=replace(plan.parts, layers=layers))
    saved = layer.o.data.nbytes // 2 - 4 * layer.o.rows
    assert weight_bytes(step_operations(narrower)) == step.weight_bytes_read - saved
