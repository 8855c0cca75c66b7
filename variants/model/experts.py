"""The experts of a mixture: their number, the names of their tensors in a checkpoint, and the
fastest way of transformers to multiply by them.

transformers loops over the experts ("eager"), copies the matrices that each token uses
("batched_mm"), or sorts the tokens by expert ("grouped_mm", its default). A step of Qwen3-30B-A3B
on an H200 at batch 1 took 179, 65 and 105 ms so, and compiled, where a loop cannot be captured, 7.2
with copies and 6.9 in groups.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from math import prod
from typing import Any, Literal

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.text.numbers import is_integer
from decodescope.variants.model.quantized_weights import stacked_experts

Way = Literal["eager", "batched_mm", "grouped_mm"]

# Names in configurations; a mixture computes the tokens of one expert at a time.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts")
# torch multiplies in groups only by rows of so many bytes.
_ROW_BYTES = 16
# The matrices of one expert in a checkpoint that make up those of the model, which are stacked.
_OF_EXPERTS = {
    "gate_up_proj": (("gate_proj", "up_proj"), ("w1", "w3")),
    "down_proj": (("down_proj",), ("w2",)),
}
# One name, or for each expert those of its matrices.
StoredNames = str | tuple[tuple[str, ...], ...]


def expert_counts(config: Any) -> tuple[int, int]:
    """The experts of a layer and how many a token uses, by the model's configuration; 1 and 1
    without experts."""
    count = next(filter(None, _named(config, EXPERTS).values()), None)
    chosen = _named(config, _CHOSEN).values()
    return (1, 1) if count is None else (count, next(iter(chosen), count))


def has_experts(config: Any) -> bool:
    return any(_named(config, EXPERTS).values())


def choice(config: Any) -> str:
    """How many experts a token uses, in words, with the name of the field."""
    count, chosen = expert_counts(config)
    return f"{next(iter(_named(config, _CHOSEN)), _CHOSEN[0])} {chosen} of {count} experts"


def _named(config: Any, names: tuple[str, ...]) -> dict[str, int]:
    """Those of the fields `names` that hold an integer."""
    decoder = config.get_text_config(decoder=True)
    # Gemma 4 may name experts that it does not have.
    if getattr(decoder, "enable_moe_block", True) is False:
        return {}
    return {name: held for name in names if is_integer(held := getattr(decoder, name, None))}


def expert_choices(values: torch.Tensor, chosen: int) -> torch.Tensor:
    """How many tokens choose each expert, float32 [layers, experts]: the `chosen` with the largest
    of `values` [layers, batch, experts]."""
    used = values.topk(chosen, dim=-1).indices.flatten(1)
    choices = torch.zeros(values.shape[0], values.shape[2], device=values.device)
    return choices.scatter_add_(1, used, torch.ones(used.shape, device=used.device))


def balance_figures(last: torch.Tensor, all_choices: torch.Tensor) -> torch.Tensor:
    """Distinct experts of a layer in the choices of the last step, and the busiest one's share of
    all choices, both [layers, experts]; means over the layers, float32 [2]."""
    distinct = (last > 0).sum(dim=1).float().mean()
    busiest = (all_choices.max(dim=1).values / all_choices.sum(dim=1)).mean()
    return torch.stack((distinct, busiest))


def require_experts(name: str, skeleton: nn.Module, tensors: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the experts of `skeleton`, the model that config.json describes, with the shapes of a
    checkpoint's tensors.

    Checkpoints hold experts one by one (`….experts.3.….weight`), which transformers stacks, beside
    the router (`….gate.weight`).

    Raises:
        ModelError: a token uses none of them, or more than there are; a layer has another number,
            or experts that are not whole or of another size.
    """
    count, chosen = expert_counts(skeleton.config)
    if not 1 <= chosen <= count:
        raise ModelError(
            f"{name}: {choice(skeleton.config)} in config.json; use the config.json that was saved "
            "with the weights"
        )
    _require_matrices(name, skeleton, tensors)
    stored: dict[str, dict[str, int]] = {}
    for key, shape in tensors.items():
        layer, experts, rest = key.rpartition(".experts.")
        number = rest.partition(".")[0]
        if experts and number.isdecimal():
            elements = stored.setdefault(layer, {}).setdefault(number, 0)
            stored[layer][number] = elements + (prod(shape) if rest.endswith(".weight") else 0)
    sizes = {
        sum(getattr(module, each).numel() for each in names)
        for module in skeleton.modules()
        if (names := stacked_experts(module))
    }
    for layer, elements_of in stored.items():
        router = tensors.get(f"{layer}.gate.weight", (count,))[0]
        held = sum(elements_of.values())
        found = f"{len(elements_of)} experts of {held:,} elements and a router for {router}"
        if {len(elements_of), router} != {count} or (sizes and held not in sizes):
            expected = " or ".join(f"{size:,}" for size in sorted(sizes)) or "none"
            raise ModelError(
                f"{name}: config.json and the weights are of different models: {layer} has {found} "
                f"in the weights, and {count} of {expected} by config.json; use the files of one "
                "checkpoint"
            )
        if unknown := sorted(set(elements_of) - set(map(str, range(count)))):
            raise ModelError(
                f"{name}: {layer}.experts.{unknown[0]} in the weights, and config.json has {count} "
                "experts from 0 on; use the files of one checkpoint"
            )


