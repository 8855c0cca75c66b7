"""Models quantised in place: what is replaced, what it becomes, and what memory that takes."""

import gc
import itertools
import weakref
from operator import attrgetter
from typing import Any, get_args

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.weights import NARROW_DTYPES, ByteFormat, WeightMatrix, quantized_rows
from decodescope.variants.model import quantizing
from decodescope.variants.model.quantized_weights import (
    Quantization,
    QuantizedEmbedding,
    QuantizedExperts,
    QuantizedLinear,
    dequantized_bytes,
    quantization_of,
    quantized_formats,
    weight_tensors,
)
from decodescope.variants.model.quantizing import is_quantized, planned_weights, quantize_model
from decodescope.variants.model.workload_costs import model_bytes, weight_bytes_read
from decodescope.variants.spec import VariantSpec
from tests.helpers import families

WAYS = [
    *(Quantization(format) for format in get_args(ByteFormat)),
    Quantization("fp8_e5m2", scaled=False),
    Quantization("fp8_e4m3", head=False),
    Quantization("int8", embedding=True),
    Quantization("int8", head=False, embedding=True),
]
# Of a Llama layer.
LAYER_MATRICES = 7


def quantized(name: str, how: Quantization, dtype: torch.dtype = torch.float32) -> Any:
    model = families.build(name, dtype)
    quantize_model(name, model, how)
    return model


