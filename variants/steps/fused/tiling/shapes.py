"""The operations of a decode step that have a tile: what they read, and one tile for each."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from decodescope.kernels.host.tile import Tile
from decodescope.variants.spec import VariantSpec

if TYPE_CHECKING:
    from decodescope.variants.steps.fused.blocks import FusedModel

TiledOperation = Literal["qkv", "attention", "o", "gate_up", "down", "head"]
TILED_OPERATIONS: tuple[TiledOperation, ...] = get_args(TiledOperation)
_FUSED = VariantSpec("fused")


@dataclass(frozen=True, slots=True)
class StepTiles:
    """One tile for each kind of launch of a step; all layers share them."""

    qkv: Tile
    attention: Tile
    o: Tile
    gate_up: Tile
    down: Tile
    head: Tile

    def of(self, operation: TiledOperation) -> Tile:
        tile: Tile = getattr(self, operation)
        return tile

    def with_tile(self, operation: TiledOperation, tile: Tile) -> "StepTiles":
        return replace(self, **{operation: tile})


@dataclass(frozen=True, slots=True)
class Shape:
    """The matrix that one operation reads: `rows` outputs of `columns` inputs each.

    `unit` rows belong together: those of a head for qkv, a gate and its up row for gate_up, 1 for
    others. Attention reads K and V: kv_heads * head_dim rows (unit: head_dim) over `columns`
    positions, rounded up to a power of two, because a tile suits a range of cache lengths.
    """

    rows: int
    columns: int
    unit: int = 1


@dataclass(frozen=True, slots=True)
class StepShapes:
    """The sizes of a model and its workload that tiles depend on.

    `capacity` is the length of the KV cache. The sizes of one element are those of activations (in
    the model's dtype), of the layers' matrices, of lm_head, and of K and V. `int8`: narrow weights
    are integers, whose conversion takes more instructions than that of FP8. `fp8_x`: products with
    narrow weights read E4M3 activations.
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

    def element_bytes(self, operation: TiledOperation) -> int:
        """The size of one element of what `operation` reads: weights, or K and V."""
        special = {"attention": self.kv_bytes, "head": self.head_bytes}
        return special.get(operation, self.weight_bytes)

    def shape(self, operation: TiledOperation) -> Shape:
        """The shape that `operation` reads in one layer (the head: in one step)."""
        match operation:
            case "qkv":
                rows = (self.heads + 2 * self.kv_heads) * self.head_dim
                return Shape(rows, self.hidden, self.head_dim)
            case "attention":
                columns = power_of_2_from(self.capacity)
                return Shape(self.kv_heads * self.head_dim, columns, self.head_dim)
            case "o":
                return Shape(self.hidden, self.heads * self.head_dim)
            case "gate_up":
                return Shape(2 * self.intermediate, self.hidden, 2)
            case "down":
                return Shape(self.hidden, self.intermediate)
            case "head":
                return Shape(self.vocab, self.hidden)


def step_shapes(
    model: "FusedModel", batch: int, capacity: int, spec: VariantSpec = _FUSED
) -> StepShapes:
    """The sizes of a step of `model`, whose K, V and activations are stored as `spec` says.

    Of matrices of several formats, as some quantized checkpoints have, the widest elements count:
    a tile for them also fits narrower ones.
    """
    activation_bytes = model.dtype.itemsize
    matrices = (matrix for layer in model.layers for matrix in layer.matrices)
    return StepShapes(
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        intermediate=model.intermediate,
        vocab=model.vocab,
        batch=batch,
        capacity=capacity,
        activation_bytes=activation_bytes,
        weight_bytes=max(matrix.data.element_size() for matrix in matrices),
        head_bytes=model.head.data.element_size(),
        kv_bytes=1 if spec.kv_format else activation_bytes,
        int8=model.layers[0].mlp.down.format == "int8",
        fp8_x=spec.fp8_x,
    )


def power_of_2_from(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def power_of_2_to(size: int) -> int:
    """The highest power of two that is at most `size`, at least 1."""
    return 1 << max(0, size.bit_length() - 1)
