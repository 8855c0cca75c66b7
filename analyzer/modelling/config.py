"""Reads the shape of a model from a Hugging Face config.json, or from the bundled table by name.

Every entry of the bundled models.json holds fields of a published config.json; `source` says where
they were checked. An alias is a name of other weights of the same shape.
"""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config_fields import (
    WINDOW,
    Family,
    Fields,
    attention_kinds,
    expert_layers,
    families,
    shown,
)
from decodescope.analyzer.modelling.shape import (
    Experts,
    LatentAttention,
    LayerKind,
    LinearAttention,
    ModelShape,
    QkNorm,
)
from decodescope.analyzer.text.plain import plain_line

# Endings of names that do not change the shape.
_ENDINGS = re.compile(r"(?:-(?:instruct|it|chat|base|hf|thinking|2507|pt))+$")
_MAX_SHOWN = 80
_CONFIG = "config.json"
_MAX_BYTES = 16 << 20
_MAX_LAYERS = 4096
_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
}
# Names of the part of a multimodal config.json that describes the decoder.
_NESTED = ("text_config", "llm_config", "language_config")
# Fields of layers whose bytes are not known here: state spaces, sparse attention, layers that
# differ, encoders, embeddings of each layer.
_UNKNOWN_FIELDS = (
    "attn_layer_period",
    "block_configs",
    "cross_attention_layers",
    "hidden_size_per_layer_input",
    "hybrid_override_pattern",
    "index_topk",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
)


class BundledModel(msgspec.Struct, frozen=True):
    """An entry of models.json: fields of a config.json, where they are from, and other names."""

    source: str
    config: dict[str, Any]
    aliases: list[str] = []


