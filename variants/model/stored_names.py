"""The names of a checkpoint's tensors where they are not those of the model.

Checkpoints of mixtures hold experts one by one; transformers stacks them: gate above up, and down.
"""

from collections.abc import Collection, Iterable
from itertools import chain

# The matrices of one expert that make up those of the model.
_OF_EXPERTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
# One name, or for each expert those of its matrices.
Names = str | tuple[tuple[str, ...], ...]


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
