"""The names of a checkpoint's tensors where they are not those of the model.

Checkpoints of some families call parts by other names, and those of mixtures hold experts one by
one; transformers renames the parts, and stacks the experts: gate above up, and down.
"""

from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightRenaming, rename_source_key

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.checkpoint import StoredTensor, stored_tensors

# The matrices of one expert that make up those of the model.
_OF_EXPERTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
# One name, or for each expert those of its matrices.
Names = str | tuple[tuple[str, ...], ...]


def model_tensors(folder: Path, skeleton: Any) -> dict[str, StoredTensor]:
    """Every tensor of the checkpoint in `folder` by the name to which transformers renames it for
    the model `skeleton`; what it converts, as the matrices of single experts, before that.

    Raises:
        ModelError: as `stored_tensors`, and if two tensors get one name.
    """
    mapping = get_model_conversion_mapping(skeleton, add_legacy=False)
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    expected = skeleton.state_dict()
    tensors: dict[str, StoredTensor] = {}
    for stored, tensor in stored_tensors(folder).items():
        key, _ = rename_source_key(stored, renamings, [], skeleton.base_model_prefix, expected)
        if stored in expected and key not in expected:
            key = stored
        if key in tensors:
            raise ModelError(
                f"{folder}: {tensors[key].name} and {stored} are both {key} of the model; download "
                "or save the model again"
            )
        tensors[key] = tensor
    return tensors


def stored_names(key: str, tensors: Collection[str], experts: int) -> Names | None:
    """The names among `tensors` that make up the tensor `key` of a model, of its `experts` from the
    first row on; None if the checkpoint lacks some."""
    if key in tensors:
        return key
    owner, _, leaf = key.rpartition(".")
    for parts in _OF_EXPERTS.get(leaf, ()):
        names = tuple(
            tuple(f"{owner}.{expert}.{part}.weight" for part in parts) for expert in range(experts)
        )
        if all(name in tensors for expert in names for name in expert):
            return names
    return None


def every_name(names: Names) -> Iterable[str]:
    return (names,) if isinstance(names, str) else chain.from_iterable(names)
