"""Reads a transformers model as blocks, by its family."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.workload_costs import layer_windows
from decodescope.variants.parallel.norm_over_ranks import RMSNormOverRanks
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.families import families
from decodescope.variants.steps.fused.merging import RUN_DTYPE, MixedFormats, matrix_of


def fused_model(model: Any) -> FusedModel:
    """The parts of a causal language model that the fused kernels support (`support`).

    On first use this moves the model's Q/K/V and gate/up weights into merged matrices, a layer at a
    time: values, parameters and total memory stay the same, addresses change. A CUDA graph that was
    captured before must not be used afterwards. A second call moves nothing.

    Raises:
        ModelError: Q, K and V, or gate and up, of a layer are not stored in one format (names
            them), or the model's class is not one of transformers.
    """
    try:
        return _parts(model)
    except MixedFormats as error:
        raise error.named(model) from error


def require_readable(spec: VariantSpec, skeleton: Any) -> None:
    """Raise as `fused_model`, before the weights are loaded.

    `skeleton` is the model without memory, its matrices in the formats of the checkpoint. Those in
    the run dtype may get the format of `spec`.
    """
    model = deepcopy(skeleton)
    try:
        _parts(model)
    except MixedFormats as error:
        if not (spec.narrow and RUN_DTYPE in error.formats.values()):
            raise error.named(model) from error


def _parts(model: Any) -> FusedModel:
    _require_known_model(model)
    decoder = model.model
    windows = layer_windows(model.config)
    family = families()[model.config.model_type]
    heads = int(model.config.num_attention_heads)
    layers = tuple(
        replace(
            family.layer(layer, window),
            kv_heads=heads // layer.self_attn.num_key_value_groups,
            head_dim=layer.self_attn.head_dim,
            normed_over_ranks=isinstance(
                getattr(layer.self_attn, "q_norm", None), RMSNormOverRanks
            ),
        )
        for layer, window in zip(decoder.layers, windows, strict=True)
    )
    if model.device.type == "cuda":
        # The old memory fits no other layer's matrix: as much as the model would stay reserved.
        torch.cuda.empty_cache()
    parts = FusedModel(
        embedding=matrix_of(decoder.embed_tokens),
        layers=layers,
        final_norm=family.norm(decoder.norm),
        head=matrix_of(model.lm_head),
        heads=heads,
        scale=float(decoder.layers[0].self_attn.scaling),
        dtype=model.dtype,
        layer_inputs=family.inputs(decoder),
    )
    return family.whole(model.config, parts)


def _require_known_model(model: Any) -> None:
    for each in (model, getattr(model, "model", model)):
        if not type(each).__module__.startswith("transformers."):
            raise ModelError(
                f"{type(each).__name__} is code of the checkpoint, whose computation the fused "
                "kernels do not know; leave --trust-remote-code out, or choose eager or compiled"
            )
    # transformers makes the decoder of a model that reads images by the type of the whole model.
    named, read = model.config.model_type, type(model.config).model_type
    if named != read:
        raise ModelError(
            f"config.json names a text model of model_type {named}, which transformers reads as "
            f"{read}; correct config.json"
        )
