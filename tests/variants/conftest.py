"""Small models of each supported architecture, built in a moment and never downloaded."""

from collections.abc import Callable
from typing import Any

import pytest

import tests.helpers.triton_mode  # noqa: F401  (before transformers' models, which import Triton)

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    # Large enough that greedy decoding does not settle on one token.
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PER_TYPE: dict[str, Any] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "mistral": {"sliding_window": 24},
}

ModelFactory = Callable[..., Any]


@pytest.fixture(scope="session")
def build_small() -> ModelFactory:
    """`build_small("llama", **config)` gives a transformers model with seeded random weights."""

    def build(model_type: str, **overrides: Any) -> Any:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.set_num_threads(1)
        torch.manual_seed(7)
        config = AutoConfig.for_model(model_type, **(SMALL | PER_TYPE[model_type] | overrides))
        return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)

    return build


@pytest.fixture(scope="session")
def load_small(build_small: ModelFactory) -> ModelFactory:
    """As `build_small`, as a `LoadedModel` with the name of its architecture."""

    def load(model_type: str, **overrides: Any) -> Any:
        from decodescope.variants.model.loading import LoadedModel

        model = build_small(model_type, **overrides)
        return LoadedModel(model, None, "random", model_type, model.config.max_position_embeddings)

    return load
