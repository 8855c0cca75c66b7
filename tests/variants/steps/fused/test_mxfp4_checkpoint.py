"""Checkpoints whose experts are stored in MXFP4, as gpt-oss' are."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.mxfp4_experts import packed_experts
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import StepFlops, weight_bytes_read
from decodescope.variants.steps.fused.support import unsupported_fields
from tests.helpers import families
from tests.helpers.fused_steps import assert_logits_agree, both, decoded, ids_of

FIELDS = families.CONFIGS["gpt-oss"] | {
    "intermediate_size": 64,
    "quantization_config": {"quant_method": "mxfp4"},
}
DENSE_FIELDS = {key: value for key, value in FIELDS.items() if key != "quantization_config"}
WORKLOAD = DecodeWorkload(1, families.ORIGINAL_MAX + 3, 3, "fp32")


def stored() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors of a checkpoint, and those of the same model without packed experts."""
    dense = build_random(DENSE_FIELDS, "cpu", torch.float32).state_dict()
    tensors: dict[str, torch.Tensor] = {}
    generator = torch.Generator().manual_seed(1)
    for key, value in dense.items():
        if not key.endswith(("gate_up_proj", "down_proj")):
            tensors[key] = value
            continue
        experts, columns, rows = value.shape
        shape = experts, rows, columns // 32
        blocks = torch.randint(0, 256, (*shape, 16), generator=generator).to(torch.uint8)
        scales = torch.randint(121, 126, shape, generator=generator).to(torch.uint8)
        tensors |= {f"{key}_blocks": blocks, f"{key}_scales": scales}
        dense[key] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return tensors, dense


@pytest.fixture(scope="module")
def checkpoint() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return stored()


def write(folder: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> str:
    fields = FIELDS | {"architectures": ["GptOssForCausalLM"]} | changes
    (folder / "config.json").write_text(json.dumps(fields))
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


def test_experts_are_read_as_they_are(checkpoint, tmp_path: Path, device: str) -> None:
    tensors, dense = checkpoint
    loaded = load_model(resolve_model(write(tmp_path, tensors)), device, "fp32")
    assert "4 stacks of experts of the checkpoint (MXFP4) are read" in loaded.findings[0].message
    plain = build_random(DENSE_FIELDS, device, torch.float32)
    plain.load_state_dict(dense)
    for name, experts in packed_experts(loaded.model):
        expected = plain.get_parameter(name)
        assert torch.equal(experts[torch.tensor([2, 0])], expected[[2, 0]])
    ids = families.prompt_ids("gpt-oss", 1, 9).to(device)
    found, expected = (model(ids, use_cache=False).logits for model in (loaded.model, plain.eval()))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    forced = ids_of(loaded, 1, seed=5)
    for spec in ("fused-gate_up-residual", "fused"):
        step, eager = both(loaded, WORKLOAD, spec)
        assert_logits_agree(step.forced_step(forced), eager.forced_step(forced))
    assert torch.equal(step.step(), eager.step())
    # Three experts of two layers: 128 rows of 96 columns, and 96 of 64; scales in 16 bytes.
    saved = 2 * 3 * (128 * (96 * 4 - 96 // 2 - 16) + 96 * (64 * 4 - 64 // 2 - 16))
    assert step.weight_bytes_read == weight_bytes_read(plain, 1) - saved
    assert StepFlops(loaded.model, 1).at(7) == StepFlops(plain, 1).at(7)


@pytest.mark.parametrize(
    ("end", "change", "reason"),
    [
        ("_scales", None, "gate_up_proj_scales is missing in the weights"),
        ("_blocks", lambda value: value[:, :-1], r"is U8 \[5, 127, 3, 16\] in the weights"),
        ("_blocks", lambda value: value.int(), "is I32"),
        ("_scales", lambda value: value.fill_(255), "holds 255, beyond 131"),
    ],
)
def test_broken_experts_are_one_line(end, change, reason: str, checkpoint, tmp_path: Path) -> None:
    tensors = dict(checkpoint[0])
    key = f"model.layers.1.mlp.experts.gate_up_proj{end}"
    value = tensors.pop(key)
    if change is not None:
        tensors[key] = change(value.clone()).contiguous()
    with pytest.raises(ModelError, match=reason):
        load_model(resolve_model(write(tmp_path, tensors)), "cpu", "fp32")


def test_a_batch_decodes_as_transformers_beyond_the_window(
    checkpoint, tmp_path: Path, device: str
) -> None:
    loaded = load_model(resolve_model(write(tmp_path, checkpoint[0])), device, "fp32")
    step, eager = both(loaded, DecodeWorkload(2, families.WINDOW - 1, 4, "fp32"))
    assert torch.equal(decoded(step, 3), decoded(eager, 3))
    forced = ids_of(loaded, 2, seed=5)
    assert_logits_agree(step.forced_step(forced), eager.forced_step(forced))


def test_other_families_with_packed_experts_are_refused() -> None:
    other = families.CONFIGS["mixtral"] | {"quantization_config": {"quant_method": "mxfp4"}}
    assert "with model_type mixtral (only" in str(unsupported_fields(other))
