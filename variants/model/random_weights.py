"""Random weights in the shape that a config.json describes."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.experts import set_prompt_way
from decodescope.variants.model.mxfp4_experts import drawn_packed, packed_experts, place_packed
from decodescope.variants.model.quantized_loading import compute_buffers
from decodescope.variants.model.stored_quantization import stores_mxfp4
from decodescope.variants.parallel.cuts import Cut, split_of
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.parallel.shard import cut_quantized, shard_model, tie_head

RANDOM_SEED = 0
RANDOM_STD = 0.02


def build_random(
    config: Mapping[str, Any],
    device: str,
    dtype: torch.dtype,
    ranks: Ranks = ALONE,
    ep: bool = False,
) -> Any:
    """The model of a config.json with random weights, built in place on `device`; of several
    `ranks` the part of this one, as `shard_model` says.

    Drawn on the device with a fixed seed: normal with standard deviation 0.02, biases 0, norms as
    their class makes them: 1, or 0 where it adds 1; sinks 1; experts in MXFP4 as `drawn_packed`
    says. The same device and version give the same weights. On "meta" there are none. Every rank
    draws each whole tensor, one at a time, and keeps its part: together they are the whole model.
    """
    fields = deepcopy(dict(config))
    packed = stores_mxfp4(fields)
    fields.pop("quantization_config", None)
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    if packed:
        place_packed(whole)
    model = deepcopy(whole)
    shard_model(model, ranks, ep)
    if device != "meta":
        _fill_random(model, whole, device)
    set_prompt_way(model)
    return model


@torch.no_grad()
def _fill_random(model: Any, whole: Any, device: str) -> None:
    """Draw the tensors of the `whole` model and keep in `model` its part of each."""
    generator = torch.Generator(device).manual_seed(RANDOM_SEED)
    split, parts = split_of(model), model.state_dict()
    state = {}
    for key, weight in whole.named_parameters():
        if key.endswith("bias"):
            state[key] = torch.zeros_like(parts[key], device=device)
        elif key.endswith("sinks"):
            state[key] = torch.ones_like(parts[key], device=device)
        elif weight.dim() >= 2:
            drawn = torch.empty_like(weight, device=device)
            drawn.normal_(0.0, RANDOM_STD, generator=generator)
            part = split.part(key)
            state[key] = drawn if part is None else part(drawn)
    for key, experts in packed_experts(whole):
        drawn_experts = drawn_packed(experts, generator)
        if isinstance(cut := split.cuts.get(key), Cut):
            cut_quantized(drawn_experts, cut, split.ranks)
        model.set_submodule(key, drawn_experts)
    model.load_state_dict(state, strict=False, assign=True)
    if split.tied:
        tie_head(model, split)
    else:
        model.tie_weights()
    compute_buffers(model, device)
