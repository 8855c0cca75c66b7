"""The tile sizes of one decode step: which operations have one, and what to start from.

The rules here are what was measured at batch 1 on one H200 and reasoning elsewhere. They need no
GPU and always give tiles that run; `tuner` finds better ones, `tile_table` and `tile_cache` keep
them.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from decodescope.kernels.attention_splits import default_splits
from decodescope.kernels.tile import Tile

if TYPE_CHECKING:
    from decodescope.variants.fused.model_parts import FusedModel

Operation = Literal["qkv", "attention", "o", "gate_up", "down", "head"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

# tl.dot multiplies blocks of at least this many rows and columns.
_DOT = 16
# Fewer leave multiprocessors without work, or with too few bytes under way.
_PROGRAMS_PER_MULTIPROCESSOR = 2
_BATCHED_STAGES = 4
_MAX_SPLITS = 8


@dataclass(frozen=True, slots=True)
class StepTiles:
    """One tile for each kind of launch of a step; all layers share them."""

    qkv: Tile
    attention: Tile
    o: Tile
    gate_up: Tile
    down: Tile
    head: Tile

    def of(self, operation: Operation) -> Tile:
        """The tile of one operation."""
        tile: Tile = getattr(self, operation)
        return tile

    def with_tile(self, operation: Operation, tile: Tile) -> "StepTiles":
        """The same tiles but for one operation."""
        return replace(self, **{operation: tile})


@dataclass(frozen=True, slots=True)
class Shape:
    """What one operation reads: `rows` outputs of `columns` inputs each.

    `unit` is how many rows belong together: a head's for qkv, a gate and its up row for gate_up, 1
    for others. Attention reads K and V: kv_heads * head_dim rows (unit: head_dim) over `columns`
    positions, counted up to a power of two, because a tile suits a range of cache lengths.
    """

    rows: int
    columns: int
    unit: int = 1


@dataclass(frozen=True, slots=True)
class StepShapes:
    """The sizes of a model and of its workload on which tiles depend.

    `capacity` is the length of the KV cache, `element_bytes` the size of one weight or KV element.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    batch: int
    capacity: int
    element_bytes: int

    def shape(self, operation: Operation) -> Shape:
        """What `operation` reads in one layer (the head: in one step)."""
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


def step_shapes(model: "FusedModel", batch: int, capacity: int) -> StepShapes:
    """The sizes of a step of `model`."""
    return StepShapes(
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        intermediate=model.intermediate,
        vocab=model.vocab,
        batch=batch,
        capacity=capacity,
        element_bytes=model.embedding.element_size(),
    )


def default_tiles(shapes: StepShapes, multiprocessors: int) -> StepTiles:
    """Tiles to start from on a GPU with that many multiprocessors."""
    product = _vector_tile if shapes.batch == 1 else _batched_tile
    return StepTiles(
        attention=_attention_tile(shapes, multiprocessors),
        qkv=product("qkv", shapes, multiprocessors),
        o=product("o", shapes, multiprocessors),
        gate_up=product("gate_up", shapes, multiprocessors),
        down=product("down", shapes, multiprocessors),
        head=product("head", shapes, multiprocessors),
    )


def interpreter_tiles(shapes: StepShapes) -> StepTiles:
    """Tiles for Triton's interpreter, where a program costs far more than its elements do."""

    def product(operation: Operation) -> Tile:
        shape = shapes.shape(operation)
        rows = shape.unit if operation == "qkv" else min(shape.rows, 1024)
        least = least_rows(operation, shapes.batch)
        columns = max(_DOT, power_of_2_from(shape.columns))
        return Tile(max(least, power_of_2_from(rows)), columns)

    positions = min(256, max(_DOT, power_of_2_from(shapes.capacity)))
    return StepTiles(
        attention=Tile(1, positions),
        qkv=product("qkv"),
        o=product("o"),
        gate_up=product("gate_up"),
        down=product("down"),
        head=product("head"),
    )


def least_rows(operation: Operation, batch: int) -> int:
    """The fewest rows a tile of this operation may have.

    qkv and gate_up need a pair; the batched kernels' products take at least `_DOT` rows at once,
    and these two keep each half of their pairs in a block of its own.
    """
    if operation == "attention":
        return 1
    pairs = 2 if operation in ("qkv", "gate_up") else 1
    return pairs if batch == 1 else pairs * _DOT


def power_of_2_from(size: int) -> int:
    """The lowest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def power_of_2_to(size: int) -> int:
    """The highest power of two that is at most `size`, at least 1."""
    return 1 << max(0, size.bit_length() - 1)


# Bytes of weights per program and per thread: what won on an H200 at Llama 3.2 1B's shapes.
_VECTOR_BYTES: dict[Operation, tuple[int, int]] = {
    "qkv": (32 * 1024, 256),
    "o": (16 * 1024, 256),
    "gate_up": (32 * 1024, 256),
    "down": (32 * 1024, 128),
    "head": (16 * 1024, 128),
}


def _vector_tile(operation: Operation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """One tile that holds the whole inner dimension, where padding does not make it much larger."""
    shape = shapes.shape(operation)
    program_bytes, thread_bytes = _VECTOR_BYTES[operation]
    columns = whole_or_divided(shape.columns)
    least = least_rows(operation, 1)
    most = power_of_2_from(shape.unit if operation == "qkv" else shape.rows)
    rows = power_of_2_to(program_bytes // (columns * shapes.element_bytes))
    enough = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    rows = min(rows, most, power_of_2_to(shape.rows // enough))
    rows = max(rows, least)
    return Tile(rows, columns, warps(rows * columns * shapes.element_bytes, thread_bytes))


def whole_or_divided(columns: int) -> int:
    """All `columns` rounded up to a power of two, or a block that divides them with less padding.

    Padding costs registers, not bandwidth: more than a third of the tile is too much.
    """
    block = power_of_2_from(columns)
    if (block - columns) * 3 <= block:
        return block
    while _padding(columns, block) * 8 > columns and block > 256:
        block //= 2
    return block


def _padding(columns: int, block: int) -> int:
    return -columns % block


def warps(tile_bytes: int, thread_bytes: int) -> int:
    """Warps of 32 threads (1 to 8) so that a thread holds about `thread_bytes` of the tile."""
    return min(8, power_of_2_to(tile_bytes // (32 * thread_bytes)))


def _batched_tile(operation: Operation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """A loop over blocks of 256 bytes a row; products that add to the residual may split it."""
    shape = shapes.shape(operation)
    columns = min(256 // shapes.element_bytes, max(_DOT, power_of_2_from(shape.columns)))
    least = least_rows(operation, shapes.batch)
    enough = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    rows = max(least, min(64, power_of_2_to(shape.rows // enough)))
    splits = 1
    if operation in ("o", "down"):
        blocks, steps = -(-shape.rows // rows), -(-shape.columns // columns)
        splits = max(1, min(_MAX_SPLITS, enough // blocks, steps // _BATCHED_STAGES))
    return Tile(rows, columns, 4, _BATCHED_STAGES, splits)


def _attention_tile(shapes: StepShapes, multiprocessors: int) -> Tile:
    """Blocks of about 16 KiB of K, and enough splits of the KV cache to fill the GPU."""
    position_bytes = power_of_2_from(shapes.head_dim) * shapes.element_bytes
    columns = max(_DOT, min(128, power_of_2_to(16 * 1024 // position_bytes)))
    splits = default_splits(
        shapes.capacity, shapes.batch, shapes.kv_heads, multiprocessors, columns
    )
    return Tile(1, columns, num_warps=4, num_stages=2, splits=splits)
