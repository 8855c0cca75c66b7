"""A small Llama, the stand-in for gpt-fast's module, and the variants as installed ones.

pytest reads this file before it collects any test, so it imports neither transformers nor what
imports it: these import Triton, which tests/helpers/triton_mode.py must do first.
"""

import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from decodescope.analyzer.errors import VARIANTS_GROUP
from decodescope.variants import registry

if TYPE_CHECKING:
    from decodescope.variants.model.loading import LoadedModel

Load = Callable[..., "LoadedModel"]
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


@pytest.fixture
def load_llama() -> Load:
    """`load_llama(**config)` gives a loaded Llama with seeded random weights."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from decodescope.variants.model.loading import LoadedModel

    def load(**config: Any) -> LoadedModel:
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(LlamaConfig(**(SMALL | config)))
        model = model.eval().requires_grad_(False)
        return LoadedModel(model, None, "random", "llama", SMALL["max_position_embeddings"])

    return load


@pytest.fixture
def stand_in() -> ModuleType:
    """A module with the names and layouts of gpt-fast's `model.py`."""
    return _module("gpt_fast_stand_in")


@pytest.fixture
def quantize() -> ModuleType:
    """One with those of its `quantize.py`."""
    return _module("gpt_fast_quantize_stand_in")


def _module(name: str) -> ModuleType:
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variants of this package, and no others, as pip installs their entry points."""
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text())["project"]
    named = project["entry-points"][VARIANTS_GROUP].items()
    entries = [EntryPoint(name, value, VARIANTS_GROUP) for name, value in named]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
