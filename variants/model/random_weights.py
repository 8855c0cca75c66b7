"""Random weights in the shape that a config.json describes."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.experts import set_prompt_way
from decodescope.variants.model.mxfp4_experts import fill_random, packed_experts, place_packed
from decodescope.variants.model.quantized_loading import compute_buffers
from decodescope.variants.model.stored_quantization import stores_mxfp4

RANDOM_SEED = 0
RANDOM_STD = 0.02


def build_random(config: Mapping[str, Any], device: str, dtype: torch.dtype) -> Any:
    """The model of a config.json with random weights, built in place on `device`.

    Drawn on the device with a fixed seed: normal with standard deviation 0.02, biases 0, norms as
    their class makes them: 1, or 0 where it adds 1; experts in MXFP4 as `fill_random` says, and
    sinks 1 beside them. The same device and version give the same weights. On "meta" there are
    none.
    """
    fields = deepcopy(dict(config))
    packed = stores_mxfp4(fields)
    fields.pop("quantization_config", None)
    with torch.device("meta" if packed else device):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    if packed:
        place_packed(model, device)
    set_prompt_way(model)
    if device != "meta":
        if packed:
            state = model.state_dict()
            ones = {key: torch.ones_like(value, device=device) for key, value in state.items()}
            model.load_state_dict(ones, assign=True)
            compute_buffers(model, device)
        _fill_random(model, device)
    return model


@torch.no_grad()
def _fill_random(model: Any, device: str) -> None:
    generator = torch.Generator(device).manual_seed(RANDOM_SEED)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.dim() >= 2:
            parameter.normal_(0.0, RANDOM_STD, generator=generator)
    for _, experts in packed_experts(model):
        fill_random(experts, generator)
