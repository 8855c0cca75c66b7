"""Public model shapes that can run with random weights, without a download.

Each field has the value of the published `config.json` of `hub_id` on huggingface.co, or the
default of the Hugging Face configuration class of `model_type` if that file leaves it out.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Literal

ModelType = Literal["llama", "mistral", "qwen2", "qwen3"]


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """The frequency rescaling of Llama 3.1 and later (rope type "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True)
class Preset:
    """One public configuration; without a `sliding_window` layers attend to the whole context."""

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
    rope_scaling: RopeScaling | None = None
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
            rope |= {"rope_type": "llama3"} | asdict(self.rope_scaling)
        fields: dict[str, object] = asdict(self) | {"rope_parameters": rope}
        for own_field in ("name", "hub_id", "rope_theta", "rope_scaling"):
            del fields[own_field]
        if self.model_type != "mistral":
            del fields["sliding_window"]
        return fields


_LLAMA_2_7B = Preset(
    name="llama-2-7b",
    hub_id="meta-llama/Llama-2-7b-hf",
    model_type="llama",
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    head_dim=128,
    intermediate_size=11008,
    vocab_size=32000,
    max_position_embeddings=4096,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)
_MISTRAL_7B = replace(
    _LLAMA_2_7B,
    name="mistral-7b",
    hub_id="mistralai/Mistral-7B-v0.1",
    model_type="mistral",
    num_key_value_heads=8,
    intermediate_size=14336,
    max_position_embeddings=32768,
    sliding_window=4096,
)
_LLAMA_3_1_8B = replace(
    _LLAMA_2_7B,
    name="llama-3.1-8b",
    hub_id="meta-llama/Llama-3.1-8B",
    num_key_value_heads=8,
    intermediate_size=14336,
    vocab_size=128256,
    max_position_embeddings=131072,
    rope_theta=500_000.0,
    rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192),
    bos_token_id=128000,
    eos_token_id=128001,
)
_LLAMA_3_2_1B = replace(
    _LLAMA_3_1_8B,
    name="llama-3.2-1b",
    hub_id="meta-llama/Llama-3.2-1B",
    hidden_size=2048,
    num_hidden_layers=16,
    head_dim=64,
    intermediate_size=8192,
    tie_word_embeddings=True,
    rope_scaling=RopeScaling(32.0, 1.0, 4.0, 8192),
)
_QWEN2_5_0_5B = Preset(
    name="qwen2.5-0.5b",
    hub_id="Qwen/Qwen2.5-0.5B",
    model_type="qwen2",
    hidden_size=896,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=4864,
    vocab_size=151936,
    max_position_embeddings=32768,
    rope_theta=1_000_000.0,
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
    bos_token_id=151643,
    eos_token_id=151643,
)
_QWEN3_0_6B = replace(
    _QWEN2_5_0_5B,
    name="qwen3-0.6b",
    hub_id="Qwen/Qwen3-0.6B",
    model_type="qwen3",
    hidden_size=1024,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=3072,
    max_position_embeddings=40960,
    eos_token_id=151645,
)
_ALL = (_LLAMA_2_7B, _LLAMA_3_2_1B, _LLAMA_3_1_8B, _QWEN2_5_0_5B, _QWEN3_0_6B, _MISTRAL_7B)
PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})
