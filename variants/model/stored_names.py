"""The names of a checkpoint's tensors where they are not those of the model.

Checkpoints of mixtures hold experts one by one, and Mixtral's call its parts by other names;
transformers stacks the experts: gate above up, and down.
"""

from collections.abc import Collection

# The matrices of one expert that make up those of the model.
_OF_EXPERTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
Names = tuple[tuple[str, ...], ...]


def stored_names(key: str, tensors: Collection[str], experts: int) -> Names:
    """The `tensors` of a checkpoint that make up the tensor `key` of a model: one, or for each of
    the `experts` its matrices, from the first row on; () if the checkpoint lacks some."""
    for place in (key, key.replace(".mlp.", ".block_sparse_moe.", 1)):
        if place in tensors:
            return ((place,),)
        owner, _, leaf = place.rpartition(".")
        for parts in _OF_EXPERTS.get(leaf, ()):
            names = tuple(
                tuple(f"{owner}.{expert}.{part}.weight" for part in parts)
                for expert in range(experts)
            )
            if all(name in tensors for expert in names for name in expert):
                return names
    return ()
