"""The text decoder of a model that also reads images or sound, as Gemma 3 and 4 are published.

transformers loads such a checkpoint as a whole. A step reads tokens only: what it does not need is
dropped, and every variant decodes the same text model.
"""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as LANGUAGE_MODELS,
)


def decoder_fields(fields: Mapping[str, object]) -> Mapping[str, object]:
    """The fields of config.json that describe the decoder: those of its `text_config`, if both are
    of language models, and how its weights are stored."""
    text = fields.get("text_config")
    if not isinstance(text, dict) or not _are_known(fields, text):
        return fields
    name = "quantization_config"
    return text | ({name: fields[name]} if name in fields else {})


def text_decoder(model: Any) -> Any:
    """`model`, or the language model in it with its head: the same parameters."""
    decoder = getattr(getattr(model, "model", None), "language_model", None)
    if decoder is None or decoder.config.model_type not in LANGUAGE_MODELS:
        return model
    with torch.device("meta"):
        text = AutoModelForCausalLM.from_config(decoder.config, dtype=model.dtype)
    text.config, text.model, text.lm_head = decoder.config, decoder, model.lm_head
    return text


def _are_known(*parts: Mapping[str, object]) -> bool:
    return all(str(part.get("model_type")) in LANGUAGE_MODELS for part in parts)
