"""The tile sizes of one decode step: which operations have one, and what to start from.

The rules here are what was measured at batch 1 on one H200 and reasoning elsewhere. They need no
GPU and always give tiles that run; `tuner` finds better ones, `tile_table` and `tile_cache` keep
them.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from decodescope.kernels.device.attention_splits import default_splits
from decodescope.kernels.host.tile import MIN_DOT, Tile

if TYPE_CHECKING:
    from decodescope.variants.steps.fused.model_parts import FusedModel

Operation = Literal["qkv", "attention", "o", "gate_up", "down", "head"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

# A batched product splits its inner dimension where rows alone leave the GPU short of work.
SPLITTING: tuple[Operation, ...] = ("o", "down")
MAX_PRODUCT_SPLITS = 8
# A thread's registers hold the weights asked for ahead, as loaded, and one block as float32.
MAX_THREAD_BYTES = 256
MAX_THREAD_ELEMENTS = 128
LOAD_BYTES = 16
MAX_WARPS = 8

# Fewer leave multiprocessors without work, or with too few bytes under way.
_PROGRAMS_PER_MULTIPROCESSOR = 2
_MIN_BLOCK = 512
_MAX_ROWS = 256
_BATCHED_STAGES = 4
_BATCHED_ROW_BYTES = 256


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
        columns = max(MIN_DOT, power_of_2_from(shape.columns))
        return Tile(max(least_rows(operation, shapes.batch), power_of_2_from(rows)), columns)

    positions = min(256, max(MIN_DOT, power_of_2_from(shapes.capacity)))
    return StepTiles(
        attention=Tile(1, positions),
        qkv=product("qkv"),
        o=product("o"),
        gate_up=product("gate_up"),
        down=product("down"),
        head=product("head"),
    )


def least_rows(operation: Operation, batch: int) -> int:
    """The fewest rows that a tile of this operation may have."""
    if operation == "attention":
        return 1
    if batch > 1:
        return MIN_DOT
    return 2 if operation in ("qkv", "gate_up") else 1


def most_rows(operation: Operation, shapes: StepShapes) -> int:
    """The most rows of which a tile of this operation can use more than half."""
    shape = shapes.shape(operation)
    rows = power_of_2_from(shape.unit if operation == "qkv" else shape.rows)
    return max(least_rows(operation, shapes.batch), rows)


def power_of_2_from(size: int) -> int:
    """The lowest power of two that is at least `size`."""
    return 1 << max(0, size - 1).bit_length()


def power_of_2_to(size: int) -> int:
    """The highest power of two that is at most `size`, at least 1."""
    return 1 << max(0, size.bit_length() - 1)


# Bytes of weights per program and per thread: what won on an H200 at the shapes of Llama 3.2 1B.
_VECTOR_BYTES: dict[Operation, tuple[int, int]] = {
    "qkv": (32 * 1024, 256),
    "o": (16 * 1024, 256),
    "gate_up": (32 * 1024, 256),
    "down": (64 * 1024, 256),
    "head": (32 * 1024, 256),
}


def _vector_tile(operation: Operation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """All the weights of a few rows, asked for at once: in one block, or in several where one would
    be padded much."""
    shape, size = shapes.shape(operation), shapes.element_bytes
    program_bytes, thread_bytes = _VECTOR_BYTES[operation]
    least = least_rows(operation, 1)
    columns = _vector_columns(shape.columns, least, size)
    row_bytes = -(-shape.columns // columns) * columns * size
    programs = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    rows = min(
        power_of_2_to(program_bytes // row_bytes),
        power_of_2_to(shape.rows // programs),
        most_rows(operation, shapes),
        _MAX_ROWS,
    )
    rows = max(rows, least)
    warps = min(
        MAX_WARPS,
        power_of_2_from(-(-rows * row_bytes // (32 * thread_bytes))),
        power_of_2_to(rows * columns * size // (32 * LOAD_BYTES)),
    )
    return with_blocks_ahead(Tile(rows, columns, warps), shape.columns, size)


def with_blocks_ahead(tile: Tile, columns: int, element_bytes: int) -> Tile:
    """The same tile with all of a row's blocks loaded ahead, or as many as registers hold."""
    held = 32 * tile.num_warps * MAX_THREAD_BYTES // (tile.rows * tile.columns * element_bytes)
    return replace(tile, num_stages=max(1, min(tile.blocks(columns), held)))


