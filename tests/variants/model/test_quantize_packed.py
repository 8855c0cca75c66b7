"""Models whose Linear layers become 4 bits in place."""

import pytest
import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.weights import WeightMatrix, narrow_matrix, quantized_rows
from decodescope.variants.model.quantized_weights import (
    Quantization,
    QuantizedExperts,
    QuantizedLinear,
    dequantized_bytes,
    quantization_of,
)
from decodescope.variants.model.quantizing import is_quantized, planned_weights, quantize_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import StepFlops, model_bytes, weight_bytes_read
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.support import require_support
from tests.helpers import families
from tests.helpers.fused_steps import fused, load_family

FORMATS = ("int4_channel", "int4_asym", "nvfp4")


@pytest.mark.parametrize("format", FORMATS)
def test_the_modules_compute_with_the_matrices_that_the_kernels_read(format: str) -> None:
    family = "llama-odd-hidden"
    original, model = families.build(family), families.build(family)
    how = Quantization(format)
    quantize_model(family, model, how)
    assert is_quantized(model, how)
    assert not is_quantized(model, Quantization("int8"))
    replaced = 0
    for path, module in original.named_modules():
        mine = model.get_submodule(path)
        if isinstance(mine, QuantizedLinear):
            replaced += 1
            dense = WeightMatrix(mine.data, mine.scale, packing=mine.packing).dense(torch.float32)
            assert torch.equal(dense, narrow_matrix(module.weight, format).dense(torch.float32))
            module.weight = nn.Parameter(dense, requires_grad=False)
    assert replaced == 1 + sum(isinstance(m, nn.Linear) for m in original.model.layers.modules())
    assert isinstance(model.model.embed_tokens, nn.Embedding)
    ids = families.prompt_ids(family, 2, 9)
    assert torch.equal(model(ids).logits, original(ids).logits)


@pytest.mark.parametrize(("family", "format"), [("llama2", "nvfp4"), ("qwen3-moe", "int4_asym")])
def test_planned_memory_is_what_is_held(family: str, format: str) -> None:
    model = families.build(family, torch.bfloat16)
    planned = planned_weights(family, model, Quantization(format))
    flops = StepFlops(model, 1).at(5)
    quantize_model(family, model, Quantization(format))
    assert model_bytes(planned) == model_bytes(model)
    assert dequantized_bytes(planned) == dequantized_bytes(model) > 0
    assert StepFlops(model, 1).at(5) == flops


def test_bytes_of_a_step_by_hand(device: str) -> None:
    """llama-tied: 2 layers of hidden 100, 4 heads of 32, 2 KV heads, intermediate 136."""
    rows, columns = [128, 64, 64, 100, 136, 136, 100], [100, 100, 100, 128, 100, 100, 136]
    loaded = load_family("llama-tied", device, torch.bfloat16)
    step = fused(loaded, DecodeWorkload(1, 4, 5, "bf16"), "fused+int4")
    # Codes of whole chunks, and 16 bytes of scales: one of 100 or 128 columns, two of 136.
    row_bytes = {100: 64 + 16, 128: 64 + 16, 136: 80 + 16}
    layers = 2 * sum(r * row_bytes[c] for r, c in zip(rows, columns, strict=True))
    norms, head, embedding = 5 * 200, 101 * 80, 100 + 4
    assert weight_bytes_read(loaded.model, 1) == layers + norms + head + embedding
    assert step.weight_bytes_read == layers + norms + head + embedding


@pytest.mark.parametrize("family", ["llama-tied", "llama2"])
def test_the_embedding_table_has_8_bits_beside_4(family: str) -> None:
    original, model = families.build(family), families.build(family)
    how = quantization_of(VariantSpec.parse("fused+int4_g32"))
    assert how is not None
    planned = planned_weights(family, model, how)
    quantize_model(family, model, how)
    assert is_quantized(model, how)
    assert not is_quantized(model, Quantization("int4_g32"))
    assert model_bytes(planned) == model_bytes(model)
    table, head = model.model.embed_tokens, model.lm_head
    assert table.data.dtype == torch.int8
    rows, scale = quantized_rows(original.model.embed_tokens.weight, "int8")
    assert torch.equal(table.data, rows)
    assert torch.equal(table.scale, scale)
    # A tied head is rounded from the weights, not from the table's 8 bits.
    expected = narrow_matrix(original.lm_head.weight, "int4_g32").dense(torch.float32)
    mine = WeightMatrix(head.data, head.scale, packing=head.packing).dense(torch.float32)
    assert torch.equal(mine, expected)


def test_what_has_no_4_bits_is_refused() -> None:
    spec = VariantSpec.parse("fused+mxfp4")
    with pytest.raises(ModelError, match="cannot run gpt_oss with weights in mxfp4"):
        require_support("m", families.CONFIGS["gpt-oss"], 1, "cpu", spec)
    assert quantization_of(spec) == Quantization("mxfp4", embedding=True)


@pytest.mark.parametrize("way", ["eager", "batched_mm", "grouped_mm"])
def test_quantised_experts_are_what_transformers_multiplies_by(way: str) -> None:
    dense, model = families.build("mixtral"), families.build("mixtral")
    quantize_model("m", model, Quantization("nvfp4"))
    for path, module in model.named_modules():
        if isinstance(module, QuantizedExperts):
            scale = module.scale.flatten()
            matrix = WeightMatrix(module.data.flatten(0, 1), scale, packing=module.packing)
            held = dense.get_parameter(path)
            assert module.elements == held.numel()
            held.copy_(matrix.dense(torch.float32).view(held.shape))
        elif isinstance(module, QuantizedLinear):
            matrix = WeightMatrix(module.data, module.scale, packing=module.packing)
            dense.get_submodule(path).weight.copy_(matrix.dense(torch.float32))
    ids = families.prompt_ids("mixtral", 2, 5)
    for one in (model, dense):
        one.set_experts_implementation(way)
    assert torch.equal(model(ids).logits, dense(ids).logits)


def test_weights_beyond_every_scale_are_one_clear_line() -> None:
    model = families.build("llama2")
    model.model.layers[1].mlp.up_proj.weight[117, 3] = 1e7
    with pytest.raises(
        ModelError, match=r"layers\.1\.mlp\.up_proj: .*row 117 of the weights is bey"
    ):
        quantize_model("m", model, Quantization("int4"))
