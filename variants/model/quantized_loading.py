"""Loads a checkpoint tensor by tensor: one whose matrices have 8 or 4 bits, without the package
that wrote it, or one rank's part.

transformers would cast such weights and drop their scales, or ask for that package and a GPU.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model.checkpoint import StoredTensor, require_complete
from decodescope.variants.model.experts import StoredNames, every_name, expert_counts, stored_names
from decodescope.variants.model.gguf_file import ROPE_FACTORS, GgufReader, has_rope_factors
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
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
from decodescope.variants.parallel.cuts import Cut, split_of
from decodescope.variants.parallel.shard import tie_head
from decodescope.variants.parallel.split import HEAD_WEIGHT

QUANTIZED_CHECKPOINT = "quantized_checkpoint"

# Frequencies are computed, whatever older checkpoints hold.
_COMPUTED = "rotary_emb.inv_freq"


@dataclass(frozen=True, slots=True)
class QuantizedCheckpoint:
    """The tensors of a checkpoint, and which of them are 8-bit matrices and 4-bit ones, by Linear
    layer.

    `activations`: config.json asks for quantized activations too. `plain`: it has no such matrices.
    """

    tensors: Mapping[str, StoredTensor]
    matrices: Mapping[str, NarrowMatrix] = field(default_factory=dict)
    grouped: Mapping[str, GroupedMatrix] = field(default_factory=dict)
    activations: bool = False
    plain: bool = False


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
        return QuantizedCheckpoint(tensors, {}, grouped)
    schemes = declared_schemes(config)
    with TensorReader(tensors, "cpu") as reader:
        packed = PackedCheckpoint(name, tensors, schemes, reader.read)
        if stores_mxfp4(config):
            place_packed(skeleton)
            require_packed(packed, skeleton)
        grouped = grouped_matrices(packed, skeleton)
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
    """Fill `skeleton` from the files of `checkpoint`, which was found for it, on `device`; if it is
    one rank's part (`shard_model`), only that part is read.

    8-bit matrices are read as they are, 4-bit ones as `load_grouped` says, all else in the dtype of
    the skeleton. One matrix at a time is read, so memory is that of the model and one matrix.
    Returns what is unusual about the checkpoint.

    Raises:
        ModelError: tensors are missing, have another shape, or hold values that are no numbers.
    """
    split = split_of(skeleton)
    tensors, matrices = checkpoint.tensors, checkpoint.matrices
    grouped, experts = checkpoint.grouped, expert_counts(skeleton.config)[0]
    names = {
        key: stored_names(key, tensors, experts)
        for key in skeleton.state_dict()
        if key.removesuffix(".weight") not in grouped
    }
    if split.tied:
        names.pop(HEAD_WEIGHT)
    findings = _require_whole(name, skeleton, checkpoint, names)
    with ExitStack() as stack:
        reader: GgufReader | TensorReader
        if _is_gguf(tensors):
            reader = GgufReader(tensors, device)
        else:
            reader = stack.enter_context(TensorReader(tensors, device))
        for key, matrix in matrices.items():
            _read_matrix(name, skeleton, key, matrix, reader)
        for key, held in packed_experts(skeleton):
            cut = split.cuts.get(key)
            part = None
            if isinstance(cut, Cut) and held.packing is not None:
                in_groups = cut.exchanged.in_groups(held.packing.group, held.data.dim())
                part = partial(in_groups.of, ranks=split.ranks)
            blocks, scales = (reader.read(f"{key}{end}", part=part) for end in (BLOCKS, SCALES))
            fill_stored(name, key, held, blocks, scales)
        made, in_words = load_grouped(skeleton, grouped, reader.read)
        expected = skeleton.state_dict()
        state = made | {
            key: reader.read(stored, expected[key].dtype, split.part(key))
            for key, stored in names.items()
            if stored is not None
        }
    skeleton.load_state_dict(state, strict=False, assign=True)
    if split.tied:
        tie_head(skeleton, split)
    else:
        skeleton.tie_weights(missing_keys=expected.keys() - state.keys())
    compute_buffers(skeleton, device)
    if has_rope_factors(skeleton, tensors):
        skeleton.model.rotary_emb.inv_freq.div_(reader.read(ROPE_FACTORS, torch.float32))
    if checkpoint.plain:
        return findings
    return (_finding(checkpoint, sum(1 for _ in packed_experts(skeleton)), in_words), *findings)


def _is_gguf(tensors: Mapping[str, StoredTensor]) -> bool:
    return any(tensor.file.suffix == GGUF for tensor in tensors.values())


def _read_matrix(
    name: str, skeleton: Any, key: str, matrix: NarrowMatrix, reader: GgufReader | TensorReader
) -> None:
    split, module = split_of(skeleton), skeleton.get_submodule(key)
    part = split.part(matrix.data)
    module.data = reader.read(matrix.data, part=part)
    if matrix.scale is not None:
        module.scale = row_scales(name, matrix.scale, reader.read(matrix.scale), matrix.rows)
        if part is not None and not split.cuts_columns(matrix.data, module.data.dim()):
            module.scale = part(module.scale)
    require_usable(name, matrix.data, module.data, module.scale, skeleton.dtype)


def _require_whole(
    name: str,
    skeleton: Any,
    checkpoint: QuantizedCheckpoint,
    names: Mapping[str, StoredNames | None],
) -> tuple[Finding, ...]:
    tensors, split = checkpoint.tensors, split_of(skeleton)
    expected = skeleton.state_dict()
    tied = skeleton.all_tied_weights_keys
    twins = tied | {source: target for target, source in tied.items()}
    missing = {
        key for key, stored in names.items() if stored is None and twins.get(key) not in tensors
    }
    matrices = checkpoint.matrices.values()
    used = {*expected, *(matrix.data for matrix in matrices), *(m.scale for m in matrices)}
    used |= {f"{key}{end}" for key, _ in packed_experts(skeleton) for end in (BLOCKS, SCALES)}
    used |= {each for stored in names.values() if stored is not None for each in every_name(stored)}
    used |= tensors_of(checkpoint.grouped)
    if has_rope_factors(skeleton, tensors):
        used.add(ROPE_FACTORS)
    unexpected = {
        key
        for key in tensors
        if key not in used and not is_activation_scale(key) and not key.endswith(_COMPUTED)
    }
    mismatched = [
        (key,)
        for key, stored in names.items()
        if stored is not None
        and _shape(stored, tensors) != split.whole_shape(key, expected[key].shape)
    ]
    return require_complete(
        name,
        {"mismatched_keys": mismatched, "missing_keys": missing, "unexpected_keys": unexpected},
    )


def _shape(stored: StoredNames, tensors: Mapping[str, StoredTensor]) -> tuple[int, ...] | None:
    """The shape of the tensor that is stored under these names; None if they do not fit."""
    if isinstance(stored, str):
        return tensors[stored].shape
    shapes = {tuple(tensors[each].shape for each in expert) for expert in stored}
    of_one = shapes.pop()
    fit = not shapes and all(shape[1:] == of_one[0][1:] for shape in of_one)
    return (len(stored), sum(shape[0] for shape in of_one), *of_one[0][1:]) if fit else None


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
    """Give memory to what has none, such as rotary frequencies: what no checkpoint holds, and the
    class of its module knows."""
    for module in model.modules():
        held: tuple[dict[str, Any], ...] = module._parameters, module._buffers
        absent = [
            (tensors, key)
            for tensors in held
            for key, tensor in tensors.items()
            if tensor is not None and tensor.is_meta
        ]
        for parameter in module.parameters(recurse=False):
            parameter._is_hf_initialized = not parameter.is_meta  # type: ignore[attr-defined]
        for tensors, key in absent:
            empty = torch.empty_like(tensors[key], device=device)
            tensors[key] = nn.Parameter(empty, False) if tensors is held[0] else empty
        # transformers computes the tensors of the modules that do not have this mark.
        module._is_hf_initialized = not absent  # type: ignore[assignment]
    model.initialize_weights()  # type: ignore[operator]
