"""The split of a model over ranks, from the names of its modules.

Decoders of transformers name the same part alike, so the rules here hold for families that have no
entry: QKV and gate/up are cut by rows, between heads; O and down by columns, and what they give is
summed over the ranks; experts by slices of each, or between experts; the head by rows. Router,
norms and tables are on every rank. A model with a part of another name is refused.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.experts import EXPERTS
from decodescope.variants.model.quantized_weights import QuantizedMatrix
from decodescope.variants.parallel.cuts import Block, Cut, Once, Split
from decodescope.variants.parallel.ranks import Ranks

HEAD, HEAD_WEIGHT = "lm_head", "lm_head.weight"
# The parts of a layer that give parts of a sum; Gemma 4 has experts beside the MLP.
SUMMED = ("self_attn", "mlp", "experts")
# Rows of heads: Q's, K's or V's, in their order.
_HEADS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "qkv_proj": "qkv", "sinks": "q"}
# Norms of each head, or of all heads at once.
QK_NORMS = {"q_norm": "q", "k_norm": "k"}
# How many times the MLP's width in rows.
_WIDTHS = {"gate_proj": 1, "up_proj": 1, "gate_up_proj": 2}
_WHOLE = ("gate", "shared_expert_gate", "per_layer_input_gate", "per_layer_projection")
_WIDTH_FIELDS = (
    "intermediate_size",
    "shared_expert_intermediate_size",
    "moe_intermediate_size",
)


def split_model(name: str, model: Any, ranks: Ranks, ep: bool = False) -> Split:
    """The split of a whole `model`, which may be without memory; with `ep`, of whole experts.

    Raises:
        ModelError: the ranks do not divide what is cut (names the field of config.json), or the
            model has parts that are not known.
    """
    cuts: dict[str, Cut | Once] = {}
    layers = getattr(getattr(model, "model", None), "layers", ())
    refused = _Refusal(name, model.config.get_text_config(decoder=True), ranks)
    if not layers or not isinstance(getattr(model, HEAD, None), nn.Module):
        raise refused.unknown("its layers and head")
    for number, layer in enumerate(layers):
        for key, cut in _layer_cuts(layer, ep, refused):
            cuts[f"model.layers.{number}.{key}"] = cut
    if ep and not any(".experts." in key for key in cuts):
        raise ModelError(f"{name}: its layers have no experts; leave out --ep")
    head = model.get_submodule(HEAD)
    vocabulary = Block(_shape(head)[0], uneven=True)
    refused.require(vocabulary, "vocab_size")
    for key in _tensors(head):
        cuts[f"{HEAD}.{key}"] = Cut(0, (vocabulary,))
    table = getattr(model.model, "embed_tokens", None)
    tied = getattr(head, "weight", head) is getattr(table, "weight", None)
    return Split(ranks, cuts, tied, ep)


class _Refusal:
    """Errors for one model."""

    def __init__(self, name: str, config: Any, ranks: Ranks) -> None:
        self._name = name
        self._config = config.to_dict()
        self._size = ranks.size

    def unknown(self, what: str) -> ModelError:
        return ModelError(
            f"{self._name}: a model of type {self._config['model_type']} cannot be split over "
            f"ranks: {what}; run it without --tp"
        )

    def require(
        self, block: Block, *fields: str, repeated: bool = False, or_ep: bool = False
    ) -> None:
        """Refuse a `block` that the ranks do not divide, unless it may be `repeated` on them.

        `fields` are the names that its elements may have in config.json; `or_ep`: ranks can hold
        it whole."""
        held_once = block.uneven or block.units >= self._size
        if block.splits(self._size) and (held_once or repeated):
            return
        held = [each for each in fields if self._config.get(each) == block.elements]
        units = "" if block.size == 1 else f" in blocks of {block.size}"
        allowed = "a multiple or a divisor" if repeated else "a multiple"
        raise ModelError(
            f"{self._name}: {next(iter(held), fields[-1])} {block.elements}{units} cannot be split "
            f"over {self._size} ranks (only {allowed} of {self._size}); choose another --tp"
            f"{', or --ep' * or_ep}"
        )

    def require_groups(self, path: str, module: Any) -> None:
        """Refuse a matrix of 4 bits of whose groups ranks would hold parts."""
        packing = module.packing if _is_held(module) else None
        if packing is not None and packing.columns % (self._size * (packing.format.group or 1)):
            raise ModelError(
                f"{self._name}: {path} of {packing.columns} columns in {packing.format} gives no "
                f"whole groups to each of {self._size} ranks; choose another --tp"
            )


def _layer_cuts(layer: Any, ep: bool, refused: _Refusal) -> Iterator[tuple[str, Cut | Once]]:
    attention: Any = getattr(layer, "self_attn", None)
    known = all(hasattr(attention, each) for each in ("num_key_value_groups", "head_dim", "o_proj"))
    if not known or "weight" not in _tensors(attention.o_proj):
        raise refused.unknown("a layer has no attention with heads and o_proj")
    heads = _heads(attention, refused)
    for path, module in layer.named_modules():
        parts = path.split(".")
        names = _tensors(module)
        if not names or "router" in parts or "experts" in parts[:-1]:
            continue
        cuts = _module_cuts(path, module, heads, attention.head_dim, ep, refused)
        if cuts is None or (cuts and parts[0] not in SUMMED):
            raise refused.unknown(f"{path or 'a layer'} has {names[0]}, which has no place")
        yield from ((f"{path}.{key}", cut) for key, cut in cuts.items())


def _module_cuts(
    path: str, module: Any, heads: dict[str, Block], head_dim: int, ep: bool, refused: _Refusal
) -> dict[str, Cut | Once] | None:
    """The cuts of the tensors of a `module` itself, none if they are on every rank; None of a
    module that is not known."""
    leaf, names = path.rpartition(".")[2], _tensors(module)
    if leaf == "experts":
        return dict(_expert_cuts(module, ep, refused))
    if path == "self_attn":
        return {"sinks": _rows_of_heads("sinks", heads, 1)} if names == ("sinks",) else None
    if leaf in _HEADS:
        cut = _rows_of_heads(leaf, heads, head_dim)
        return dict.fromkeys(names, cut) if _fits(cut, module) else None
    if leaf in _WIDTHS:
        width = _width(_shape(module)[0] // _WIDTHS[leaf], refused)
        return dict.fromkeys(names, Cut(0, (width,) * _WIDTHS[leaf]))
    if leaf in ("o_proj", "down_proj"):
        columns = Block(heads["q"].units, head_dim)
        if leaf == "down_proj":
            columns = _width(_shape(module)[1], refused)
        refused.require_groups(path, module)
        cut = Cut(1, (columns,))
        cuts: dict[str, Cut | Once] = {"weight": cut} | dict.fromkeys(names[1:], Once())
        return cuts if _fits(cut, module) else None
    if "norm" in leaf:
        if path.startswith("self_attn.") and _shape(module) != (head_dim,):
            return {"weight": _norm_of_heads(path, module, heads, head_dim, refused)}
        return None if path.startswith("mlp.") else {}
    return {} if leaf in _WHOLE else None


def _fits(cut: Cut, module: Any) -> bool:
    return cut.whole_shape(_shape(module)) == _shape(module)


def _heads(attention: Any, refused: _Refusal) -> dict[str, Block]:
    """The heads of Q and of K and V, as units of one element."""
    queries = Block(_shape(attention.o_proj)[1] // int(attention.head_dim))
    keys = Block(queries.units // int(attention.num_key_value_groups))
    refused.require(queries, "num_attention_heads")
    refused.require(keys, "num_key_value_heads", "num_global_key_value_heads", repeated=True)
    return {"q": queries, "k": keys, "v": keys}


def _rows_of_heads(leaf: str, heads: dict[str, Block], head_dim: int) -> Cut:
    return Cut(0, tuple(Block(heads[each].units, head_dim) for each in _HEADS[leaf]))


def _norm_of_heads(
    path: str, module: Any, heads: dict[str, Block], head_dim: int, refused: _Refusal
) -> Cut:
    """The cut of the weight of a norm of all heads at once, as `RMSNormOverRanks` has it."""
    which = QK_NORMS.get(path.removeprefix("self_attn."))
    is_rms = type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")
    if which is not None and is_rms:
        cut = Cut(0, (Block(heads[which].units, head_dim),))
        if _fits(cut, module) and _tensors(module) == ("weight",):
            return cut
    raise refused.unknown(f"{path} norms all heads at once")


def _width(elements: int, refused: _Refusal, size: int = 1, or_ep: bool = False) -> Block:
    """The width of an MLP, in units of so many elements."""
    width = Block(elements // size, size)
    refused.require(width, *_WIDTH_FIELDS, or_ep=or_ep)
    return width


def _expert_cuts(experts: Any, ep: bool, refused: _Refusal) -> Iterator[tuple[str, Cut | Once]]:
    """Of the stacked `experts`: [experts, rows, columns], or with rows and columns exchanged."""
    names = set(_tensors(experts)) | {
        key for key, module in experts.named_children() if _is_held(module)
    }
    if not {"gate_up_proj", "down_proj"} <= names:
        raise refused.unknown("its experts are not stacked")
    if ep:
        count = Block(int(experts.num_experts))
        refused.require(count, *EXPERTS)
        yield from ((key, Cut(0, (count,))) for key in names)
        return
    transposed = bool(getattr(experts, "is_transposed", False))
    down = experts.down_proj
    if isinstance(down, QuantizedMatrix) and (packing := down.packing) is not None:
        width = _width(packing.columns, refused, packing.group, or_ep=True)
    else:
        width = _width(down.shape[1 if transposed else 2], refused, or_ep=True)
    interleaved = not getattr(experts, "is_concatenated", True)
    rows = (Block(width.units, 2 * width.size),) if interleaved else (width, width)
    yield "gate_up_proj", Cut(2 if transposed else 1, rows)
    yield "down_proj", Cut(1 if transposed else 2, (width,))
    if "gate_up_proj_bias" in names:
        yield "gate_up_proj_bias", Cut(1, rows)
        yield "down_proj_bias", Once()


def _is_held(module: Any) -> bool:
    return isinstance(module, QuantizedMatrix)


def _tensors(module: Any) -> tuple[str, ...]:
    """The names of the tensors of `module` itself, a quantised matrix as its parameter."""
    names = tuple(key for key, _ in module.named_parameters(recurse=False))
    return ("weight", *names) if _is_held(module) else names


def _shape(module: Any) -> tuple[int, ...]:
    if _is_held(module):
        return (*module.data.shape[:-1], module.columns)
    return tuple(module.weight.shape)