def _require_matrices(
    name: str, skeleton: nn.Module, tensors: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse a matrix of an expert that is no matrix of the stacked ones, nor half of one: gate and
    up. Some families stack all of them transposed."""
    stacked = {
        tuple(getattr(module, each).shape[-2:])
        for module in skeleton.modules()
        for each in stacked_experts(module)
    }
    matrices = {
        key: tuple(shape)
        for key, shape in tensors.items()
        if key.rpartition(".experts.")[2].partition(".")[0].isdecimal()
        and key.endswith(".weight")
        and len(shape) == 2
    }
    for held in (stacked, {(columns, rows) for rows, columns in stacked}):
        shapes = held | {(rows // 2, columns) for rows, columns in held}
        if not stacked or shapes.issuperset(matrices.values()):
            return
    shapes = stacked | {(rows // 2, columns) for rows, columns in stacked}
    wrong = next(key for key, shape in matrices.items() if shape not in shapes)
    expected = " or ".join(str(list(shape)) for shape in sorted(shapes))
    raise ModelError(
        f"{name}: config.json and the weights are of different models: {wrong} is "
        f"{list(matrices[wrong])} in the weights, and {expected} by config.json; use the files of "
        "one checkpoint"
    )


def stored_names(key: str, tensors: Collection[str], experts: int) -> StoredNames | None:
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


def every_name(names: StoredNames) -> Iterable[str]:
    return (names,) if isinstance(names, str) else chain.from_iterable(names)


def step_way(model: Any, batch: int, compiled: bool) -> Way | None:
    """The fastest way of a step of `batch` sequences; None: as the model is.

    Copies are faster as long as they are no more than all experts of a layer. A CPU, which copies
    no faster than it multiplies, keeps groups. Compiled, groups win, but only of bfloat16 can torch
    capture them.
    """
    matrices = _chosen_by_config(model)
    if not matrices:
        return None
    grouped = _can_group(matrices)
    if compiled:
        return "grouped_mm" if grouped and model.dtype == torch.bfloat16 else "batched_mm"
    count, chosen = expert_counts(model.config)
    if model.device.type == "cpu" or (grouped and batch * chosen > count):
        return None
    return "batched_mm"


def set_prompt_way(model: Any) -> None:
    """Have `model` loop over its experts if torch cannot multiply by them in groups."""
    matrices = _chosen_by_config(model)
    if matrices and not _can_group(matrices):
        _decoder(model)._experts_implementation = "eager"


@contextmanager
def multiplying_by_experts(model: Any, way: Way | None) -> Iterator[None]:
    """Within it, `model` multiplies by its experts in this way; None: as it is."""
    if way is None:
        yield
        return
    decoder = _decoder(model)
    before = decoder._experts_implementation
    decoder._experts_implementation = way
    try:
        yield
    finally:
        decoder._experts_implementation = before


def _decoder(model: Any) -> Any:
    return model.config.get_text_config(decoder=True)


def _chosen_by_config(model: nn.Module) -> list[torch.Tensor]:
    """The stacked matrices of the modules whose way the configuration decides: transformers gives
    these the attribute `is_transposed`; and packed ones, which cannot be multiplied in groups."""
    return [
        getattr(module, name)
        for module in model.modules()
        if hasattr(module, "is_transposed")
        for name in stacked_experts(module)
    ] + [module.data for module in model.modules() if getattr(module, "packing", None)]


def _can_group(matrices: list[torch.Tensor]) -> bool:
    if any(matrix.dtype == torch.int32 for matrix in matrices):
        return False
    sizes = (size * matrix.itemsize for matrix in matrices for size in matrix.shape[1:])
    return not any(row_bytes % _ROW_BYTES for row_bytes in sizes)
