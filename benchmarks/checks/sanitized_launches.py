"""Launches of every kernel, for compute-sanitizer, in parts for processes of their own."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gemm.gemm_contenders import tuned_gemms
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.kernels.kernel_cases import KernelCase, kernel_cases
from benchmarks.kernels.operands import Operands
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.exchange import Exchange, new_exchange, new_slots
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.packing import PackedName, packing_of
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import (
    ByteFormat,
    NarrowFormat,
    QkNorm,
    WeightMatrix,
    quantized_rows,
)
from decodescope.kernels.host.workspace import MAX_BATCH, NO_KEY, new_workspace
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS, AllReduceChoice
from decodescope.kernels.ops.all_reduce_qk_norm import AllReduceQkNorm, norm_words
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.kernels.ops.dequantize_rows import DequantizeRows
from decodescope.kernels.ops.linear import Linear
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from decodescope.kernels.ops.read_bandwidth import partial_sums
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tiles import default_tiles

BATCHES = (1, 33)
CONTEXT = 301
PAST_THE_END = 10_000
_ROWS, _COLUMNS = 99, 333

_SMALL: dict[str, Any] = {
    "vocab_size": 1009,
    "hidden_size": 330,
    "intermediate_size": 523,
    "num_hidden_layers": 1,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 80,
    "max_position_embeddings": 1024,
}
_BIASED = _SMALL | {
    "model_type": "llama",
    "hidden_size": 333,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "attention_bias": True,
    "mlp_bias": True,
}
# Rows of whole words, which narrow weights are loaded as in tiles of 64 rows.
_WORDS = _SMALL | {"model_type": "qwen2", "hidden_size": 336, "intermediate_size": 528}
_QK_NORMED = _SMALL | {"model_type": "qwen3", "head_dim": 48}
_WINDOWED = _SMALL | {"model_type": "mistral", "sliding_window": 77}

_MIXTURE = _SMALL | {
    "model_type": "qwen3_moe",
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 37,
}
_CAPPED = _SMALL | {"model_type": "gemma2", "sliding_window": 77}
_PARALLEL = _SMALL | {
    "model_type": "cohere2",
    "sliding_window": 77,
    "layer_types": ["sliding_attention"],
}

# Sinks, biases, and gate and up rows in turn.
_CLAMPED = _SMALL | {
    "model_type": "gpt_oss",
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "intermediate_size": 37,
    "sliding_window": 77,
    "layer_types": ["sliding_attention"],
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
}
# Rows of whole chunks, whose products with one token take int16.
_CHUNKS = _SMALL | {
    "model_type": "llama",
    "hidden_size": 352,
    "intermediate_size": 544,
    "num_attention_heads": 4,
}
_INTERLEAVED = _SMALL | {"model_type": "glm", "attention_bias": True, "pad_token_id": 0}

# Not every pair: each one compiles all kernels.
MODELS = (
    (_BIASED, torch.float32, "fused"),
    (_BIASED, torch.bfloat16, "fused"),
    (_QK_NORMED, torch.float16, "fused"),
    (_QK_NORMED, torch.bfloat16, "fused"),
    (_WINDOWED, torch.bfloat16, "fused"),
    (_BIASED, torch.bfloat16, "fused+fp8_e4m3+kv_fp8_e4m3"),
    (_QK_NORMED, torch.float16, "fused+int8+embedding8"),
    (_WORDS, torch.bfloat16, "fused+int8"),
    (_WORDS, torch.bfloat16, "fused+w8a8"),
    (_BIASED, torch.bfloat16, "fused+w8a8+head16"),
    (_WINDOWED, torch.bfloat16, "fused+fp8_e5m2_cast+head16+kv_fp8_e5m2"),
    (_BIASED, torch.bfloat16, "fused+int4_asym"),
    (_WORDS, torch.bfloat16, "fused+mxfp4"),
    (_QK_NORMED, torch.float16, "fused+nvfp4+head16"),
    (_MIXTURE, torch.bfloat16, "fused"),
    (_MIXTURE, torch.bfloat16, "fused+fp8_e4m3"),
    (_MIXTURE, torch.bfloat16, "fused+mxfp4"),
    (_CLAMPED, torch.bfloat16, "fused"),
    (_CHUNKS, torch.bfloat16, "fused+int4"),
    (_INTERLEAVED, torch.bfloat16, "fused"),
    (_CAPPED, torch.bfloat16, "fused"),
    (_PARALLEL, torch.bfloat16, "fused"),
)

# One for each model, one for the GEMMs of `gemm`, and one for what no step of one rank launches.
PARTS = range(len(MODELS) + 2)


def quantized_on_cpu(
    values: torch.Tensor, format: NarrowFormat, scaled: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`quantized_rows`, back on the device of `values`. A GPU quantises a matrix by hundreds of
    small kernels of torch: under a sanitizer, they take longer than those to be checked."""
    data, scale = quantized_rows(values.cpu(), format, scaled)
    return data.to(values.device), None if scale is None else scale.to(values.device)


