"""Public model shapes that can run with random weights, without a download.

Each field has the value of the published `config.json` of `hub_id` on huggingface.co, or the
default of the Hugging Face configuration class of `model_type` if that file leaves it out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

ModelType = Literal["llama", "mistral", "qwen2", "qwen3"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One public configuration; without a `sliding_window` layers attend to the whole context.

    `rope_scaling` holds the parameters of the rope type "llama3", which rescales the frequencies of
    Llama 3.1 and later.
    """

    name: str
    hub_id: str
    model_type: ModelType
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    tie_word_embeddings: bool
    rope_scaling: dict[str, int | float] | None = None
    sliding_window: int | None = None
    bos_token_id: int = 1
    eos_token_id: int = 2

    @property
    def parameters(self) -> int:
        """Number of weights, including biases and norms; a tied table counts once."""
        query = self.num_attention_heads * self.head_dim
        key_value = self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * query + 2 * key_value)
        if self.model_type == "qwen2":
            attention += query + 2 * key_value
        if self.model_type == "qwen3":
            attention += 2 * self.head_dim
        mlp = 3 * self.hidden_size * self.intermediate_size
        layer = attention + mlp + 2 * self.hidden_size
        tables = 1 if self.tie_word_embeddings else 2
        return (
            self.num_hidden_layers * layer
            + self.hidden_size
            + tables * self.vocab_size * self.hidden_size
        )

    def config_fields(self) -> dict[str, object]:
        """The fields of the published config.json.

        Qwen2's Q/K/V biases and Qwen3's Q/K norms come with the class and have no field.
        """
        rope: dict[str, object] = {"rope_type": "default", "rope_theta": self.rope_theta}
        if self.rope_scaling is not None:
            rope |= {"rope_type": "llama3", **self.rope_scaling}
        fields: dict[str, object] = asdict(self) | {"rope_parameters": rope}
        for own_field in ("name", "hub_id", "rope_theta", "rope_scaling"):
            del fields[own_field]
        if self.model_type != "mistral":
            del fields["sliding_window"]
        return fields


@cache
def presets() -> Mapping[str, Preset]:
    """The presets of presets.json by name."""
    data = Path(__file__).with_name("presets.json").read_bytes()
    return {preset.name: preset for preset in msgspec.json.decode(data, type=tuple[Preset, ...])}
