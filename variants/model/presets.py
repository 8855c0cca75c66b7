"""Public model shapes that can run with random weights, without a download.

Each field of a `config` has the value of the published `config.json` of `hub_id` on huggingface.co,
or the default of the Hugging Face configuration class of its `model_type` if that file leaves it
out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Preset:
    """One public configuration.

    `parameters` counts the weights, including biases and norms; a tied table counts once. `config`
    holds the fields of config.json that determine the model's shape. Qwen2's Q/K/V biases and
    Qwen3's Q/K norms come with the class and have no field.
    """

    name: str
    hub_id: str
    parameters: int
    config: dict[str, Any]


@cache
def presets() -> Mapping[str, Preset]:
    """The presets of presets.json by name."""
    data = Path(__file__).with_name("presets.json").read_bytes()
    return {preset.name: preset for preset in msgspec.json.decode(data, type=tuple[Preset, ...])}
