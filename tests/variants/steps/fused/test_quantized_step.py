"""The fused step of every narrow format against transformers on the same quantised model, in fp32,
and what it says of its bytes."""

import itertools

import pytest
import torch

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import PACKED_FORMATS
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import is_quantized
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec
from decodescope.variants.steps.fused.families import families as fused_families
from tests.helpers import families
from tests.helpers.fused_steps import assert_logits_agree, both, fused, ids_of, load_family

BYTE_FORMATS = [word for word in NARROW_WEIGHTS if word not in ("w8a8", *PACKED_FORMATS)]
# How a format's elements are read does not depend on the family, nor its blocks on the format: each
# family has one of the formats, and each format some families. Of 4 bits, what
# `test_packed_products.py` does not test: views of several matrices, rows that are scaled.
PAIRS = {
    *zip(families.BLOCKS, itertools.cycle(BYTE_FORMATS), strict=False),
    *itertools.product(("llama-odd-hidden", "gemma3"), BYTE_FORMATS),
    ("llama-odd-hidden", "int4_asym"),
    ("granite", "mxfp4"),
    ("gemma3", "nvfp4"),
}
CONTEXT = families.ORIGINAL_MAX - 2
QUANTIZABLE = [
    name
    for name, config in families.CONFIGS.items()
    if fused_families()[config["model_type"]].quantizable
]

GRAPHS = [
    *itertools.product(QUANTIZABLE, BYTE_FORMATS),
    *zip(families.FAMILIES, itertools.cycle(PACKED_FORMATS), strict=False),
]


def assert_agrees(family: str, spec: str, batch: int, device: str, steps: int = 2) -> None:
    loaded = load_family(family, device)
    workload = DecodeWorkload(batch, CONTEXT, steps + 1, "fp32")
    step, eager = both(loaded, workload, spec)
    quantization = quantization_of(VariantSpec.parse(spec))
    assert quantization is not None
    assert is_quantized(loaded.model, quantization)
    for seed in range(steps):
        ids = ids_of(loaded, batch, seed)
        assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


@pytest.mark.parametrize(("family", "format"), sorted(PAIRS))
def test_every_family_and_every_format(format: str, family: str, device: str) -> None:
    assert_agrees(family, f"fused+{format}", 1, device, steps=1)


@pytest.mark.parametrize(
    ("family", "format", "batch"),
    [
        *(("qwen3-moe", format, 1) for format in BYTE_FORMATS),
        ("qwen3-moe", "fp8_e4m3", 3),
        ("qwen3-moe-some-dense", "int8", 3),
        ("qwen2-moe", "fp8_e4m3", 3),
        ("glm4-moe", "int8", 1),
        ("qwen3-moe-of-all", "int8", 1),
        ("qwen3-moe-of-one", "fp8_e5m2", 1),
        ("mixtral", "fp8_e4m3", 1),
        ("mixtral", "int8", 5),
        ("qwen3-moe", "int4", 1),
        ("qwen2-moe", "mxfp4", 3),
        ("glm4-moe", "nvfp4", 1),
        ("gemma4-moe", "fp8_e4m3", 1),
        ("gemma4-moe", "int8", 3),
        ("gemma4-moe", "int4", 1),
    ],
)
def test_experts(family: str, format: str, batch: int, device: str) -> None:
    assert_agrees(family, f"fused+{format}", batch, device, steps=1)


@pytest.mark.gpu
@pytest.mark.parametrize(("family", "format"), GRAPHS)
@pytest.mark.parametrize("batch", [1, 5])
def test_every_family_as_a_graph(format: str, family: str, batch: int) -> None:
    assert_agrees(family, f"fused+graph+{format}", batch, "cuda", steps=12)


@pytest.mark.parametrize(
    "words", ["int8+head16", "int8+embedding8", "int8+head16+embedding8", "int4_g32+embedding16"]
)
@pytest.mark.parametrize("family", ["llama-tied", "llama-odd-hidden"])
def test_head_and_embedding_are_chosen(family: str, words: str, device: str) -> None:
    assert_agrees(family, f"fused+{words}", 1, device, steps=1)


@pytest.mark.parametrize(
    ("family", "left_out"),
    [
        *(("qwen2", part) for part in ("qkv", "rope", "gate_up", "head", "residual", "norm")),
        ("qwen2-moe", "gate_up-residual"),
    ],
)
def test_parts_can_be_left_out(family: str, left_out: str, device: str) -> None:
    assert_agrees(family, f"fused+fp8_e4m3-{left_out}", 1, device, steps=1)


