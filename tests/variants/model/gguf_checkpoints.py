"""Small GGUF files, written by the package gguf."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

gguf = pytest.importorskip("gguf")
Kind = gguf.GGMLQuantizationType

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, LAYERS, VOCABULARY = 256, 512, 4, 2, 2, 101
FIELDS: Mapping[str, Any] = {
    "context_length": 64,
    "embedding_length": HIDDEN,
    "block_count": LAYERS,
    "feed_forward_length": INTERMEDIATE,
    "head_count": HEADS,
    "head_count_kv": KV_HEADS,
    "layer_norm_rms_eps": 1e-5,
    "rope_freq_base": 500.0,
    "vocab_size": VOCABULARY,
}
_MATRICES = {
    "ffn_gate": (INTERMEDIATE, HIDDEN),
    "ffn_up": (INTERMEDIATE, HIDDEN),
    "ffn_down": (HIDDEN, INTERMEDIATE),
}

_LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
MIXES: dict[str, dict[str, Kind]] = {
    "Q4_0": dict.fromkeys(_LAYER, Kind.Q4_0) | {"token_embd": Kind.Q4_0, "output": Kind.Q6_K},
    "Q8_0": dict.fromkeys((*_LAYER, "token_embd"), Kind.Q8_0),
    "Q4_K_M": dict.fromkeys(_LAYER, Kind.Q4_K)
    | {"attn_v": Kind.Q6_K, "ffn_down": Kind.Q6_K, "token_embd": Kind.Q4_K, "output": Kind.Q6_K},
}


def blocks(shape: tuple[int, int], kind: Kind, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random blocks of a type, uint8 [rows, bytes], with float16 scales of both signs."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    made = random.integers(0, 256, (shape[0], shape[1] // elements, size), dtype=np.uint8)
    # d, and of Q4_K also dmin; that of Q6_K is the last.
    places = {Kind.Q4_K: (0, 2), Kind.Q6_K: (size - 2,)}.get(kind, (0,))
    largest = {Kind.Q4_0: 8, Kind.Q8_0: 127, Kind.Q4_K: 500, Kind.Q6_K: 2000}[kind]
    for place in places:
        scales = random.uniform(-1, 1, made.shape[:2]) * shape[1] ** -0.5 * 2 / largest
        made[..., place : place + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    return made.reshape(shape[0], -1)


def save_gguf(
    path: Path,
    kinds: Mapping[str, Kind],
    architecture: str = "llama",
    head: bool = True,
    rope_factors: np.ndarray[Any, Any] | None = None,
    head_dim: int = HIDDEN // HEADS,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """A model with random weights: `kinds` of tensors by their names, all else float32. Without a
    `head` of its own, the embedding table is that. llama.cpp stores `rope_factors` of Llama 3.
    `fields` are added to the metadata."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in {**FIELDS, **fields}.items():
        getattr(writer, f"add_{name}")(value)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (VOCABULARY, HIDDEN),
        "output": (VOCABULARY, HIDDEN),
        "output_norm": (HIDDEN,),
    }
    if not head:
        del shapes["output"]
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in _MATRICES.items()}
        shapes |= {f"blk.{layer}.attn_q": (HEADS * head_dim, HIDDEN)}
        shapes |= {f"blk.{layer}.attn_{each}": (KV_HEADS * head_dim, HIDDEN) for each in "kv"}
        shapes |= {f"blk.{layer}.attn_output": (HIDDEN, HEADS * head_dim)}
        if architecture == "qwen3":
            shapes |= {f"blk.{layer}.attn_{each}_norm": (head_dim,) for each in "qk"}
        shapes |= {f"blk.{layer}.{name}_norm": (HIDDEN,) for name in ("attn", "ffn")}
    for name, shape in shapes.items():
        kind = kinds.get(name.rpartition(".")[2])
        if kind is None:
            values = random.normal(size=shape) * (0.2 if len(shape) == 1 else shape[-1] ** -0.5)
            values = values + 1 if len(shape) == 1 else values
            writer.add_tensor(f"{name}.weight", values.astype(np.float32))
        else:
            stored = blocks((shape[0], shape[1]), kind, random)
            writer.add_tensor(f"{name}.weight", stored, raw_dtype=kind)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def by_transformers(path: Path, **changes: Any) -> PreTrainedModel:
    """The model that transformers' reader makes of the file, with other fields in its
    configuration, in fp32."""
    config = load_gguf_checkpoint(str(path))["config"] | changes
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    model.load_state_dict(read["tensors"], strict=config["tie_word_embeddings"] is False)
    model.tie_weights()
    return model.eval().requires_grad_(False)
