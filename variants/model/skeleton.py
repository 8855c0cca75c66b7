"""The model that config.json describes, without weights: what is known, and refused, before any are
read."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.checkpoint import (
    INDEX,
    WEIGHTS,
    broken_checkpoint,
    require_kv_cache,
)
from decodescope.variants.model.gguf_file import gguf_config
from decodescope.variants.model.hub import find_config
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import (
    ModelSource,
    checked_config,
    needs_custom_code,
    read_config,
)
from decodescope.variants.model.workload import DecodeWorkload, DType

_TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def torch_dtype(dtype: DType) -> torch.dtype:
    return _TORCH_DTYPES[dtype]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The config.json of a model, and its `location` (a hub id or folder; a preset has none).

    `cached_only` if nothing can be fetched from the hub.
    """

    location: str | None
    config: dict[str, object]
    cached_only: bool


def find_files(source: ModelSource) -> ModelFiles:
    """Find the configuration of `source`; of a hub model only config.json is fetched. Raises as
    `find_config` and `read_config`.
    """
    if source.kind == "random":
        assert source.preset is not None
        return ModelFiles(None, source.preset.config, True)
    if source.folder is not None:
        return ModelFiles(str(source.folder), read_config(source.folder / "config.json"), True)
    if source.gguf is not None:
        config = checked_config(source.gguf, gguf_config(source.gguf))
        return ModelFiles(str(source.gguf.parent), config, True)
    assert source.hub_id is not None
    path, cached_only = find_config(source.hub_id)
    return ModelFiles(source.hub_id, read_config(path), cached_only)


def require_loadable(
    source: ModelSource,
    files: ModelFiles,
    trust_remote_code: bool,
    workload: DecodeWorkload | None = None,
) -> None:
    """Check that the configuration allows to load `source`, and `workload` to be decoded.

    Raises:
        InputError: a checkpoint that needs custom code, without `trust_remote_code`.
        ModelError: fewer positions than `workload` needs.
    """
    if not trust_remote_code and needs_custom_code(files.config, frozenset(CONFIG_MAPPING)):
        raise InputError(
            f"{source.name}: this model runs code of its checkpoint or of the hub; if you "
            "trust it, pass --trust-remote-code"
        )
    if workload is not None:
        require_positions(source.name, files.config.get("max_position_embeddings"), workload)


def require_positions(name: str, limit: object, workload: DecodeWorkload) -> None:
    """Raise `ModelError` if prompt and new tokens need more positions than `limit`."""
    if isinstance(limit, int) and workload.cache_length > limit:
        raise ModelError(
            f"{name} allows {limit} positions, but context {workload.context} + "
            f"{workload.new_tokens} new tokens need {workload.cache_length}; lower --context or "
            "--tokens"
        )


def build_skeleton(
    source: ModelSource, files: ModelFiles, dtype: torch.dtype, trust_remote_code: bool
) -> Any:
    """The model that config.json describes, on the meta device: shapes without memory."""
    if source.preset is not None and source.kind == "random":
        return build_random(source.preset.config, "meta", dtype)
    if "transformers_weights" in files.config:
        raise ModelError(
            f"{source.name}: config.json names its weights in transformers_weights; only {WEIGHTS} "
            f"and the files of {INDEX} are loaded"
        )
    options = {"trust_remote_code": trust_remote_code, "local_files_only": files.cached_only}
    model_type, custom = files.config.get("model_type"), bool(files.config.get("auto_map"))
    if model_type not in CONFIG_MAPPING and not custom:
        raise ModelError(
            f"{source.name}: this release of transformers knows no model of type {model_type}"
        )
    with broken_checkpoint(source.name):
        if source.gguf is not None:
            config = AutoConfig.for_model(**deepcopy(files.config))
        else:
            config = AutoConfig.from_pretrained(files.location, **options)
        if not custom and not _is_decoder(config):
            raise ModelError(
                f"{source.name}: a model of type {config.model_type} is no decoder-only language "
                "model; choose one that transformers loads with AutoModelForCausalLM"
            )
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(
                config, dtype=dtype, trust_remote_code=trust_remote_code
            )
        require_kv_cache(source.name, skeleton)
    return skeleton


def _is_decoder(config: Any) -> bool:
    """Whether the architecture predicts the next token from the earlier ones only."""
    encoder = type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(
        config, "is_decoder", False
    )
    if encoder or config.is_encoder_decoder:
        return False
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