def bundled_models() -> dict[str, BundledModel]:
    """The entries of models.json by their full name, as "Qwen/Qwen3-8B"."""
    data = resources.files("decodescope.analyzer.modelling").joinpath("models.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, BundledModel])


def bundled_config(name: str) -> tuple[str, dict[str, Any]]:
    """The full name and the config fields of the model that is called `name`.

    Case, the organisation, what follows an "@" and endings such as "-Instruct" do not matter.

    Raises:
        InputError: no such name; the message has the nearest ones.
    """
    models = bundled_models()
    known = {_key(each): full for full, model in models.items() for each in (full, *model.aliases)}
    key = _key(name)
    if key not in known:
        near = get_close_matches(key, known, n=3, cutoff=0.5)
        nearest = " or ".join(dict.fromkeys(known[key] for key in near))
        hint = f"{nearest}, or " if nearest else ""
        raise InputError(
            f"no model called {plain_line(name)[:_MAX_SHOWN]} is known; name {hint}the model's "
            "config.json or its folder"
        )
    return known[key], models[known[key]].config


def _key(name: str) -> str:
    key = name.strip().partition("@")[0].rpartition("/")[2].lower().replace("_", "-")
    return _ENDINGS.sub("", key.removeprefix("meta-"))


def read_model_config(name_or_path: str) -> ModelShape:
    """The shape of the model that a config.json describes, or that has this name.

    `name_or_path`: a config.json, a folder that holds one, or a name of the bundled table, as
    "openai/gpt-oss-20b" or "gpt-oss-20b". Nothing is downloaded.

    Raises:
        InputError: no such file or name, or a file that does not say what is needed.
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or os.path.exists(path):
        return _read(path / _CONFIG if path.is_dir() else path, name_or_path)
    name, config = bundled_config(name_or_path)
    return model_shape(config, name, name)


def _read(path: Path, name: str) -> ModelShape:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path}: too large for a config.json; name the config.json itself")
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a file"
        if isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
            raise InputError(f"{path}: not JSON ({error}); name a model's config.json") from None
        raise InputError(f"{path}: {why}; name a model's config.json or its folder") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply; name a model's config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a JSON object; name a model's config.json")
    return model_shape(config, name, str(path))


def model_shape(config: Mapping[str, Any], name: str, source: str) -> ModelShape:
    """The shape that the fields of a config.json describe; `source` names the file in errors.

    Raises:
        InputError: a field is missing, has no possible value, or contradicts another.
    """
    fields = _decoder_fields(config, source)
    kind = str(fields.get("model_type") or "")
    family = families().get(kind, Family())
    _check_known(fields, family)
    layers = fields.count("num_hidden_layers", "n_layer", "num_layers")
    if layers > _MAX_LAYERS:
        raise fields.error(f"num_hidden_layers is {layers}, more than {_MAX_LAYERS}")
    hidden = fields.count("hidden_size", "n_embd", "d_model")
    heads = fields.count("num_attention_heads", "n_head")
    kv_heads = fields.optional_count("num_key_value_heads") or heads
    latent = _latent(fields)
    kinds = attention_kinds(fields, layers)
    if latent is None and heads % kv_heads:
        raise fields.error(
            f"num_attention_heads ({heads}) is no multiple of num_key_value_heads ({kv_heads})"
        )
    if "sliding" in kinds and fields.get(*WINDOW) is None:
        raise fields.error("layer_types has sliding_attention, but there is no sliding_window")
    experts = _experts(fields, family)
    # Gemma 4: experts beside an MLP, with norms of their own.
    beside = experts is not None and fields.flag("enable_moe_block")
    bias = fields.flag("attention_bias", "use_bias", "bias") or False
    gate = fields.flag("attn_output_gate")
    quantization = config.get("quantization_config") or fields.get("quantization_config")
    if quantization is not None and not isinstance(quantization, dict):
        raise fields.error(f"quantization_config is {shown(quantization)}, not an object")
    return ModelShape(
        name=name,
        source=source,
        model_type=kind,
        hidden=hidden,
        intermediate=_intermediate(fields, hidden),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(fields, hidden, heads, latent),
        vocabulary=fields.count("vocab_size"),
        layers=kinds,
        is_moe=(False,) * layers if experts is None else expert_layers(fields, layers),
        dtype=_dtype(fields),
        tied=fields.flag("tie_word_embeddings") or False,
        qkv_bias=bias or family.qkv_bias or fields.flag("qkv_bias") is True,
        o_bias=bias and family.o_bias,
        mlp_bias=fields.flag("mlp_bias", "use_bias") or False,
        gated=family.gated,
        qk_norm=_qk_norm(fields, family),
        norms_per_layer=family.norms_per_layer + (4 if beside else 0),
        norm_bias=family.norm_bias,
        sliding_window=fields.optional_count(*WINDOW) if "sliding" in kinds else None,
        attention_gate=family.attention_gate if gate is None else gate,
        sinks=family.sinks,
        global_heads=_global_heads(fields, kinds, kv_heads),
        keys_are_values=fields.flag("attention_k_eq_v") or False,
        kv_shared_layers=fields.optional_count("num_kv_shared_layers", least=0) or 0,
        wide_mlp=fields.flag("use_double_wide_mlp") or False,
        layer_input=fields.optional_count("hidden_size_per_layer_input", least=0) or 0,
        experts=experts,
        latent=latent,
        linear=_linear(fields) if "linear" in kinds else None,
        quantization=quantization,
    )


def _check_known(fields: Fields, family: Family) -> None:
    if fields.flag("is_encoder_decoder"):
        raise fields.error("is_encoder_decoder is true", "give the config.json of a decoder")
    for name in _UNKNOWN_FIELDS:
        known = family.layer_inputs and name == "hidden_size_per_layer_input"
        if fields.values.get(name) and not known:
            raise fields.error(
                f"{name}: the bytes of such layers are not known",
                "known are full, sliding, latent and gated linear attention, MLPs and experts",
            )


def _decoder_fields(config: Mapping[str, Any], source: str) -> Fields:
    nested = next((config[name] for name in _NESTED if isinstance(config.get(name), dict)), None)
    values = {**config, **nested} if nested is not None else config
    kind = values.get("model_type")
    if nested is not None and "model_type" not in nested and _defaults(f"{kind}_text"):
        kind = f"{kind}_text"
        values = {**values, "model_type": kind}
    return Fields(source, values, _defaults(kind))


def _defaults(kind: object) -> Mapping[str, Any]:
    return families().get(kind, Family()).defaults if isinstance(kind, str) else {}


def _intermediate(fields: Fields, hidden: int) -> int:
    names = ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim")
    size = fields.optional_count(*names, "moe_intermediate_size")
    if size is None and fields.get("n_embd") is not None:
        return 4 * hidden
    return size if size is not None else fields.count("intermediate_size")


def _head_dim(fields: Fields, hidden: int, heads: int, latent: LatentAttention | None) -> int:
    if latent is not None:
        return latent.nope_dim + latent.rope_dim
    if (size := fields.optional_count("head_dim")) is not None:
        return size
    if hidden % heads:
        raise fields.error(
            f"hidden_size ({hidden}) is no multiple of num_attention_heads ({heads}), "
            "and there is no head_dim"
        )
    return hidden // heads


def _global_heads(
    fields: Fields, kinds: tuple[LayerKind, ...], kv_heads: int
) -> tuple[int, int] | None:
    """KV heads and head_dim of layers of full attention, if the file gives them apart; transformers
    writes them for each layer."""
    size, heads = fields.optional_count("global_head_dim"), None
    if isinstance(layers := fields.get("per_layer_config"), dict) and "full" in kinds:
        layer = layers.get(str(kinds.index("full")))
        own = Fields(fields.source, layer if isinstance(layer, dict) else {}, {})
        size, heads = (own.optional_count(name) for name in ("head_dim", "num_key_value_heads"))
    elif fields.flag("attention_k_eq_v"):
        heads = fields.optional_count("num_global_key_value_heads")
    return None if size is None else (heads or kv_heads, size)


def _latent(fields: Fields) -> LatentAttention | None:
    if fields.get("kv_lora_rank") is None:
        return None
    return LatentAttention(
        q_rank=fields.optional_count("q_lora_rank"),
        kv_rank=fields.count("kv_lora_rank"),
        rope_dim=fields.count("qk_rope_head_dim"),
        nope_dim=fields.count("qk_nope_head_dim"),
        value_dim=fields.count("v_head_dim"),
    )


def _linear(fields: Fields) -> LinearAttention:
    return LinearAttention(
        key_heads=fields.count("linear_num_key_heads"),
        value_heads=fields.count("linear_num_value_heads"),
        key_dim=fields.count("linear_key_head_dim"),
        value_dim=fields.count("linear_value_head_dim"),
        convolution=fields.count("linear_conv_kernel_dim"),
    )


def _experts(fields: Fields, family: Family) -> Experts | None:
    counts = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    count, beside = fields.optional_count(*counts, least=0) or 0, fields.flag("enable_moe_block")
    if count <= 1 or beside is False:
        return None
    chosen = (
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_k",
    )
    per_token = fields.count(*chosen)
    if per_token > count:
        raise fields.error(
            f"{fields.named(*chosen)} ({per_token}) exceeds {fields.named(*counts)} ({count})"
        )
    width = fields.optional_count("moe_intermediate_size") or fields.count("intermediate_size")
    shared = fields.optional_count(
        "shared_expert_intermediate_size", "shared_intermediate_size", least=0
    )
    if beside:
        shared = fields.count("intermediate_size")
    if shared is None:
        number = fields.optional_count("n_shared_experts", "num_shared_experts", least=0) or 0
        shared = number * width
    return Experts(
        count=count,
        per_token=per_token,
        intermediate=width,
        shared_intermediate=shared,
        shared_gate=family.shared_gate,
        bias=family.expert_bias,
        # Gemma 4 has a factor for each expert.
        router_bias=family.router_bias or beside is True,
    )


def _qk_norm(fields: Fields, family: Family) -> QkNorm:
    if family.qk_norm == "all":
        return "all"
    flag = fields.flag("use_qk_norm", "qk_layernorm")
    if flag and family.qk_norm == "none":
        return "head"
    return "none" if flag is False else family.qk_norm


def _dtype(fields: Fields) -> str:
    dtype = fields.get("dtype", "torch_dtype")
    if dtype is None:
        return "bf16"
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise fields.error(
            f"{fields.named('dtype', 'torch_dtype')} is {shown(dtype)}",
            f"known are {', '.join(_DTYPES)}",
        )
    return _DTYPES[name]