def held_bytes(model: Any) -> int:
    """Bytes of all memory behind the model's weights, each once."""
    storages = [tensor.untyped_storage() for tensor in weight_tensors(model)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


# What a family has besides its products does not depend on how they are stored.
PAIRS = [
    *zip(families.FAMILIES, itertools.cycle(WAYS), strict=False),
    *itertools.product(("llama2", "llama-tied"), WAYS),
]


@pytest.mark.parametrize(("family", "how"), PAIRS, ids=str)
def test_the_modules_compute_with_the_matrices_that_the_kernels_read(
    family: str, how: Quantization
) -> None:
    original = families.build(family)
    model = quantized(family, how)
    replaced = 0
    for path, module in original.named_modules():
        mine = model.get_submodule(path)
        if isinstance(module, nn.Linear | nn.Embedding) and type(mine) is not type(module):
            replaced += 1
            dense = WeightMatrix(mine.data, mine.scale).dense(torch.float32)
            expected = WeightMatrix(*quantized_rows(module.weight, how.format, how.scaled))
            assert torch.equal(dense, expected.dense(torch.float32))
            # The model that computes with these numbers in fp32.
            module.weight = nn.Parameter(dense, requires_grad=False)
    in_layers = sum(isinstance(part, nn.Linear) for part in original.model.layers.modules())
    assert in_layers >= 8
    assert replaced == in_layers + how.head + how.embedding
    ids = families.prompt_ids(family, 2, 9)
    assert torch.equal(model(ids).logits, original(ids).logits)


@pytest.mark.parametrize("family", ["llama-tied", "llama2"])
def test_the_default_leaves_the_embedding_as_it_is(family: str) -> None:
    model = quantized(family, Quantization("fp8_e4m3"), torch.bfloat16)
    table, head = model.model.embed_tokens, model.lm_head
    assert isinstance(table, nn.Embedding)
    assert table.weight.dtype == torch.bfloat16
    assert isinstance(head, QuantizedLinear)
    assert head.data.dtype == torch.float8_e4m3fn
    assert model.dtype == torch.bfloat16


def test_a_tied_embedding_and_head_share_one_matrix() -> None:
    model = quantized("llama-tied", Quantization("int8", embedding=True))
    table, head = model.model.embed_tokens, model.lm_head
    assert isinstance(table, QuantizedEmbedding)
    assert isinstance(head, QuantizedLinear)
    assert table.data is head.data
    assert table.scale is head.scale
    one_stays = quantized("llama-tied", Quantization("int8", head=False, embedding=True))
    assert isinstance(one_stays.lm_head, nn.Linear)
    assert isinstance(one_stays.model.embed_tokens, QuantizedEmbedding)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_a_product_rounds_each_weight_once(how: Quantization, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    data, scale = quantized_rows(torch.randn(33, 40), how.format, how.scaled)
    bias = nn.Parameter(torch.randn(33, dtype=dtype), requires_grad=False)
    x = torch.randn(2, 5, 40, dtype=dtype)
    weights = WeightMatrix(data, scale).dense().to(dtype)
    expected = torch.nn.functional.linear(x, weights, bias)
    assert torch.equal(QuantizedLinear(data, scale, bias)(x), expected)
    ids = torch.tensor([[0, 32, 5], [5, 5, 1]])
    assert torch.equal(QuantizedEmbedding(data, scale, dtype)(ids), weights[ids])


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("family", ["llama-tied", "llama2", "qwen2", "llama-biased", "qwen3-moe"])
def test_bytes_are_those_that_are_held(family: str, how: Quantization) -> None:
    config = AutoConfig.for_model(**families.CONFIGS[family])
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    planned = planned_weights(family, skeleton, how)
    model = families.build(family, torch.bfloat16)
    before = model_bytes(model)
    assert before == model_bytes(skeleton) == held_bytes(model)
    assert model_bytes(planned_weights(family, model, how)) == model_bytes(planned) < before
    assert {weight.device.type for weight in model.parameters()} == {"cpu"}
    quantize_model(family, model, how)
    assert model_bytes(planned) == model_bytes(model) == held_bytes(model)
    assert dequantized_bytes(planned) == dequantized_bytes(model) > 0
    # Elements of one byte, and their scales.
    one = model.model.layers[0].self_attn.o_proj
    assert sum(t.nbytes for t in one.tensors) == one.data.numel() + 4 * how.scaled * len(one.data)


def test_bytes_of_a_step_by_hand() -> None:
    """llama-tied: 2 layers of hidden 100, 4 heads of 32, 2 KV heads, intermediate 136."""
    rows, columns = [128, 64, 64, 100, 136, 136, 100], [100, 100, 100, 128, 100, 100, 136]
    layers = 2 * sum(r * c + 4 * r for r, c in zip(rows, columns, strict=True))
    norms, table, row = 5 * 200, 101 * 200, 200
    model = quantized("llama-tied", Quantization("fp8_e4m3"), torch.bfloat16)
    head = 101 * 100 + 4 * 101
    assert weight_bytes_read(model, 3) == layers + norms + head + 3 * row
    assert model_bytes(model) == layers + norms + head + table
    model = quantized("llama-tied", Quantization("fp8_e4m3", head=False), torch.bfloat16)
    assert weight_bytes_read(model, 3) == layers + norms + table + 3 * row
    model = quantized("llama-tied", Quantization("fp8_e4m3", embedding=True), torch.bfloat16)
    assert weight_bytes_read(model, 3) == layers + norms + head + 3 * (100 + 4)
    assert model_bytes(model) == layers + norms + head


@pytest.mark.parametrize("merged", [False, True])
def test_each_weight_is_freed_before_the_next_layer(
    merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = "qwen2"
    model = families.build(family, torch.bfloat16)
    if merged:
        from decodescope.variants.steps.fused.model_parts import fused_model

        fused_model(model)
    before, layer_bytes = held_bytes(model), model_bytes(model.model.layers[0])
    weights = {
        path: weakref.ref(module.weight)
        for path, module in model.model.layers.named_modules()
        if isinstance(module, nn.Linear)
    }
    peaks, alive = [], []

    def counted(matrix: torch.Tensor, *how: Any) -> Any:
        made = quantized_rows(matrix, *how)
        peaks.append(held_bytes(model) + sum(t.nbytes for t in made if t is not None))
        return made

    def say(stage: str) -> None:
        alive.append({path[0] for path, weight in weights.items() if weight() is not None})

    monkeypatch.setattr(quantizing, "quantized_rows", counted)
    quantize_model(family, model, Quantization("fp8_e4m3"), say)
    assert alive == [{"0", "1"}, {"1"}, set()]
    assert max(peaks) <= before + layer_bytes
    # Each layer leaves the memory for its own elements behind.
    assert peaks[LAYER_MATRICES] < before
    assert all(weight() is None for weight in weights.values())


@pytest.mark.parametrize("way", ["eager", "batched_mm", "grouped_mm"])
@pytest.mark.parametrize("format", get_args(ByteFormat))
def test_quantised_experts_are_what_transformers_multiplies_by(
    format: ByteFormat, way: str
) -> None:
    """Every way of transformers gives the logits of the same matrices in fp32."""
    dense = families.build("mixtral")
    model = families.build("mixtral")
    quantize_model("m", model, Quantization(format))
    for path, module in model.named_modules():
        if isinstance(module, QuantizedExperts):
            assert module.data.shape[0] == 4
            matrix = module.data.float() * module.scale[..., None]
            attrgetter(path)(dense).copy_(matrix)
        elif isinstance(module, QuantizedLinear):
            matrix = WeightMatrix(module.data, module.scale).dense(torch.float32)
            dense.get_submodule(path).weight.copy_(matrix)
    assert isinstance(model.model.layers[0].mlp.gate.weight, nn.Parameter)
    ids = families.prompt_ids("mixtral", 2, 5)
    for one in (model, dense):
        one.set_experts_implementation(way)
    assert torch.equal(model(ids).logits, dense(ids).logits)


def test_the_experts_of_a_layer_are_freed_before_the_next_layer() -> None:
    model, before = families.build("qwen3-moe"), families.build("qwen3-moe")
    experts = [weakref.ref(layer.mlp.experts.gate_up_proj) for layer in model.model.layers]
    alive = []

    def say(stage: str) -> None:
        alive.append([weight() is not None for weight in experts])

    quantize_model("m", model, Quantization("int8"), say)
    assert alive == [[True, True], [False, True], [False, False]]
    down, was = (m.model.layers[1].mlp.experts.down_proj for m in (model, before))
    assert down.scale.shape == (7, 96)
    torch.testing.assert_close(down.scale, was.abs().amax(-1) / 127)


def test_progress_names_layer_and_format() -> None:
    said: list[str] = []
    quantize_model("m", families.build("llama2"), Quantization("int8"), said.append)
    assert said == [
        "quantising to int8: layer 1 of 2",
        "quantising to int8: layer 2 of 2",
        "quantising to int8: embedding and head",
    ]


def test_large_matrices_are_quantised_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []

    def counted(matrix: torch.Tensor, *how: Any) -> Any:
        rows.append(len(matrix))
        return quantized_rows(matrix, *how)

    monkeypatch.setattr(quantizing, "quantized_rows", counted)
    monkeypatch.setattr(quantizing, "_BLOCK", 96 * 50 + 5)
    model = quantized("llama2", Quantization("fp8_e4m3"))
    monkeypatch.undo()
    whole = quantized("llama2", Quantization("fp8_e4m3"))
    assert max(rows) == 50
    for path in quantized_formats(whole):
        one, other = model.get_submodule(path), whole.get_submodule(path)
        assert torch.equal(one.data.float(), other.data.float())
        assert torch.equal(one.scale, other.scale)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("how", [Quantization("int8"), Quantization("fp8_e5m2", scaled=False)])
def test_a_weight_that_is_not_finite_is_one_clear_line(
    bad: float, how: Quantization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantizing, "_BLOCK", 960)
    model = families.build("llama2")
    model.model.layers[1].mlp.up_proj.weight[117, 3] = bad
    with pytest.raises(ModelError) as raised:
        quantize_model("some-model", model, how)
    assert str(raised.value) == (
        "some-model: model.layers.1.mlp.up_proj: row 117 has NaN or infinite values and cannot be "
        f"stored in {how.format}; download the checkpoint again"
    )


def test_a_second_call_changes_nothing_and_another_format_is_refused() -> None:
    model = quantized("llama2", Quantization("fp8_e4m3", head=False))
    assert is_quantized(model, Quantization("fp8_e4m3", head=False))
    assert not is_quantized(model, Quantization("fp8_e4m3"))
    down = model.model.layers[0].mlp.down_proj
    quantize_model("m", model, Quantization("fp8_e4m3"))
    assert model.model.layers[0].mlp.down_proj is down
    assert is_quantized(model, Quantization("fp8_e4m3"))
    with pytest.raises(ModelError, match=r"q_proj is stored in torch\.float8_e4m3fn.* int8"):
        quantize_model("m", model, Quantization("int8"))


@pytest.mark.parametrize("cast", ["float", "half", "bfloat16"])
def test_a_cast_of_the_model_leaves_stored_elements_alone(cast: str) -> None:
    model = quantized("llama2", Quantization("fp8_e5m2"), torch.bfloat16)
    getattr(model, cast)()
    down = model.model.layers[0].mlp.down_proj
    assert down.data.dtype == torch.float8_e5m2
    assert down.scale.dtype == torch.float32
    model.to("meta")
    assert down.data.is_meta
    assert down.scale.is_meta


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("eager", None),
        ("fused", None),
        ("fused+bf16", None),
        ("fused+graph+fp8_e4m3", Quantization("fp8_e4m3")),
        ("fused+fp8_e5m2_cast", Quantization("fp8_e5m2", scaled=False)),
        ("fused+int8+head16", Quantization("int8", head=False)),
        ("fused+w8a8+embedding8", Quantization("fp8_e4m3", embedding=True)),
        ("fused+nvfp4", Quantization("nvfp4", embedding=True)),
        ("fused+graph+nvfp4+embedding16", Quantization("nvfp4")),
    ],
)
def test_what_a_variant_stores(spec: str, expected: Quantization | None) -> None:
    assert quantization_of(VariantSpec.parse(spec)) == expected


def test_every_format_has_an_element_type() -> None:
    assert {how.stored for how in WAYS if how.scaled} == {
        (dtype, True) for dtype in NARROW_DTYPES.values()
    }


@pytest.mark.gpu
def test_on_a_gpu_the_peak_is_the_model_and_one_layer() -> None:
    from decodescope.variants.model.random_weights import build_random
    from decodescope.variants.model.source import presets

    # The model gets segments of its own, not rooms in larger ones that other tests have left.
    gc.collect()
    torch.cuda.empty_cache()
    model = build_random(presets()["llama-3.2-1b"].config, "cuda", torch.bfloat16)
    whole, layer = model_bytes(model), model_bytes(model.model.layers[0])
    gc.collect()
    torch.cuda.empty_cache()
    others, reserved = torch.cuda.memory_allocated() - whole, torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    how = Quantization("fp8_e4m3")
    expected = model_bytes(planned_weights("1b", model, how))
    quantize_model("1b", model, how)
    assert torch.cuda.max_memory_allocated() <= others + whole + layer
    assert torch.cuda.memory_allocated() == pytest.approx(others + expected, rel=0.01)
    # The driver has most of what was freed: other processes can use it.
    assert reserved - torch.cuda.memory_reserved() >= 0.75 * (whole - expected)
