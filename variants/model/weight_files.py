"""The safetensors files of a checkpoint, and the tensors that they hold. No weights are read.

Nothing else is ever loaded: other formats are pickles, which can run code. transformers would load
a pickle that an index names, so it is called only after these checks.
"""

from dataclasses import dataclass
from pathlib import Path, PurePath

from safetensors import SafetensorError, safe_open

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.source import read_object

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What the header of `file` says of a tensor; `dtype` is safetensors' name of it ("BF16")."""

    file: Path
    dtype: str
    shape: Shape


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of the checkpoint in `folder`, by name, from the headers of its files.

    Raises:
        ModelError: there are no safetensors weights, or a file is missing, incomplete or not
            safetensors; names the file.
    """
    if sharded := sorted(folder.glob("shard-*-model-*.safetensors")):
        raise ModelError(
            f"{sharded[0]}: a distributed checkpoint, which is not supported; save the model with "
            f"save_pretrained, which writes {WEIGHTS}"
        )
    tensors: dict[str, StoredTensor] = {}
    for name in _file_names(folder):
        tensors |= _header(folder / name)
    if not tensors:
        raise ModelError(f"{folder}: its safetensors files hold no tensors; save the model again")
    return tensors


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
    """As transformers chooses: one file, or the files that the index names."""
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
                name: StoredTensor(path, part.get_dtype(), tuple(part.get_shape()))
                for name, part in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"{path}: not a whole safetensors file ({error}); download or copy it again"
        ) from error
