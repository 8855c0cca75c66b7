"""Resolves a model's name to the source of its weights, without torch or network.

presets.json has public model shapes that can run with random weights, without a download. Each
field of a `config` has the value of the published `config.json` of `hub_id` on huggingface.co, or
the default of the Hugging Face configuration class of its `model_type` if that file leaves it out.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import isnan
from pathlib import Path
from typing import Any, Literal

import msgspec

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.analyzer.protocol.messages import ModelInfo

SourceKind = Literal["hub", "folder", "file", "random", "tiny"]
RANDOM_SUFFIX = "@random"
GGUF = ".gguf"
TINY = "tiny"
TINY_PARAMETERS = 3_803_392

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w][\w.-]*)?")
_SIMILAR = 0.75
# With a hub repository's name, transformers fetches its kernels and runs them.
_ATTENTION_FIELDS = ("attn_implementation", "_attn_implementation")
# The index of the largest public checkpoints has 10 MB.
_MAX_JSON_BYTES = 64 << 20
_MAX_SHOWN = 60
# transformers builds lists of this length from the configuration alone.
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_MAX_LAYERS = 10_000


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
    data = Path(__file__).with_name("presets.json").read_bytes()
    return {preset.name: preset for preset in msgspec.json.decode(data, type=tuple[Preset, ...])}


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A resolved `--model`. `folder` is set for "folder" and "tiny", `preset` for "random" (and for
    "hub" if the name is a preset's), `hub_id` for "hub", `gguf` for "file"."""

    name: str
    kind: SourceKind
    hub_id: str | None = None
    folder: Path | None = None
    preset: Preset | None = None
    gguf: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether its files are here."""
        return self.folder is not None or self.gguf is not None


def resolve_model(name: str) -> ModelSource:
    """The source that `--model name` means; checks that a local folder has the files to load.

    Tried in this order: `tiny`; `<preset>@random`; a preset's name (its hub id); an existing
    folder or GGUF file; a hub id.

    Raises:
        InputError: a name that matches none of these; suggests the nearest one.
        ModelError: a folder without config.json or without safetensors weights.
        MissingRequirement: a path that does not exist, or the bundled model is not installed.
    """
    if not name.strip():
        raise InputError("--model: the name is empty; see `decodescope models`")
    if name == TINY:
        return ModelSource(name, "tiny", folder=_checked_folder(tiny_folder(), name))
    if name.endswith(RANDOM_SUFFIX):
        return _random_source(name)
    if name in presets():
        preset = presets()[name]
        return ModelSource(name, "hub", hub_id=preset.hub_id, preset=preset)
    path = Path(name).expanduser()
    if path.is_dir():
        return ModelSource(name, "folder", folder=_checked_folder(path, name))
    if path.is_file() and path.suffix == GGUF:
        return ModelSource(name, "file", gguf=path)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/"):
        if path.is_file():
            raise ModelError(f"{name}: a file, and neither a folder of safetensors nor a {GGUF}")
        raise MissingRequirement(f"model not found: there is no folder {name}")
    if not _HUB_ID.fullmatch(name) or ("/" not in name and _did_you_mean(name)):
        raise InputError(f"unknown model {name!r}{_did_you_mean(name)}; see `decodescope models`")
    return ModelSource(name, "hub", hub_id=name)


def tiny_folder() -> Path:
    return Path(__file__).resolve().parents[1] / "tiny"


def offered_models() -> tuple[ModelInfo, ...]:
    """`tiny`, and each preset with random weights and with those of the hub."""
    offered = [ModelInfo(TINY, "bundled, trained", TINY_PARAMETERS)]
    for preset in presets().values():
        name, size = preset.name, preset.parameters
        offered.append(ModelInfo(name + RANDOM_SUFFIX, "random weights, no download", size))
        offered.append(ModelInfo(name, f"weights of {preset.hub_id}", size))
    return tuple(offered)


def needs_custom_code(config: dict[str, object], known_model_types: frozenset[str]) -> bool:
    """Whether loading with this config.json runs Python files of the checkpoint or hub kernels."""
    parts = [config, *(value for value in config.values() if isinstance(value, dict))]
    named = [str(part.get(field, "")) for part in parts for field in _ATTENTION_FIELDS]
    if any("/" in name for name in named):
        return True
    return bool(config.get("auto_map")) and config.get("model_type") not in known_model_types


def read_config(path: Path) -> dict[str, object]:
    """Read a checkpoint's config.json.

    Raises:
        ModelError: not a JSON object, or a field that every configuration has is missing or
            impossible.
    """
    return checked_config(path, read_object(path, "model configuration"))


def checked_config(path: Path, config: dict[str, object]) -> dict[str, object]:
    """`config`, which `path` has. Raises as `read_config`."""
    model_type = config.get("model_type")
    if not (isinstance(model_type, str) or (model_type is None and config.get("auto_map"))):
        raise ModelError(
            f"{path}: model_type is {_short(model_type)}, not the name of an architecture; it must "
            "be the config.json of a transformers model"
        )
    for name in _LAYER_COUNTS:
        layers = config.get(name)
        if isinstance(layers, int) and not 0 < layers <= _MAX_LAYERS:
            raise ModelError(f"{path}: {name} is {_short(layers)}; must be 1 to {_MAX_LAYERS:,}")
    for name, value in _numbers(config):
        if isnan(value):
            raise ModelError(f"{path}: {name} is NaN; must be a number")
    return config


def _numbers(fields: dict[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Each fraction among the fields of an object and of those in it, by its path."""
    for name, value in fields.items():
        if isinstance(value, float):
            yield prefix + name, value
        elif isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")


