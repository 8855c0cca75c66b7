"""A model of given shapes with random weights."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.model.loading import (
    LoadedModel,
    check_fits,
    find_files,
    loaded_model,
    torch_dtype,
)
from decodescope.variants.model.quantized_weights import quantization_of, quantize_model
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import ModelSource
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.support import require_support


def random_model(
    source: ModelSource, workload: DecodeWorkload, device: str, spec: VariantSpec
) -> LoadedModel:
    """`source` with random weights on `device`, stored as `spec` says; fetches only config.json of
    a hub model.

    Raises:
        ModelError: unreadable files, a model that the fused kernels cannot run, or one with fewer
            positions than the workload needs.
        InputError: a batch that the fused kernels cannot run.
        MissingRequirement: model not found, no Triton, a GPU that is too old, or GPU memory ran
            out.
    """
    fields = find_files(source).config
    require_support(source.name, fields, workload.batch, device, spec)
    with memory_errors(f"building {source.name} in {workload.dtype}", device):
        if source.preset is not None:
            model = build_random(source.preset, device, torch_dtype(workload.dtype))
        else:
            model = built_model(source.name, fields, torch_dtype(workload.dtype), device)
        loaded = loaded_model(model, None, "random", source.name)
        if (quantization := quantization_of(spec)) is not None:
            quantize_model(source.name, model, quantization)
    check_fits(loaded, workload)
    return loaded


def built_model(name: str, fields: Mapping[str, Any], dtype: torch.dtype, device: str) -> Any:
    """The transformers model that the `fields` of a config.json describe; on a device other than
    "meta", its weights are random.

    Raises:
        ModelError: a configuration that transformers cannot build.
    """
    try:
        config = CONFIG_MAPPING[fields["model_type"]].from_dict(deepcopy(dict(fields)))
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, dtype=dtype)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers raises nearly every type for a broken configuration
        raise ModelError(f"{name}: unreadable model configuration ({error})") from error
