"""A model of given shapes without its weights: meta tensors, or random numbers on a device."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.model.checkpoint import stored_tensors
from decodescope.variants.model.loading import (
    LoadedModel,
    check_fits,
    find_files,
    loaded_model,
    torch_dtype,
)
from decodescope.variants.model.quantized_loading import find_quantized
from decodescope.variants.model.quantized_weights import quantization_of, quantize_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import ModelSource
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.model_parts import FusedModel, fused_model
from decodescope.variants.steps.fused.support import require_support


def shape_model(
    source: ModelSource, batch: int, dtype: torch.dtype, device: str, spec: VariantSpec
) -> FusedModel:
    """The parts of `source` as `spec` stores them, on the meta device; fetches only config.json of
    a hub model.

    Of a folder, the 8-bit matrices of its weights are such here as well.

    Raises:
        ModelError: files that are unreadable, or of a model the fused kernels cannot run.
        InputError: a batch that they cannot run.
        MissingRequirement: model not found, no Triton, or a GPU that is too old.
    """
    fields = find_files(source).config
    require_support(source.name, fields, batch, device, spec)
    model = _built(source.name, fields, dtype, "meta")
    if source.folder is not None:
        find_quantized(source.name, fields, model, stored_tensors(source.folder))
    if (quantization := quantization_of(spec)) is not None:
        quantize_model(source.name, model, quantization)
    return fused_model(model)


def random_model(
    source: ModelSource, workload: DecodeWorkload, device: str, spec: VariantSpec
) -> LoadedModel:
    """`source` with random weights on `device`, stored as `spec` says; fetches only config.json of
    a hub model.

    Raises:
        ModelError, InputError, MissingRequirement: as `shape_model`; or the workload needs more
            positions than the model allows, or GPU memory ran out.
    """
    fields = find_files(source).config
    require_support(source.name, fields, workload.batch, device, spec)
    with memory_errors(f"building {source.name} in {workload.dtype}", device):
        if source.preset is not None:
            model = build_random(source.preset, device, torch_dtype(workload.dtype))
        else:
            model = _built(source.name, fields, torch_dtype(workload.dtype), device)
        loaded = loaded_model(model, None, "random", source.name)
        if (quantization := quantization_of(spec)) is not None:
            quantize_model(source.name, model, quantization)
    check_fits(loaded, workload)
    return loaded


def _built(name: str, fields: Mapping[str, Any], dtype: torch.dtype, device: str) -> Any:
    try:
        config = CONFIG_MAPPING[fields["model_type"]].from_dict(deepcopy(dict(fields)))
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, dtype=dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers raises nearly every type for a broken configuration
        raise ModelError(f"{name}: unreadable model configuration ({error})") from error
