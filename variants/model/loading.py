"""Loads a model: safetensors from the hub or a folder, or a preset with random weights."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging as transformers_logging

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.analyzer.schema.report import Weights
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.model.hub import find_config
from decodescope.variants.model.presets import Preset
from decodescope.variants.model.source import ModelSource, needs_custom_code, read_config
from decodescope.variants.model.workload import DecodeWorkload, DType

RANDOM_SEED = 0
RANDOM_STD = 0.02
_TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A causal language model on its device, in evaluation mode, without gradients.

    `tokenizer` is None if the checkpoint has none, and for random weights. `max_context` is the
    number of positions the model allows, None if its configuration sets no limit.
    """

    model: Any
    tokenizer: Any | None
    weights: Weights
    name: str
    max_context: int | None

    @property
    def decode(self) -> Callable[[list[int]], str] | None:
        """Turns token ids into text; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return partial(self.tokenizer.decode, clean_up_tokenization_spaces=False)

    @property
    def vocab_size(self) -> int:
        """Number of tokens; the embedding table may have more rows."""
        return int(self.model.config.get_text_config(decoder=True).vocab_size)


def torch_dtype(dtype: DType) -> torch.dtype:
    """torch's dtype for "bf16", "fp16" or "fp32"."""
    return _TORCH_DTYPES[dtype]


def load_model(
    source: ModelSource,
    device: str,
    dtype: DType,
    trust_remote_code: bool = False,
    workload: DecodeWorkload | None = None,
    check: Callable[[str, Mapping[str, object]], None] | None = None,
) -> LoadedModel:
    """Load `source` onto `device` in `dtype`.

    Only safetensors are read; a checkpoint's own Python code runs only with `trust_remote_code`.
    `check` is called with the model's name and its config.json before any weights are loaded; its
    errors propagate.
    Random weights are drawn on the device with a fixed seed: normal with standard deviation 0.02,
    norm weights 1, biases 0. The same device and version give the same weights.

    Raises:
        ModelError: an unreadable checkpoint, no causal language model, or fewer positions than
            `workload` needs (checked before any weights are loaded).
        InputError: a checkpoint that needs custom code, without `trust_remote_code`.
        MissingRequirement: not found, no network and not cached, or out of GPU memory.
    """
    with memory_errors(f"loading {source.name} in {dtype}", device), _quiet_transformers():
        files = find_files(source)
        if not trust_remote_code and needs_custom_code(files.config, frozenset(CONFIG_MAPPING)):
            raise InputError(
                f"{source.name}: this model runs Python code from its checkpoint; if you trust "
                "it, pass --trust-remote-code"
            )
        if workload is not None:
            limit = files.config.get("max_position_embeddings")
            _check_positions(source.name, limit, workload)
        if check is not None:
            check(source.name, files.config)
        if source.kind == "random":
            assert source.preset is not None
            model = build_random(source.preset, device, torch_dtype(dtype))
            return loaded_model(model, None, "random", source.name)
        options = {"trust_remote_code": trust_remote_code, "local_files_only": files.cached_only}
        model = _load_pretrained(source, files, torch_dtype(dtype), options).to(device)
        tokenizer = _load_tokenizer(source, files, options)
        return loaded_model(
            model, tokenizer, "bundled" if source.kind == "tiny" else "pretrained", source.name
        )


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The config.json of a model, and its `location` (a hub id or folder; a preset has none).

    `cached_only` if nothing can be fetched from the hub.
    """

    location: str | None
    config: dict[str, object]
    cached_only: bool


def find_files(source: ModelSource) -> ModelFiles:
    """Find the configuration of `source`; of a hub model only config.json is fetched.

    Raises:
        InputError, ModelError, MissingRequirement: as `find_config` and `read_config`.
    """
    if source.kind == "random":
        assert source.preset is not None
        return ModelFiles(None, source.preset.config_fields(), True)
    if source.folder is not None:
        return ModelFiles(str(source.folder), read_config(source.folder / "config.json"), True)
    assert source.hub_id is not None
    path, cached_only = find_config(source.hub_id)
    return ModelFiles(source.hub_id, read_config(path), cached_only)


def check_fits(loaded: LoadedModel, workload: DecodeWorkload) -> None:
    """Raise `ModelError` if prompt and new tokens need more positions than the model allows."""
    _check_positions(loaded.name, loaded.max_context, workload)


def _check_positions(name: str, limit: object, workload: DecodeWorkload) -> None:
    if isinstance(limit, int) and workload.cache_length > limit:
        raise ModelError(
            f"{name} allows {limit} positions, but context {workload.context} + "
            f"{workload.new_tokens} new tokens need {workload.cache_length}; lower --context or "
            "--tokens"
        )


def build_random(preset: Preset, device: str, dtype: torch.dtype) -> Any:
    """The preset's model with seeded random weights, built in place on `device`."""
    config = AutoConfig.for_model(**preset.config_fields())
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    if device != "meta":
        _fill_random(model, device)
    return model


@torch.no_grad()
def _fill_random(model: Any, device: str) -> None:
    generator = torch.Generator(device).manual_seed(RANDOM_SEED)
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0.0, RANDOM_STD, generator=generator)
        elif name.endswith("bias"):
            parameter.zero_()
        else:
            parameter.fill_(1.0)


def loaded_model(model: Any, tokenizer: Any | None, weights: Weights, name: str) -> LoadedModel:
    """`model` in evaluation mode, without gradients, and what the others need to know of it."""
    model.eval().requires_grad_(False)
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return LoadedModel(model, tokenizer, weights, name, limit)


def _load_pretrained(
    source: ModelSource, files: ModelFiles, dtype: torch.dtype, options: dict[str, bool]
) -> Any:
    try:
        return AutoModelForCausalLM.from_pretrained(
            files.location, dtype=dtype, use_safetensors=True, **options
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers raises nearly every type for a broken checkpoint
        raise ModelError(f"{source.name}: cannot be loaded ({_first_line(error)})") from error


def _load_tokenizer(source: ModelSource, files: ModelFiles, options: dict[str, bool]) -> Any | None:
    folder = source.folder
    if folder is not None and not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(files.location, **options)
    except Exception as error:  # as above; a hub model without tokenizer files also fails here
        if folder is None:
            return None
        raise ModelError(
            f"{source.name}: its tokenizer cannot be loaded ({_first_line(error)})"
        ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".:")[:200]


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keep transformers' progress bars and warnings off the terminal during loading."""
    verbosity = transformers_logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if had_bars:
            transformers_logging.enable_progress_bar()
