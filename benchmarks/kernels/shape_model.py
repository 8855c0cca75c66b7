"""A model of given shapes on the meta device: no weights, only what the kernels' operands need."""

import torch

from decodescope.variants.model.checkpoint import broken_checkpoint, holds_quantized
from decodescope.variants.model.loading import local_tensors
from decodescope.variants.model.quantized_loading import find_quantized
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.skeleton import find_files
from decodescope.variants.model.source import ModelSource
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.support import require_support


def shape_model(
    source: ModelSource, batch: int, dtype: torch.dtype, device: str, spec: VariantSpec
) -> FusedModel:
    """The parts of `source` as `spec` stores them, on the meta device; fetches only config.json of
    a hub model.

    Of a folder or file, its matrices of 8 and 4 bits are such here as well.

    Raises:
        ModelError: files that are unreadable, or of a model the fused kernels cannot run.
        InputError: a batch that they cannot run.
        MissingRequirement: model not found, no Triton, or a GPU that is too old.
    """
    fields = find_files(source).config
    require_support(source.name, fields, batch, device, spec)
    with broken_checkpoint(source.name):
        model = build_random(fields, "meta", dtype)
    if source.is_local:
        tensors = local_tensors(source, model)
        if holds_quantized(fields, tensors):
            find_quantized(source.name, fields, model, tensors)
    if (quantization := quantization_of(spec)) is not None:
        quantize_model(source.name, model, quantization)
    return fused_model(model)
