"""Loads a checkpoint whose matrices have 8 or 4 bits, without the package that wrote it.

transformers would cast such weights and drop their scales, or ask for that package and a GPU.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model.checkpoint import StoredTensor, require_complete
from decodescope.variants.model.gguf_file import GgufReader
from decodescope.variants.model.grouped.gguf import gguf_matrices
from decodescope.variants.model.grouped.loading import (
    grouped_matrices,
    load_grouped,
    place_grouped,
    tensors_of,
)
from decodescope.variants.model.grouped.matrix import GroupedMatrix
from decodescope.variants.model.mxfp4_experts import (
    BLOCKS,
    SCALES,
    fill_stored,
    packed_experts,
    place_packed,
    require_packed,
)
from decodescope.variants.model.quantized_tensors import (
    NarrowMatrix,
    is_activation_scale,
    narrow_matrices,
    require_usable,
    row_scales,
)
from decodescope.variants.model.quantized_weights import QuantizedLinear, untie
from decodescope.variants.model.source import GGUF
from decodescope.variants.model.stored_quantization import (
    declared_schemes,
    declares_quantization,
    quantizes_activations,
    stores_mxfp4,
)
from decodescope.variants.model.tensor_reader import TensorReader

QUANTIZED_CHECKPOINT = "quantized_checkpoint"

# Frequencies are computed, whatever older checkpoints hold.
_COMPUTED = "rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True)
class QuantizedCheckpoint:
    """The tensors of a checkpoint, and which of them are 8-bit matrices and 4-bit ones, by Linear
    layer.

    `activations`: config.json asks for quantized activations too.
    """

    tensors: Mapping[str, StoredTensor]
    matrices: Mapping[str, NarrowMatrix]
    grouped: Mapping[str, GroupedMatrix]
    activations: bool


def find_quantized(
    name: str, config: Mapping[str, object], skeleton: Any, tensors: Mapping[str, StoredTensor]
) -> QuantizedCheckpoint:
    """The checkpoint of `tensors`, which `holds_quantized` weights.

    Its matrices of 8 and 4 bits take the place of their Linear layers in `skeleton`, without
    memory. Raises as `narrow_matrices` and `grouped_matrices`, and `ModelError` if config.json
    describes weights of 4 bits and there are none.
    """
    if _is_gguf(tensors):
        grouped = gguf_matrices(name, skeleton, tensors)
        place_grouped(skeleton, grouped)
        return QuantizedCheckpoint(tensors, {}, grouped, False)
    if stores_mxfp4(config):
        place_packed(skeleton)
        require_packed(name, skeleton, tensors)
    with TensorReader(tensors, "cpu") as reader:
        schemes = declared_schemes(config)
        grouped = grouped_matrices(name, skeleton, tensors, schemes, reader.read)
    used = tensors_of(grouped)
    others = {key: tensor for key, tensor in tensors.items() if key not in used}
    matrices = narrow_matrices(name, skeleton, others, declares_quantization(config))
    if schemes and not (grouped or matrices):
        raise ModelError(
            f"{name}: quantization_config of config.json describes weights of 4 bits, and no "
            "tensor has such; use the files of one checkpoint"
        )
    for key, matrix in matrices.items():
        data = torch.empty(matrix.rows, matrix.columns, dtype=matrix.dtype, device="meta")
        scale = None if matrix.scale is None else torch.empty(matrix.rows, device="meta")
        skeleton.set_submodule(key, QuantizedLinear(data, scale, skeleton.get_submodule(key).bias))
        untie(skeleton, key)
    place_grouped(skeleton, grouped)
    return QuantizedCheckpoint(tensors, matrices, grouped, quantizes_activations(config))


@torch.no_grad()
def load_quantized(
    name: str, skeleton: Any, checkpoint: QuantizedCheckpoint, device: str
) -> tuple[Finding, ...]:
    """Fill `skeleton` from the files of `checkpoint`, which was found for it, on `device`.

    8-bit matrices are read as they are, 4-bit ones as `load_grouped` says, all else in the dtype of
    the skeleton. One matrix at a time is read, so memory is that of the model and one matrix.
    Returns what is unusual about the checkpoint.

    Raises:
        ModelError: tensors are missing, have another shape, or hold values that are no numbers.
    """
    tensors, matrices = checkpoint.tensors, checkpoint.matrices
    findings = _require_whole(name, skeleton, checkpoint)
    with ExitStack() as stack:
        reader: GgufReader | TensorReader
        if _is_gguf(tensors):
            reader = GgufReader(tensors, device, skeleton.config)
        else:
            reader = stack.enter_context(TensorReader(tensors, device))
        for key, matrix in matrices.items():
            module = skeleton.get_submodule(key)
            module.data = reader.read(matrix.data)
            if matrix.scale is not None:
                stored = reader.read(matrix.scale)
                module.scale = row_scales(name, matrix.scale, stored, matrix.rows)
            require_usable(name, matrix.data, module.data, module.scale, skeleton.dtype)
        for key, experts in packed_experts(skeleton):
            blocks, scales = (reader.read(f"{key}{end}") for end in (BLOCKS, SCALES))
            fill_stored(name, key, experts, blocks, scales)
        made, in_words = load_grouped(skeleton, checkpoint.grouped, reader.read)
        expected = skeleton.state_dict()
        read = [key for key in expected if key in tensors and key not in made]
        state = made | {key: reader.read(key, expected[key].dtype) for key in read}
    skeleton.load_state_dict(state, strict=False, assign=True)
    skeleton.tie_weights(missing_keys=expected.keys() - state.keys())
    compute_buffers(skeleton, device)
    return (_finding(checkpoint, sum(1 for _ in packed_experts(skeleton)), in_words), *findings)


def _is_gguf(tensors: Mapping[str, StoredTensor]) -> bool:
    return any(tensor.file.suffix == GGUF for tensor in tensors.values())


def _require_whole(
    name: str, skeleton: Any, checkpoint: QuantizedCheckpoint
) -> tuple[Finding, ...]:
    tensors = checkpoint.tensors
    expected = skeleton.state_dict()
    for key in checkpoint.grouped:
        expected.pop(f"{key}.weight", None)
    tied = skeleton.all_tied_weights_keys
    twins = tied | {source: target for target, source in tied.items()}
    missing = {key for key in expected if key not in tensors and twins.get(key) not in tensors}
    matrices = checkpoint.matrices.values()
    used = {*expected, *(matrix.data for matrix in matrices), *(m.scale for m in matrices)}
    used |= {f"{key}{end}" for key, _ in packed_experts(skeleton) for end in (BLOCKS, SCALES)}
    used |= tensors_of(checkpoint.grouped)
    unexpected = {
        key
        for key in tensors
        if key not in used and not is_activation_scale(key) and not key.endswith(_COMPUTED)
    }
    mismatched = [
        (key,)
        for key, value in expected.items()
        if key in tensors and tensors[key].shape != tuple(value.shape)
    ]
    return require_complete(
        name,
        {"mismatched_keys": mismatched, "missing_keys": missing, "unexpected_keys": unexpected},
    )


def _finding(checkpoint: QuantizedCheckpoint, packed: int, in_words: str) -> Finding:
    if packed:
        return Finding(
            QUANTIZED_CHECKPOINT,
            f"{packed} stacks of experts of the checkpoint (MXFP4) are read as they are; variants "
            "other than fused make their matrices anew in every step",
        )
    matrices = checkpoint.matrices.values()
    formats = sorted({str(matrix.dtype).removeprefix("torch.") for matrix in matrices})
    stored = ", ".join(formats) or "none"
    if any(matrix.scale is None for matrix in matrices):
        stored += " without scales"
    message = f"{len(matrices)} 8-bit matrices of the checkpoint ({stored}) are read as they are"
    if in_words:
        message = f"{in_words}; {message}" if matrices else in_words
    if checkpoint.activations or any(map(is_activation_scale, checkpoint.tensors)):
        message += (
            "; activations, K and V, which it quantizes too, have the run's dtype unless the "
            "variant names a format"
        )
    return Finding(QUANTIZED_CHECKPOINT, message)


def compute_buffers(model: nn.Module, device: str) -> None:
    """Give memory to what no checkpoint holds, such as rotary frequencies, and compute it."""
    for module in model.modules():
        buffers = {key: buffer for key, buffer in module._buffers.items() if buffer is not None}
        absent = {key: buffer for key, buffer in buffers.items() if buffer.is_meta}
        for key, buffer in absent.items():
            module._buffers[key] = torch.empty_like(buffer, device=device)
        # transformers computes the buffers of the modules that do not have this mark.
        module._is_hf_initialized = not absent  # type: ignore[assignment]
        for parameter in module.parameters(recurse=False):
            parameter._is_hf_initialized = True  # type: ignore[attr-defined]
    model.initialize_weights()  # type: ignore[operator]
