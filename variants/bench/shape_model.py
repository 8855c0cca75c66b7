"""A model's shapes without its weights: the parts that the fused kernels take, as meta tensors."""

from copy import deepcopy

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.fused.model_parts import FusedModel, fused_model
from decodescope.variants.fused.support import require_support
from decodescope.variants.hub import find_checkpoint
from decodescope.variants.model_source import ModelSource, read_config


def shape_model(source: ModelSource, batch: int, dtype: torch.dtype, device: str) -> FusedModel:
    """The parts of `source` on the meta device; of a hub model only config.json is fetched.

    Raises:
        ModelError: a configuration that is unreadable, or of a model the fused kernels cannot run.
        InputError: more sequences than they decode at once.
        EnvironmentLacks: model not found, no Triton, too old a GPU.
    """
    fields = config_fields(source)
    require_support(source.name, fields, batch, device)
    try:
        config = CONFIG_MAPPING[fields["model_type"]].from_dict(deepcopy(fields))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    except Exception as error:  # transformers raises nearly every type for a broken configuration
        raise ModelError(f"{source.name}: unreadable model configuration ({error})") from error
    return fused_model(model)


def config_fields(source: ModelSource) -> dict[str, object]:
    """The config.json of `source`, or what stands for it in a preset.

    Raises:
        ModelError, EnvironmentLacks: it cannot be found or read.
    """
    if source.kind == "random":
        assert source.preset is not None
        return {"model_type": source.preset.model_type, **source.preset.config_fields()}
    if source.folder is not None:
        return read_config(source.folder / "config.json")
    assert source.hub_id is not None
    return read_config(find_checkpoint(source.hub_id).config_path)