def most_elements(blocks: int) -> int:
    """Elements of a block that a thread has room for: sums over several blocks take as much."""
    return MAX_THREAD_ELEMENTS if blocks == 1 else MAX_THREAD_ELEMENTS // 2


def attention_thread_bytes(element_bytes: int) -> int:
    """Bytes of K and V that an attention thread has room for.

    float32 products have no tensor cores and take registers themselves: with 512 bytes, Triton 3.6
    spills 1.6 KB a thread on compute capability 9.0 at head_dim 128, with 256 below 0.2 KB.
    """
    return 512 if element_bytes < 4 else 256


def _vector_columns(columns: int, rows: int, element_bytes: int) -> int:
    """The longest block that holds `rows` and pads their columns by an eighth at most.

    Without one of a useful length, the whole of them, or what registers hold of it.
    """
    threads = 32 * MAX_WARPS
    whole = power_of_2_from(columns)
    block = whole
    while block >= _MIN_BLOCK:
        most = min(most_elements(whole // block), MAX_THREAD_BYTES // element_bytes)
        if rows * block <= threads * most and -columns % block * 8 <= columns:
            return block
        block //= 2
    most = min(most_elements(1), MAX_THREAD_BYTES // element_bytes)
    return whole if rows * whole <= threads * most else _MIN_BLOCK


def _batched_tile(operation: Operation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """A loop over blocks of 256 bytes a row; products that add to the residual may split it."""
    shape = shapes.shape(operation)
    columns = min(
        _BATCHED_ROW_BYTES // shapes.element_bytes,
        max(MIN_DOT, power_of_2_from(shape.columns)),
    )
    programs = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    # Each split of this many steps still fills the pipeline.
    deep = shape.columns // (columns * _BATCHED_STAGES)
    most = min(MAX_PRODUCT_SPLITS, max(1, deep)) if operation in SPLITTING else 1
    # 64 rows of 16-bit weights win on an H200 even where they occupy two multiprocessors of three.
    rows = 128 // shapes.element_bytes
    while rows > MIN_DOT and shape.rows // rows * most < multiprocessors // 2:
        rows //= 2
    splits = max(1, min(most, programs // -(-shape.rows // rows)))
    rows = min(max(rows, MIN_DOT), most_rows(operation, shapes))
    return Tile(rows, columns, 4, _BATCHED_STAGES, splits)


def _attention_tile(shapes: StepShapes, multiprocessors: int) -> Tile:
    """One block of 128 positions, or what registers hold of it, and one wave of splits: two
    programs a multiprocessor, four where a block fills half of their registers.

    Measured in whole steps on an H200 with 8 KV heads. With head_dim 128 over 8192 positions, a
    layer takes 5 us more with 16 splits than with 32, and 7 more with 64. With head_dim 64 over
    12352, 64 splits save 6 % of the step against 32; over 256, one block of all of them with eight
    warps was faster than two splits, and over 3136 and 6208, blocks of 256 by 1 %.
    """
    warps = 4
    held = 32 * warps * attention_thread_bytes(shapes.element_bytes)
    position_bytes = 2 * power_of_2_from(shapes.head_dim) * shapes.element_bytes
    columns = max(MIN_DOT, min(128, power_of_2_to(held // position_bytes)))
    resident = min(4, 2 * held // (columns * position_bytes)) * multiprocessors
    splits = default_splits(shapes.capacity, shapes.batch, shapes.kv_heads, resident)
    return Tile(1, columns, warps, splits=splits)