class QuantizedOnCpu(Operands):
    """Operands with the matrices of `quantized_on_cpu`."""

    def quantized(
        self, values: torch.Tensor, format: NarrowFormat, scaled: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As the base class."""
        return quantized_on_cpu(values, format, scaled)


class PastTheEnd(QuantizedOnCpu):
    """Operands of a step that is replayed after the caches are full."""

    def position(self, value: int) -> torch.Tensor:
        """A position that no cache, table or token buffer has."""
        return super().position(PAST_THE_END)


def meta_parts(fields: dict[str, Any], dtype: torch.dtype, spec: VariantSpec) -> FusedModel:
    """The shapes of a model with this configuration, stored as `spec` says."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    if (quantization := quantization_of(spec)) is not None:
        quantize_model("a model", model, quantization)
    return fused_model(model)


def tiles_to_try(
    parts: FusedModel, batch: int, spec: VariantSpec, multiprocessors: int
) -> Iterator[StepTiles]:
    """The default tiles, and tiles whose programs share outputs."""
    shapes = step_shapes(parts, batch, CONTEXT + 1, spec)
    tiles = default_tiles(shapes, multiprocessors)
    yield tiles
    splits: dict[TiledOperation, int] = {"attention": 3, "o": 2, "down": 3}
    if batch > 1:
        splits["qkv"] = 2
    splitting = {
        name: replace(tile, splits=splits.get(name, tile.splits)) for name, tile in tiles.items()
    }
    yield splitting
    if batch > 1 and parts.hidden % 16 == 0:
        for name in shapes.operations:
            if name == "attention":
                continue
            wide = replace(splitting[name], rows=64, columns=64)
            splitting = {**splitting, name: wide}
        yield splitting


def model_cases(part: int, device: str, multiprocessors: int) -> Iterator[KernelCase]:
    """The kernels of a model, in every way in which they are checked."""
    fields, dtype, variant = MODELS[part]
    spec = VariantSpec.parse(variant)
    parts = meta_parts(fields, dtype, spec)
    for batch in BATCHES:
        ways = product(
            tiles_to_try(parts, batch, spec, multiprocessors), (QuantizedOnCpu, PastTheEnd)
        )
        for tiles, kind in ways:
            yield from kernel_cases(kind(parts, batch, CONTEXT, tiles, device, spec))


def other_operations(device: str) -> Iterator[KernelOperation]:
    """Operations of prefill on narrow weights, a plain product, and those of one rank of two.
    The other rank's words are there already, for as often as an operation is launched."""
    weights = torch.randn(_ROWS, _COLUMNS, device=device)
    for format in get_args(ByteFormat) + get_args(PackedName):
        out = torch.empty(_ROWS, _COLUMNS, dtype=torch.bfloat16, device=device)
        packing = packing_of(format, _COLUMNS)
        matrix = WeightMatrix(*quantized_on_cpu(weights, format), packing=packing)
        yield DequantizeRows(matrix, out)
    for batch in BATCHES:
        yield from _operations_of_a_rank(batch, weights, device)


def _operations_of_a_rank(
    batch: int, weights: torch.Tensor, device: str
) -> Iterator[KernelOperation]:
    kept: list[torch.Tensor] = []
    sums, out = torch.zeros(2, batch, _ROWS, device=device)
    x = torch.randn(batch, _COLUMNS, device=device)
    for adds in (False, True):
        yield AllReduceResidual(sums, out, _first_of_two(sums.numel(), device, kept), adds)
    matrix, tile = WeightMatrix(weights), Tile(16, 64, splits=2)
    yield Linear(x, matrix, torch.empty_like(sums), Tile(16, 64))
    memory = new_workspace(*split_workspace(matrix, tile, batch), device)
    pushed = _first_of_two(sums.numel(), device, kept)
    yield LinearResidual(x, matrix, sums, tile, memory, adds=False, exchange=pushed)
    keys = torch.full((MAX_BATCH,), NO_KEY, dtype=torch.int64, device=device)
    tokens = torch.zeros(batch, CONTEXT, dtype=torch.int64, device=device)
    position = torch.zeros(1, dtype=torch.int32, device=device)
    yield AllReduceChoice(keys, tokens, position, _first_of_two(CHOICE_WORDS, device, kept))
    norm = QkNorm(torch.ones(_COLUMNS, device=device), torch.ones(_ROWS, device=device), 1e-6)
    yield AllReduceQkNorm(x, sums, norm, _first_of_two(norm_words(batch), device, kept))


def _first_of_two(words: int, device: str, kept: list[torch.Tensor]) -> Exchange:
    """The memory of the first of two ranks, with words of the second in every slot. That of the
    second is `kept` as long as the exchange is used."""
    slots, peer_slots = (new_slots(words, 2, device).zero_() for _ in range(2))
    kept.append(peer_slots)
    return new_exchange(0, slots, [slots.data_ptr(), peer_slots.data_ptr()], 10**9)


def launch_part(part: int) -> int:
    """Launch the kernels of one of `PARTS` in every way; returns the number of launches."""
    device = torch.device("cuda")
    ways = (False, True) if can_overlap(device) else (False,)
    if part == len(MODELS):
        return _launch_gemms(ways)
    launches = 0
    if part > len(MODELS):
        for operation in other_operations("cuda"):
            for pdl in ways:
                operation.launch(pdl)
                launches += 1
        partial_sums(torch.randn(99_999, device="cuda"), torch.empty(7, device="cuda"))
        torch.cuda.synchronize()
        return launches + 1
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    for case in model_cases(part, "cuda", multiprocessors):
        copy = case.copies(1)[0]
        for pdl in ways:
            copy.launch(pdl)
            launches += 1
    torch.cuda.synchronize()
    return launches


def _launch_gemms(ways: tuple[bool, ...]) -> int:
    """Launch the GEMMs of `gemm`, with rows of whole 16 bytes and of others."""
    gpu, launches = this_target_gpu(), 0
    for columns, tokens in product((333, 336), (3, 33)):
        operands = GemmOperands(101, columns, tokens, 1, "cuda")
        for tuned in tuned_gemms(operands, tokens, gpu, None):
            candidates = tuned.candidates[0], tuned.candidates[-1]
            for candidate, pdl in product(candidates, ways if tuned.overlaps else (False,)):
                tuned.operations(candidate)[0].launch(pdl)
                launches += 1
        torch.cuda.synchronize()
    return launches
