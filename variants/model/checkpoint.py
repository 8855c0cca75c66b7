"""The files of a checkpoint, and the checks that it is whole and that its model can be decoded.

Only safetensors are read: other formats are pickles, which can run code. transformers would load a
pickle that an index names, so it is called only after the headers of the files are checked. It
fills in missing tensors with random values, so an incomplete checkpoint would decode different text
in every run.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import DynamicCache
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key
from transformers.utils import logging as transformers_logging

from decodescope.analyzer.errors import DecodescopeError, ModelError, first_line
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.model.experts import every_name, expert_counts, stored_names
from decodescope.variants.model.source import GGUF, read_object
from decodescope.variants.model.stored_quantization import declares_quantization
from decodescope.variants.model.workload_costs import has_delta_net

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
UNEXPECTED_WEIGHTS = "unexpected_weights"
_NAMED = 3
_MAX_REASON = 200
_CHECKED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Shape = tuple[int, ...]

# The types of 8-bit weights by their safetensors names, and the ends of the names of their scales.
NARROW_TYPES = {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I8": torch.int8,
}
SCALES = ("weight_scale", "weight_scale_inv")
# The types of other weights, and of scales.
FLOAT_TYPES = ("F32", "BF16", "F16", "F64")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the header of `file` describes it under `name`; `dtype` is the safetensors name
    ("BF16")."""

    file: Path
    name: str
    dtype: str
    shape: Shape


def model_tensors(folder: Path, skeleton: Any) -> dict[str, StoredTensor]:
    """Every tensor of the checkpoint in `folder`, from the headers of its files, by the name to
    which transformers renames it for the model `skeleton`; what it converts, such as the matrices
    of single experts, by the name before that.

    Raises:
        ModelError: there are no safetensors weights, or a file is missing, incomplete or not
            safetensors, or two tensors have one name; names the file.
    """
    mapping = get_model_conversion_mapping(skeleton, add_legacy=False)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    expected = skeleton.state_dict()
    tensors: dict[str, StoredTensor] = {}
    for name in _file_names(folder):
        for stored, tensor in _header(folder / name).items():
            key, _ = rename_source_key(stored, renamings, [], skeleton.base_model_prefix, expected)
            if stored in expected and key not in expected:
                key = stored
            if twice := tensors.get(key):
                raise ModelError(
                    f"{tensor.file}: holds {stored}, as {twice.file.name} holds {twice.name}, of "
                    "the same name in the model; download or save the model again"
                )
            tensors[key] = tensor
    if not tensors:
        raise ModelError(f"{folder}: its safetensors files hold no tensors; save the model again")
    return tensors


def holds_quantized(config: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> bool:
    """Whether config.json or the `tensors` of a checkpoint say that its weights are quantized."""
    return declares_quantization(config) or any(
        tensor.dtype in NARROW_TYPES or name.endswith(SCALES) or tensor.file.suffix == GGUF
        for name, tensor in tensors.items()
    )


def shard_names(index: Path) -> tuple[str, ...]:
    """The files that an index (model.safetensors.index.json) names, sorted.

    Raises:
        ModelError: not an index, or a file that is not safetensors beside it.
    """
    weight_map = read_object(index, "index of weights").get("weight_map")
    files = weight_map.values() if isinstance(weight_map, dict) else ()
    if not files or not all(isinstance(file, str) for file in files):
        raise ModelError(f"{index}: names no weights; save the model again")
    names = sorted(set(files))
    for name in names:
        if not name.endswith(".safetensors") or PurePath(name).name != name:
            raise ModelError(
                f"{index}: names {name}; only safetensors files of the same folder are loaded, "
                "because others can run code; save the model as safetensors"
            )
    return tuple(names)


def _file_names(folder: Path) -> tuple[str, ...]:
    if (folder / WEIGHTS).is_file():
        return (WEIGHTS,)
    if not (folder / INDEX).is_file():
        raise ModelError(
            f"{folder}: has neither {WEIGHTS} nor {INDEX}; save the model with save_pretrained"
        )
    names = shard_names(folder / INDEX)
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise ModelError(
            f"{folder}: {len(missing)} of the {len(names)} files that {INDEX} names are missing "
            f"({missing[0]}); download or copy them again"
        )
    return names


def _header(path: Path) -> dict[str, StoredTensor]:
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(path, name, part.get_dtype(), tuple(part.get_shape()))
                for name, part in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path}: not a whole safetensors file ({error}); download or copy it again"
        ) from error