@pytest.mark.parametrize(
    ("family", "format", "batch"),
    [
        ("qwen2", "fp8_e4m3", 3),
        ("qwen2", "int8", 17),
        ("llama-tied", "fp8_e5m2", 33),
        ("qwen2", "int4_g32", 3),
    ],
)
def test_a_batch(family: str, format: str, batch: int, device: str) -> None:
    assert_agrees(family, f"fused+{format}", batch, device, steps=1)


@pytest.mark.parametrize("words", ["", "+head16", "+embedding8"])
@pytest.mark.parametrize("family", ["llama-tied", "qwen2", "llama-biased", "llama2", "qwen3-moe"])
def test_a_step_counts_the_bytes_that_are_stored(family: str, words: str, device: str) -> None:
    loaded = load_family(family, device, torch.bfloat16)
    step = fused(loaded, DecodeWorkload(3, 4, 5, "bf16"), f"fused+fp8_e4m3{words}")
    assert step.weight_bytes_read == weight_bytes_read(loaded.model, 3)
    rows = [one[..., 0, :].nbytes for one in (*step.plan.cache.k, *step.plan.cache.v)]
    assert step.kv_bytes_read(7) == 7 * sum(rows)


def test_bytes_are_those_of_the_experts_that_the_last_step_used(device: str) -> None:
    loaded = load_family("qwen3-moe", device)
    step = fused(loaded, DecodeWorkload(2, 4, 5, "fp32"), "fused+fp8_e4m3")
    step.prefill(torch.tensor([[5, 6, 7, 8], [8, 9, 3, 2]]))
    step.step()
    logits = step.plan.buffers.router_logits
    used = [{int(i) for row in layer for i in row.topk(3).indices} for layer in logits]
    expert = 40 * (96 + 4) + 96 * (20 + 4)
    others = step.weight_bytes_read - 2 * (7 - 16 / 7) * expert
    found = step.chosen_weight_bytes()
    assert found == pytest.approx(others + sum(map(len, used)) * expert, abs=1)
    dense = fused(load_family("qwen3", device), DecodeWorkload(2, 4, 5, "fp32"))
    assert dense.chosen_weight_bytes() == dense.weight_bytes_read


def test_bytes_by_hand(device: str) -> None:
    """llama-tied: hidden 100, 4 heads and 2 KV heads of 32, intermediate 136, vocabulary 101."""
    loaded = load_family("llama-tied", device, torch.bfloat16)
    step = fused(loaded, DecodeWorkload(1, 4, 5, "bf16"), "fused+fp8_e4m3")
    rows = 256 + 100 + 272 + 100
    layer = 256 * 100 + 100 * 128 + 272 * 100 + 100 * 136 + 4 * rows
    norms, head, embedding = 5 * 200, 101 * 100 + 4 * 101, 200
    assert step.weight_bytes_read == 2 * layer + norms + head + embedding


def test_merged_rows_are_the_modules_own_memory(device: str) -> None:
    loaded = load_family("qwen3", device)
    step = fused(loaded, DecodeWorkload(1, 4, 5, "fp32"), "fused+fp8_e4m3")
    attention = loaded.model.model.layers[1].self_attn
    qkv = step.plan.parts.layers[1].qkv
    modules = attention.q_proj, attention.k_proj, attention.v_proj
    first = 0
    for module in modules:
        rows = slice(first, first + len(module.data))
        assert module.data.data_ptr() == qkv.data[rows].data_ptr()
        assert qkv.scale is not None
        assert module.scale.data_ptr() == qkv.scale[rows].data_ptr()
        first += len(module.data)
    again = fused(loaded, DecodeWorkload(1, 4, 5, "fp32"), "fused+fp8_e4m3")
    assert again.plan.parts.layers[1].qkv.data.data_ptr() == qkv.data.data_ptr()


def test_matrices_of_two_formats_are_not_merged(device: str) -> None:
    loaded = load_family("llama2", device)
    other = load_family("llama2", device)
    fused(other, DecodeWorkload(1, 4, 5, "fp32"), "fused+int8")
    layer, theirs = loaded.model.model.layers[0], other.model.model.layers[0]
    layer.mlp.up_proj = theirs.mlp.up_proj
    with pytest.raises(ModelError, match=r"up_proj is int8.*as one matrix"):
        fused(loaded, DecodeWorkload(1, 4, 5, "fp32"))
