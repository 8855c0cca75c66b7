"""Steps whose products after a norm read x of two parts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decodescope.kernels.ops.rms_norm_integers import RmsNormIntegers
from decodescope.kernels.ops.rms_norm_pairs import RmsNormPairs
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.eager_step import EagerStep
from decodescope.variants.steps.fused.fused_step import FusedStep
from decodescope.variants.steps.fused.operations import step_operations
from tests.helpers.fused_steps import both, fused, ids_of, load_family, prompt_of
from tests.variants.model.grouped_checkpoints import LAYOUTS, save_packed

NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def launches(
    loaded: LoadedModel,
    spec: str,
    batch: int = 1,
    quantizer: type[RmsNormIntegers | RmsNormPairs] = RmsNormIntegers,
) -> list[str]:
    """The names of the norms that give x in two parts."""
    workload = DecodeWorkload(batch, 4, 5, NAMES[loaded.model.dtype])
    step = fused(loaded, workload, spec)
    placed = step_operations(step.plan)
    return [one.path[-1] for one in placed if isinstance(one.operation, quantizer)]


LAYER = ["input_norm", "post_attention_norm"]
ALL = [*LAYER, *LAYER, "final_norm"]


@pytest.mark.parametrize(
    ("family", "spec", "batch", "dtype", "expected"),
    [
        ("llama2", "fused+int4", 1, torch.bfloat16, ALL),
        ("llama-tied", "fused+int4_asym", 1, torch.bfloat16, []),
        ("llama2", "fused+int4_channel-qkv-rope-gate_up", 1, torch.bfloat16, ALL),
        ("llama2", "fused+int4_g32+head16", 1, torch.float16, ALL[:-1]),
        ("qwen3-moe", "fused+int4", 1, torch.bfloat16, [LAYER[0], LAYER[0], "final_norm"]),
        ("llama2", "fused+int4", 1, torch.float32, []),
        ("llama2", "fused+int4", 2, torch.bfloat16, []),
        ("llama2", "fused+mxfp4", 1, torch.bfloat16, []),
        ("llama2", "fused+int4-norm", 1, torch.bfloat16, []),
        # Behind a product with a norm of its own, one launch has both norms.
        ("olmo3", "fused+int4", 1, torch.bfloat16, []),
        ("llama-odd-hidden", "fused+int4", 1, torch.bfloat16, []),
    ],
)
def test_norms_that_give_integers(family, spec, batch, dtype, expected, device: str) -> None:
    assert launches(load_family(family, device, dtype), spec, batch) == expected


@pytest.mark.parametrize(
    ("family", "spec", "batch", "dtype", "expected"),
    [
        ("llama2", "fused+fp8_e4m3", 2, torch.bfloat16, ALL),
        ("llama2", "fused+fp8_e5m2", 2, torch.bfloat16, ALL),
        ("llama2", "fused+fp8_e4m3", 1, torch.bfloat16, []),
        # Of which a pair would lose digits.
        ("llama2", "fused+fp8_e4m3", 2, torch.float16, []),
        ("llama2", "fused+w8a8", 2, torch.bfloat16, []),
        ("llama2", "fused+fp8_e4m3+head16", 2, torch.bfloat16, ALL[:-1]),
        ("llama2", "fused+fp8_e4m3-norm", 2, torch.bfloat16, []),
        ("olmo3", "fused+fp8_e4m3", 2, torch.bfloat16, []),
        # Its norms are centered.
        ("cohere2", "fused+fp8_e4m3", 2, torch.bfloat16, []),
    ],
)
def test_launches_that_give_pairs(family, spec, batch, dtype, expected, device: str) -> None:
    loaded = load_family(family, device, dtype)
    assert launches(loaded, spec, batch, RmsNormPairs) == expected


@pytest.mark.parametrize("name", LAYOUTS)
def test_checkpoints(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    save_packed(tmp_path, layout)
    loaded = load_model(resolve_model(str(tmp_path)), "cpu", "bf16")
    chunks = layout.sizes.get("hidden_size", 96) % 32 == 0
    integers = layout.stays and chunks and "FP4" not in name
    # Their heads have 16 bits.
    assert launches(loaded, "fused") == (ALL[:-1] if integers else [])


@pytest.mark.parametrize(
    ("family", "format", "changes"),
    [
        ("llama2", "int4", {}),
        ("llama-biased", "int4_asym", {}),
        ("llama-tied", "int4_g64", {"hidden_size": 128}),
        ("qwen3", "int4_channel", {}),
    ],
)
def test_logits_are_as_near_as_without_integers(family, format, changes, device: str) -> None:
    """In fp16, to those of the same quantised model in fp32. Norms of their own give floats."""
    loaded = load_family(family, device, torch.float16, num_hidden_layers=1, **changes)
    workload = DecodeWorkload(1, 4, 9, "fp16")
    specs = f"fused+{format}", f"fused+{format}-norm"
    steps = [fused(loaded, workload, spec) for spec in specs]
    assert [launches(loaded, spec) for spec in specs] == [[*LAYER, "final_norm"], []]
    prompt = prompt_of(loaded, workload)
    ids = [ids_of(loaded, 1, seed) for seed in range(8)]

    def logits(step: FusedStep | EagerStep) -> torch.Tensor:
        step.prefill(prompt)
        return torch.cat([step.forced_step(each).double() for each in ids])

    integers, floats = map(logits, steps)
    loaded.model.float()
    expected = logits(EagerStep(loaded, replace(workload, dtype="fp32")))
    assert (integers - expected).norm() < 1.1 * (floats - expected).norm()


@pytest.mark.parametrize(("family", "format"), [("llama2", "fp8_e4m3"), ("qwen3", "fp8_e5m2")])
def test_logits_of_batches_are_as_near_as_those_of_transformers(
    family: str, format: str, device: str
) -> None:
    """In bfloat16, to those of the same quantised model in fp32."""
    loaded = load_family(family, device, torch.bfloat16, num_hidden_layers=1)
    workload = DecodeWorkload(5, 4, 9, "bf16")
    step = fused(loaded, workload, f"fused+{format}")
    prompt = prompt_of(loaded, workload)
    ids = [ids_of(loaded, 5, seed) for seed in range(8)]

    def logits(step: FusedStep | EagerStep) -> torch.Tensor:
        step.prefill(prompt)
        return torch.cat([step.forced_step(each).double() for each in ids])

    pairs, eager = logits(step), logits(EagerStep(loaded, workload))
    loaded.model.float()
    expected = logits(EagerStep(loaded, replace(workload, dtype="fp32")))
    # The interpreter truncates to bfloat16.
    most = 1.1 if device == "cuda" else 2
    assert (pairs - expected).norm() < most * (eager - expected).norm()


def test_experts_beside_an_mlp_keep_floating_point(device: str) -> None:
    loaded = load_family("gemma4-moe", device, torch.float16, hidden_size=96)
    steps = both(loaded, DecodeWorkload(1, 4, 3, "fp16"), "fused+int4_g32")
    # The first layer's attention, and the MLP of all tokens of each.
    assert launches(loaded, "fused+int4_g32") == ["input_norm"] * 3
    ids = ids_of(loaded, 1, 3)
    found, other = (one.forced_step(ids) for one in steps)
    # That of transformers' own sums in fp16.
    assert (found - other).norm() < 2e-3 * other.norm()