def require_shapes(name: str, skeleton: Any, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare the tensors of a checkpoint with those of the model that config.json describes.

    `skeleton` is that model without memory. Only equal names are compared: transformers stacks some
    tensors.

    Raises:
        ModelError: a tensor has another shape; names the first few.
    """
    wrong = [
        f"{key} is {list(tensors[key].shape)} in the weights and {list(value.shape)} by config.json"
        for key, value in skeleton.state_dict().items()
        if key in tensors and math.prod(tensors[key].shape) != value.numel()
    ]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise ModelError(
            f"{name}: config.json and the weights are of different models: {wrong[0]}{more}; use "
            "the files of one checkpoint"
        )


def require_types(name: str, skeleton: Any, tensors: Mapping[str, StoredTensor]) -> None:
    """Raise `ModelError` if a tensor of the model, or of one of its experts, is stored in a type
    that holds no weights; transformers would convert it."""
    experts = expert_counts(skeleton.config)[0]
    for key, value in skeleton.state_dict().items():
        for stored in every_name(stored_names(key, tensors, experts) or ()):
            if value.is_floating_point() and tensors[stored].dtype not in FLOAT_TYPES:
                raise ModelError(
                    f"{name}: {tensors[stored].name} is {tensors[stored].dtype} (only "
                    f"{', '.join(FLOAT_TYPES)}); choose another checkpoint"
                )


def require_complete(name: str, info: Mapping[str, Collection[Any]]) -> tuple[Finding, ...]:
    """Check the `loading_info` of transformers, which leaves out tied tensors and those that the
    architecture ignores; returns a finding if the checkpoint has tensors that nothing uses.

    Raises:
        ModelError: tensors are missing or have another shape; names the first few.
    """
    if mismatched := sorted(str(entry[0]) for entry in info["mismatched_keys"]):
        raise ModelError(
            f"{name}: config.json and the weights are of different models: the shape differs in "
            f"{_count(mismatched)}, {_first(mismatched)}; use the files of one checkpoint"
        )
    if missing := sorted(info["missing_keys"]):
        raise ModelError(
            f"{name}: the checkpoint lacks {_count(missing)} of the model: {_first(missing)}; "
            "download or save it again"
        )
    unexpected = sorted(info["unexpected_keys"])
    if not unexpected:
        return ()
    message = (
        f"the checkpoint has {_count(unexpected)} that the model does not use: {_first(unexpected)}"
    )
    return (Finding(UNEXPECTED_WEIGHTS, message),)


@torch.no_grad()
def require_finite(name: str, model: Any) -> None:
    """Check that every weight is a finite number, and every frequency of RoPE; reads each once, on
    its device.

    Raises:
        ModelError: a NaN or infinite weight, or frequency; names the first few tensors.
    """
    for key, buffer in model.named_buffers():
        if key.endswith("inv_freq") and not buffer.isfinite().all():
            raise ModelError(
                f"{name}: the frequencies {key} are NaN or infinite; correct rope_theta or "
                "rope_parameters in config.json"
            )
    checked = {
        key: weight
        for key, weight in model.named_parameters()
        if weight.dtype in _CHECKED_DTYPES and weight.numel()
    }
    # The smallest and largest element are NaN if any is.
    bounds = [torch.stack(weight.aminmax()).isfinite().all() for weight in checked.values()]
    finite = torch.stack(bounds).tolist() if bounds else []
    broken = [key for key, fine in zip(checked, finite, strict=True) if not fine]
    if broken:
        raise ModelError(
            f"{name}: NaN or infinite values in {_count(broken)} as {_dtype(model)}: "
            f"{_first(broken)}; choose another --dtype, or download the checkpoint again"
        )


def require_kv_cache(name: str, skeleton: Any) -> None:
    """Refuse architectures that keep more than K and V: how much a step of them reads is not known,
    except of the states of a gated DeltaNet.

    Raises:
        ModelError: `skeleton`, which may be without memory, is one of them, or keeps no tokens.
    """
    known = {"DynamicLayer", "DynamicSlidingWindowLayer"}
    decoder = skeleton.config.get_text_config(decoder=True)
    if getattr(decoder, "num_kv_shared_layers", 0):
        # Of layers that read the K and V of an earlier one.
        known.add("DummyLayer")
    if has_delta_net(decoder):
        known.add("LinearAttentionLayer")
    elif getattr(skeleton, "_is_stateful", False):
        raise _not_decoded(name, skeleton, "keeps a recurrent state")
    layers = DynamicCache(config=skeleton.config).layers
    if broken := [window for each in layers if (window := getattr(each, "sliding_window", 1)) < 1]:
        raise ModelError(
            f"{name}: the window of its attention has {broken[0]} tokens; correct sliding_window "
            "or attention_chunk_size in config.json"
        )
    kinds = {type(layer).__name__ for layer in layers}
    if others := sorted(kinds - known):
        raise _not_decoded(name, skeleton, f"keeps more than K and V ({', '.join(others)})")


@torch.no_grad()
def require_decoding(name: str, model: Any) -> None:
    """Read a prompt of two tokens and decode one, to see that the model keeps K and V and gives
    finite logits.

    Raises:
        ModelError: it does not; says what a model must have.
        torch.OutOfMemoryError: GPU memory ran out.
    """
    cache = DynamicCache(config=model.config)
    try:
        for length in (2, 1):
            ids = torch.zeros(1, length, dtype=torch.int64, device=model.device)
            output = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        kept, shape = cache.get_seq_length(), tuple(output.logits.shape[:2])
        # Masked logits are minus infinity.
        usable = bool((output.logits < math.inf).all())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the model's own code, from transformers or the checkpoint
        raise _not_decoded(name, model, f"fails ({first_line(error)})") from error
    if kept != 3 or shape != (1, 1):
        raise _not_decoded(name, model, "keeps no K and V of earlier tokens")
    if not usable:
        raise ModelError(
            f"{name}: its logits are NaN or infinite in {_dtype(model)}; choose another --dtype, "
            "or download the checkpoint again"
        )


@contextmanager
def broken_checkpoint(name: str, unsupported: str | None = None) -> Iterator[None]:
    """Turn the errors of transformers, which have nearly every type, into a `ModelError`, with why
    decodescope itself does not read the checkpoint."""
    try:
        yield
    except (DecodescopeError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        why = f"; it is {unsupported}" if unsupported else ""
        raise ModelError(f"{name}: cannot be loaded ({in_one_line(error)}){why}") from error


def in_one_line(error: Exception) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return words if len(words) <= _MAX_REASON else f"{words[:_MAX_REASON]}..."


@contextmanager
def quiet_transformers() -> Iterator[None]:
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


def _not_decoded(name: str, model: Any, why: str) -> ModelError:
    return ModelError(
        f"{name}: a model of type {model.config.model_type} {why}; only decoder-only language "
        "models with a KV cache can be decoded"
    )


def _count(names: Collection[str]) -> str:
    return "1 tensor" if len(names) == 1 else f"{len(names)} tensors"


def _first(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _dtype(model: Any) -> str:
    return str(model.dtype).removeprefix("torch.")
