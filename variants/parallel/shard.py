"""Makes a model of transformers this rank's part of it.

The part is a smaller model of the same modules: they hold this rank's rows and columns as plain
tensors, and their configuration counts this rank's heads. What attention and MLP of a layer give is
a part of a sum, which a hook completes over all ranks. The logits are those of this rank's rows of
the vocabulary (`vocabulary.py`).
"""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad

from decodescope.kernels.host.packed import codes_and_scales, packed
from decodescope.kernels.host.packing import Packing
from decodescope.variants.model.quantized_weights import QuantizedExperts, QuantizedMatrix
from decodescope.variants.model.workload_costs import head_dim
from decodescope.variants.parallel.cuts import Cut, Split
from decodescope.variants.parallel.norm_over_ranks import RMSNormOverRanks
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.split import HEAD, HEAD_WEIGHT, QK_NORMS, SUMMED, split_model

_HEADS = "num_attention_heads"
_KV_HEADS = "num_key_value_heads"
_PER_LAYER = "per_layer_config"


@torch.no_grad()
def shard_model(model: Any, ranks: Ranks, ep: bool = False, name: str | None = None) -> None:
    """Leave of a whole `model`, with or without memory, this rank's part, in place; each tensor is
    freed before the next one is cut. With `ep`, ranks hold whole experts.

    `name` is the model's, for errors. Its forward pass needs the default process group of
    torch.distributed, with one process a rank.

    Raises:
        ModelError: as `split_model`; the model is as it was.
    """
    if ranks.alone:
        return
    split = split_model(name or model.config.model_type, model, ranks, ep)
    model.split = split
    for key, cut in split.cuts.items():
        path, _, leaf = key.rpartition(".")
        owner = model.get_submodule(path)
        part = owner if isinstance(owner, QuantizedMatrix) and leaf == "weight" else None
        part = getattr(owner, leaf) if part is None else part
        if isinstance(part, QuantizedMatrix):
            assert isinstance(cut, Cut)
            cut_quantized(part, cut, ranks)
        else:
            setattr(owner, leaf, nn.Parameter(cut.of(part.detach(), ranks), requires_grad=False))
            if isinstance(owner, nn.Linear):
                owner.out_features, owner.in_features = owner.weight.shape
            elif path.rpartition(".")[2] in QK_NORMS:
                model.set_submodule(path, RMSNormOverRanks(owner, ranks.size))
    if split.tied:
        tie_head(model, split)
    for layer in model.model.layers:
        _adjust(layer, ranks, ep)
    _count_heads(model.config.get_text_config(decoder=True), ranks.size)


def tie_head(model: Any, split: Split) -> None:
    """Make the head's weight a view of this rank's rows of the embedding table."""
    cut = split.cuts[HEAD_WEIGHT]
    assert isinstance(cut, Cut)
    rows = cut.blocks[0].held(split.ranks)
    weight = model.model.embed_tokens.weight.detach()[rows.start : rows.stop]
    model.get_submodule(HEAD).weight = nn.Parameter(weight, requires_grad=False)
    # Nor may transformers tie the whole table again.
    model.all_tied_weights_keys = {}
    model.config.get_text_config(decoder=True).tie_word_embeddings = False


def cut_quantized(held: QuantizedMatrix, cut: Cut, ranks: Ranks) -> None:
    """Leave of `held` the part that `cut`, which is of its parameter, gives this rank."""
    if isinstance(held, QuantizedExperts) and held.by_inputs:
        # Its matrices have a row for each output, their parameter one for each input.
        cut = cut.exchanged
    if held.packing is not None and cut.dimension == held.data.dim() - 1:
        _cut_columns(held, held.packing, cut, ranks)
        return
    held.data = cut.of(held.data, ranks)
    if held.scale is not None and cut.dimension < held.scale.dim():
        held.scale = cut.of(held.scale, ranks)


def _cut_columns(held: QuantizedMatrix, packing: Packing, cut: Cut, ranks: Ranks) -> None:
    """Leave of rows of 4 bits this rank's columns: the same codes and scales in shorter rows."""
    before = held.data.shape[:-1]
    codes, scales = codes_and_scales(held.data.flatten(0, -2), packing)
    codes = cut.of(codes.view(*before, -1), ranks)
    scales = scales.view(*before, *scales.shape[1:])
    if packing.format.group:
        scales = cut.in_groups(packing.group, held.data.dim()).of(scales, ranks)
    held.packing = part = replace(packing, columns=codes.shape[-1])
    codes = pad(codes, (0, part.padded - part.columns))
    scales = pad(scales, (0, 0, 0, part.groups - scales.shape[-2]))
    rows = packed(codes.flatten(0, -2), scales.flatten(0, -3), part)
    held.data = rows.view(*before, -1)


def _adjust(layer: Any, ranks: Ranks, ep: bool) -> None:
    """Have the modules of a layer use what they hold, and sum over the ranks."""
    attention = layer.self_attn
    output = attention.o_proj
    columns = output.columns if isinstance(output, QuantizedMatrix) else output.weight.shape[1]
    heads = int(columns) // int(attention.head_dim)
    kv_heads = _kv_heads(heads * ranks.size // int(attention.num_key_value_groups), ranks.size)
    attention.num_key_value_groups = heads // kv_heads
    for field, count in ((_HEADS, heads), (_KV_HEADS, kv_heads), ("num_heads", heads)):
        if hasattr(attention, field):
            setattr(attention, field, count)
    for path, module in layer.named_modules():
        if path in SUMMED:
            module.register_forward_hook(_sum_over_ranks)
        if ep and path.rpartition(".")[2] == "experts":
            module.num_experts //= ranks.size
            module.first_expert = ranks.rank * module.num_experts
            module.register_forward_pre_hook(_to_own_experts)


def _count_heads(config: Any, size: int) -> None:
    """Have a decoder's configuration count the heads of one of `size` ranks."""
    whole = config.to_dict()
    if not whole.get("head_dim"):
        # It would follow from the heads.
        config.head_dim = head_dim(config)
    config.num_key_value_heads = _kv_heads(whole.get(_KV_HEADS) or whole[_HEADS], size)
    config.num_attention_heads = whole[_HEADS] // size
    if layers := whole.get(_PER_LAYER):
        for fields in layers.values():
            if _KV_HEADS in fields:
                fields[_KV_HEADS] = _kv_heads(fields[_KV_HEADS], size)
        config.per_layer_config = layers


def _kv_heads(count: int, size: int) -> int:
    """Of `count` heads of K and V, those of each of `size` ranks."""
    return max(1, count // size)


def _sum_over_ranks(module: nn.Module, args: object, output: Any) -> Any:
    dist.all_reduce(output[0] if isinstance(output, tuple) else output)
    return output


def _to_own_experts(module: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The choices of this rank's experts, by their number here; the others weigh nothing."""
    x, chosen, weights = args
    own = chosen - module.first_expert
    here = (own >= 0) & (own < module.num_experts)
    return x, own.where(here, 0), weights.where(here, 0)