def read_object(path: Path, title: str) -> dict[str, object]:
    """Read the JSON object in `path`, which `title` names in errors.

    Raises:
        ModelError: unreadable, too large, or not a JSON object.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_JSON_BYTES:
            raise ModelError(
                f"{path}: {size:,} bytes are too many for a {title} (at most {_MAX_JSON_BYTES:,})"
            )
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: unreadable {title} ({error})") from error
    except RecursionError as error:
        raise ModelError(f"{path}: unreadable {title} (nested too deeply)") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a {title} (a JSON object is expected)")
    return content


def _short(value: object) -> str:
    text = "missing" if value is None else json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _random_source(name: str) -> ModelSource:
    preset = presets().get(name.removesuffix(RANDOM_SUFFIX))
    if preset is None:
        raise InputError(
            f"unknown model {name!r}{_did_you_mean(name)}; random weights exist for the presets "
            f"{', '.join(presets())}"
        )
    return ModelSource(name, "random", preset=preset)


def _checked_folder(folder: Path, name: str) -> Path:
    if name == TINY and not folder.is_dir():
        raise MissingRequirement(
            "model not found: this installation lacks the bundled model `tiny`"
        )
    if not (folder / "config.json").is_file() and (files := sorted(folder.glob(f"*{GGUF}"))):
        raise ModelError(f"{name}: a folder of GGUF files; name one, as {files[0]}")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{name}: no config.json in this folder, so it is not a model checkpoint")
    if any(folder.glob("*.safetensors")):
        return folder
    pickles = sorted(
        entry.name for pattern in ("*.bin", "*.pt", "*.pth") for entry in folder.glob(pattern)
    )
    if pickles:
        raise ModelError(
            f"{name}: only pickled weights ({pickles[0]}), which are never loaded because they can "
            "run code; save the model as safetensors"
        )
    raise ModelError(f"{name}: no weights (*.safetensors) in this folder")


def _did_you_mean(name: str) -> str:
    """The model of the nearest name, for an error; "" if none is similar."""
    known = [TINY, *presets(), *(preset + RANDOM_SUFFIX for preset in presets())]
    nearest = get_close_matches(name.lower(), known, n=1, cutoff=_SIMILAR)
    return f" (did you mean {nearest[0]}?)" if nearest else ""
