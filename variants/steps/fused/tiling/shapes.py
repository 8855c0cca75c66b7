"""The sizes that tiles depend on, and the operations of a decode step that have a tile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.variants.spec import VariantSpec

if TYPE_CHECKING:
    from decodescope.variants.steps.fused.blocks import FusedModel

# By the bytes that they read in a step, and so by what their tiles matter.
TiledOperation = Literal[
    "head",
    "gate_up",
    "experts_gate_up",
    "shared_gate_up",
    "down",
    "experts_down",
    "shared_down",
    "qkv",
    "o",
    "attention",
    "other_attention",
    "router",
    "layer_inputs",
    "input_gate",
    "input_projection",
]
# The tile of each operation of a step that has one; all layers share it.
StepTiles = Mapping[TiledOperation, Tile]
OF_EXPERTS: tuple[TiledOperation, ...] = ("experts_gate_up", "experts_down")
_NORMED: tuple[TiledOperation, ...] = ("qkv", "router")
_FUSED = VariantSpec("fused")


@dataclass(frozen=True, slots=True)
class Shape:
    """The matrix that one operation reads: `rows` outputs of `columns` inputs each.

    `unit` rows belong together: those of a head for qkv, a gate and its up row for gate_up, 1 for
    others. Attention reads K and V: kv_heads * head_dim rows (unit: head_dim) over `columns`
    positions, rounded up to a power of two, because a tile suits a range of cache lengths.
    `matrices` of that shape are read at most, those of the experts that the tokens use.
    """

    rows: int
    columns: int
    unit: int = 1
    matrices: int = 1


@dataclass(frozen=True, slots=True)
class StepShapes:
    """The sizes of a model and its workload that tiles depend on.

    `intermediate` is that of a dense MLP, `expert_intermediate` that of an expert and
    `shared_intermediate` that of a shared one, 0 where there is none; a token uses `chosen` of
    `experts`, 0 of 0 in a dense model. `capacity` is the length of the KV cache. The sizes of one
    element are those of activations (in the model's dtype), of the layers' matrices, of lm_head,
    and of K and V; of weights of 4 bits, whose format is `packed`, 0. `int8`: narrow weights are
    integers, whose conversion takes more instructions than that of FP8. `fp8_x`: products with
    narrow weights read E4M3 activations. `packed_experts` is the format of experts of 4 bits, whose
    elements have 0 bytes. Some layers may have `other_kv_heads` of `other_head_dim` in attention, 0
    if all are alike: all other operations share a tile. `input_width` is that of a layer's own
    input, 0 without one, `inputs_width` that of all.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    batch: int
    capacity: int
    activation_bytes: int
    weight_bytes: int
    head_bytes: int
    kv_bytes: int
    int8: bool = False
    fp8_x: bool = False
    experts: int = 0
    chosen: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    packed_experts: str = ""
    packed: str = ""
    other_kv_heads: int = 0
    other_head_dim: int = 0
    input_width: int = 0
    inputs_width: int = 0

    @property
    def operations(self) -> tuple[TiledOperation, ...]:
        """The operations of the step that have a tile, in the order of `TiledOperation`: those that
        read something."""
        shapes = ((name, self.shape(name)) for name in get_args(TiledOperation))
        return tuple(name for name, shape in shapes if shape.rows and shape.columns)

    def element_bytes(self, operation: TiledOperation) -> int:
        """The size of one element of what `operation` reads: weights, or K and V."""
        special: Mapping[TiledOperation, int] = {
            "attention": self.kv_bytes,
            "other_attention": self.kv_bytes,
            "head": self.head_bytes,
            "router": self.activation_bytes,
            "layer_inputs": self.activation_bytes,
        }
        if self.packed_experts and operation in OF_EXPERTS:
            return 0
        return special.get(operation, self.weight_bytes)

    def packed_format(self, operation: TiledOperation) -> str:
        """The format of what `operation` reads, if that has 4 bits."""
        if self.element_bytes(operation):
            return ""
        return self.packed_experts if operation in OF_EXPERTS else self.packed

    def shape(self, operation: TiledOperation) -> Shape:
        """The shape that `operation` reads in one layer (the head: in one step)."""
        return DECLARATIONS[operation].shape(self)

    def may_split(self, operation: TiledOperation) -> bool:
        """Whether programs may share an output of `operation`."""
        return DECLARATIONS[operation].splits and (self.batch > 1 or operation not in _NORMED)


@dataclass(frozen=True, slots=True)
class TileDeclaration:
    """An operation with a tile: what it reads, and what its kernel asks of the tile.

    `thread_bytes` and `program_bytes` are what its default tile reads at batch 1, of elements of 2
    bytes: what won on an H200 at the shapes of Llama 3.2 1B, and of Qwen3-30B-A3B for experts.
    `least_rows` are the fewest at batch 1. One that `splits` may share an output between programs;
    qkv and the router only of a batch, since the kernel of one token applies the norm.
    """

    shape: Callable[[StepShapes], Shape]
    program_bytes: int = 0
    thread_bytes: int = 256
    least_rows: int = 1
    splits: bool = False


def _qkv(sizes: StepShapes) -> Shape:
    rows = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim
    return Shape(rows, sizes.hidden, sizes.head_dim)


def _attention(kv_heads: int, head_dim: int, sizes: StepShapes) -> Shape:
    return Shape(kv_heads * head_dim, power_of_2_from(sizes.capacity), head_dim)


def _gate_up(width: int, sizes: StepShapes, matrices: int = 1) -> Shape:
    return Shape(2 * width, sizes.hidden, 2, matrices)


def _experts_gate_up(sizes: StepShapes) -> Shape:
    return _gate_up(sizes.expert_intermediate, sizes, _used_experts(sizes))


def _experts_down(sizes: StepShapes) -> Shape:
    return Shape(sizes.hidden, sizes.expert_intermediate, 1, _used_experts(sizes))


def _used_experts(sizes: StepShapes) -> int:
    """Experts that the tokens use at most."""
    return min(sizes.experts, sizes.batch * sizes.chosen)


_KB = 1024
DECLARATIONS: Mapping[TiledOperation, TileDeclaration] = {
    "qkv": TileDeclaration(_qkv, 32 * _KB, least_rows=2, splits=True),
    "attention": TileDeclaration(
        lambda sizes: _attention(sizes.kv_heads, sizes.head_dim, sizes), splits=True
    ),
    "other_attention": TileDeclaration(
        lambda sizes: _attention(sizes.other_kv_heads, sizes.other_head_dim, sizes), splits=True
    ),
    "o": TileDeclaration(
        lambda sizes: Shape(sizes.hidden, sizes.heads * sizes.head_dim), 16 * _KB, splits=True
    ),
    "gate_up": TileDeclaration(
        lambda sizes: _gate_up(sizes.intermediate, sizes), 32 * _KB, least_rows=2
    ),
    "down": TileDeclaration(
        lambda sizes: Shape(sizes.hidden, sizes.intermediate), 64 * _KB, splits=True
    ),
    "head": TileDeclaration(lambda sizes: Shape(sizes.vocab, sizes.hidden), 32 * _KB),
    "router": TileDeclaration(
        lambda sizes: Shape(sizes.experts, sizes.hidden), 4 * _KB, 64, splits=True
    ),
    "shared_gate_up": TileDeclaration(
        lambda sizes: _gate_up(sizes.shared_intermediate, sizes), 32 * _KB, least_rows=2
    ),
    "shared_down": TileDeclaration(
        lambda sizes: Shape(sizes.hidden, sizes.shared_intermediate), 64 * _KB, splits=True
    ),
    "layer_inputs": TileDeclaration(
        lambda sizes: Shape(sizes.inputs_width, sizes.hidden), 32 * _KB
    ),
    "input_gate": TileDeclaration(lambda sizes: Shape(sizes.input_width, sizes.hidden), 4 * _KB),
    "input_projection": TileDeclaration(
        lambda sizes: Shape(sizes.hidden, sizes.input_width), 4 * _KB, splits=True
    ),
    "experts_gate_up": TileDeclaration(_experts_gate_up, 8 * _KB, least_rows=2),
    "experts_down": TileDeclaration(_experts_down, 24 * _KB, 768),
}


def step_shapes(
    model: "FusedModel", batch: int, capacity: int, spec: VariantSpec = _FUSED
) -> StepShapes:
    """The sizes of a step of `model`, whose K, V and activations are stored as `spec` says.

    Of matrices of several formats, as some quantized checkpoints have, the widest elements count:
    a tile for them also fits narrower ones.
    """
    activation_bytes = model.dtype.itemsize
    matrices = [matrix for layer in model.layers for matrix in layer.matrices]
    # Of a checkpoint as well, whose format the variant does not name.
    packed = filter(None, map(_packed_format, (*matrices, model.head)))
    dense, experts = model.dense, next(iter(model.mixtures), None)
    first, other = model.layers[0], model.other_heads
    return StepShapes(
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=first.kv_heads,
        head_dim=first.head_dim,
        intermediate=dense.width if dense else 0,
        vocab=model.vocab,
        batch=batch,
        capacity=capacity,
        activation_bytes=activation_bytes,
        weight_bytes=max(map(_element_bytes, matrices)),
        head_bytes=_element_bytes(model.head),
        kv_bytes=1 if spec.kv_format else activation_bytes,
        int8=first.mlp.down.format == "int8",
        fp8_x=spec.fp8_x,
        experts=experts.count if experts else 0,
        chosen=experts.chosen if experts else 0,
        expert_intermediate=experts.intermediate if experts else 0,
        shared_intermediate=model.shared.width if model.shared else 0,
        packed_experts=_packed_format(experts.down) if experts else "",
        packed=next(packed, ""),
        other_kv_heads=other.kv_heads if other else 0,
        other_head_dim=other.head_dim if other else 0,
        input_width=model.layer_inputs.width if model.layer_inputs else 0,
        inputs_width=model.layer_inputs.projection.rows if model.layer_inputs else 0,
    )


def _element_bytes(matrix: WeightMatrix) -> int:
    return 0 if _packed_format(matrix) else matrix.data.element_size()


def _packed_format(matrix: WeightMatrix) -> str:
    return "" if matrix.packing is None else str(matrix.packing.format)


def power_of_2_from(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def power_of_2_to(size: int) -> int:
    """The highest power of two that is at most `size`, at least 1."""
    return 1 << max(0, size.bit_length() - 1)
