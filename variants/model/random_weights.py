"""Random weights in the shape of a preset."""

from copy import deepcopy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.experts import set_prompt_way
from decodescope.variants.model.source import Preset

RANDOM_SEED = 0
RANDOM_STD = 0.02


def build_random(preset: Preset, device: str, dtype: torch.dtype) -> Any:
    """The preset's model with random weights, built in place on `device`.

    Drawn on the device with a fixed seed: normal with standard deviation 0.02, biases 0, norms as
    their class makes them: 1, or 0 where it adds 1. The same device and version give the same
    weights. On "meta" there are none.
    """
    config = AutoConfig.for_model(**deepcopy(preset.config))
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    set_prompt_way(model)
    if device != "meta":
        _fill_random(model, device)
    return model


@torch.no_grad()
def _fill_random(model: Any, device: str) -> None:
    generator = torch.Generator(device).manual_seed(RANDOM_SEED)
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0.0, RANDOM_STD, generator=generator)
        elif name.endswith("bias"):
            parameter.zero_()
