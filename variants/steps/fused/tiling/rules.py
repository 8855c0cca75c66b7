"""The default tiles: where tuning starts, and what a step uses if nothing was measured.

The rules are what was measured at batch 1 on one H200, and reasoning elsewhere. They need no GPU
and always give tiles that run. `tuner` finds better ones, and `table` keeps them.
"""

from collections.abc import Callable
from dataclasses import replace

from decodescope.kernels.device.attention_splits import default_splits
from decodescope.kernels.host.tile import MAX_REGISTERS, MIN_DOT, Tile, padded_tokens
from decodescope.variants.steps.fused.tiling.shapes import (
    TILED_OPERATIONS,
    StepShapes,
    StepTiles,
    TiledOperation,
    power_of_2_from,
    power_of_2_to,
)
from decodescope.variants.steps.fused.tiling.tile_limits import (
    LOAD_BYTES,
    MAX_COLUMNS,
    MAX_PRODUCT_SPLITS,
    MAX_THREAD_BYTES,
    MAX_WARPS,
    SHARED_REGISTERS,
    SPLITTING,
    attention_thread_bytes,
    least_rows,
    most_elements,
    most_rows,
    shared_bytes,
    spills,
    with_blocks_ahead,
)

# Fewer leave multiprocessors without work, or with too few bytes in flight.
_PROGRAMS_PER_MULTIPROCESSOR = 2
_MIN_BLOCK = 512
# Rows of a head of narrow weights for each multiprocessor, from which tiles of 32 win.
_MANY_ROWS = 128
# Rows that a program reads whole, if each multiprocessor has that many such programs and a row has
# that many columns.
_WHOLE_ROWS, _WHOLE_PROGRAMS, _WHOLE_ROW = 8, 8, 4096
# Columns that programs share.
_LONG_ROW = 8192
_MAX_ROWS = 256
_BATCHED_STAGES = 4
_BATCHED_ROW_BYTES = 256
_BATCHED_BLOCK_BYTES = 16 * 1024
# Two programs fit on a multiprocessor of compute capability 9.0, one on 8.6 and 8.9.
_BATCHED_SHARED_BYTES = 97 * 1024


def default_tiles(shapes: StepShapes, multiprocessors: int) -> StepTiles:
    product = _vector_tile if shapes.batch == 1 else _batched_tile
    attention = _attention_tile(shapes, multiprocessors)
    return _step_tiles(attention, lambda name: product(name, shapes, multiprocessors))


def interpreter_tiles(shapes: StepShapes) -> StepTiles:
    """Tiles for Triton's interpreter, where a program costs far more than its elements do."""

    def product(operation: TiledOperation) -> Tile:
        shape = shapes.shape(operation)
        rows = shape.unit if operation == "qkv" else min(shape.rows, 1024)
        columns = max(MIN_DOT, power_of_2_from(shape.columns))
        return Tile(max(least_rows(operation, shapes.batch), power_of_2_from(rows)), columns)

    positions = min(256, max(MIN_DOT, power_of_2_from(shapes.capacity)))
    return _step_tiles(Tile(1, positions), product)


def router_tile(columns: int, batch: int) -> Tile:
    """A row a program: a router has too few rows to fill the GPU otherwise."""
    if batch > 1:
        return Tile(MIN_DOT, min(256, max(MIN_DOT, power_of_2_from(columns))))
    return Tile(1, min(2048, power_of_2_from(columns)))


def _step_tiles(attention: Tile, product: Callable[[TiledOperation], Tile]) -> StepTiles:
    products = {name: product(name) for name in TILED_OPERATIONS if name != "attention"}
    return StepTiles(attention=attention, **products)


# Bytes of weights per program and per thread: what won on an H200 at the shapes of Llama 3.2 1B.
_VECTOR_BYTES: dict[TiledOperation, tuple[int, int]] = {
    "qkv": (32 * 1024, 256),
    "o": (16 * 1024, 256),
    "gate_up": (32 * 1024, 256),
    "down": (64 * 1024, 256),
    "head": (32 * 1024, 256),
}


def _vector_tile(operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """All the weights of a few rows, loaded at once: in one block, or in several if one block would
    need much padding."""
    shape, size = shapes.shape(operation), shapes.element_bytes(operation)
    if size == 1 and shapes.activation_bytes == 2:
        return _narrow_tile(operation, shapes, multiprocessors)
    program_bytes, thread_bytes = _VECTOR_BYTES[operation]
    least = least_rows(operation, 1)
    columns = _vector_columns(shape.columns, least, size)
    # Narrow elements fill a thread's float32 sums before they fill its bytes.
    elements = most_elements(-(-shape.columns // columns), size)
    thread_bytes = min(thread_bytes, elements * size)
    row_bytes = -(-shape.columns // columns) * columns * size
    programs = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    rows = min(
        power_of_2_to(program_bytes // row_bytes),
        power_of_2_to(shape.rows // programs),
        most_rows(operation, shapes),
        power_of_2_to(32 * MAX_WARPS * elements // columns),
        _MAX_ROWS,
    )
    rows = max(rows, least)
    warps = min(
        MAX_WARPS,
        power_of_2_from(-(-rows * row_bytes // (32 * thread_bytes))),
        power_of_2_to(rows * columns * size // (32 * LOAD_BYTES)),
    )
    # A multiprocessor that has only one program at a time reads nothing while that one ends.
    registers = SHARED_REGISTERS if warps == MAX_WARPS and size == 2 else MAX_REGISTERS
    tile = Tile(rows, columns, warps, max_registers=registers)
    return with_blocks_ahead(tile, shape.columns, size)


def _narrow_tile(operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """FP8 and INT8 on the tensor cores: small programs, so that many are under way at once.

    What won, or came close to it, on an H200 at the shapes of Llama 2 7B, 3.1 8B and 3.2 1B.
    """
    shape = shapes.shape(operation)
    splits = 1
    if operation in SPLITTING and shape.columns >= _LONG_ROW:
        rows, columns, warps, splits = 16, 512, 2, 4
    elif operation == "head" and shape.rows >= _MANY_ROWS * multiprocessors:
        rows, columns, warps = 32, 512, 2
    elif (
        _WHOLE_ROW // 2 < shape.columns <= _WHOLE_ROW
        and shape.rows >= _WHOLE_ROWS * _WHOLE_PROGRAMS * multiprocessors
    ):
        rows, columns, warps = _WHOLE_ROWS, _WHOLE_ROW, 4
    else:
        rows, columns, warps = 16, 1024, 4
    rows = min(rows, most_rows(operation, shapes))
    columns = min(columns, power_of_2_from(shape.columns))
    # Less than a load of 16 bytes a thread would be loaded twice.
    warps = max(1, min(warps, rows * columns // (32 * LOAD_BYTES)))
    splits = min(splits, -(-shape.columns // columns))
    return with_blocks_ahead(Tile(rows, columns, warps, splits=splits), shape.columns, 1)


def _vector_columns(columns: int, rows: int, element_bytes: int) -> int:
    """The longest block that registers hold for `rows` and that adds an eighth of padding at most.

    If none has a useful length: all columns, or the shortest useful block if registers cannot hold
    them.
    """
    threads = 32 * MAX_WARPS
    whole = power_of_2_from(columns)
    block = whole
    while block >= _MIN_BLOCK:
        most = min(most_elements(whole // block, element_bytes), MAX_THREAD_BYTES // element_bytes)
        if rows * block <= threads * most and -columns % block * 8 <= columns:
            return block
        block //= 2
    most = min(most_elements(1, element_bytes), MAX_THREAD_BYTES // element_bytes)
    return whole if rows * whole <= threads * most else _MIN_BLOCK


def _batched_tile(operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
    """A loop over blocks of 16 KiB of weights; products that add to the residual may split it.

    64 rows of 16-bit weights win on an H200 even where they occupy two multiprocessors of three.
    128 rows of narrow weights read as few 16-bit activations for each byte of weights, but a
    multiprocessor without work costs more; E4M3 activations are as few with 64.
    """
    shape = shapes.shape(operation)
    programs = _PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
    converted = shapes.element_bytes(operation) < shapes.activation_bytes and not shapes.fp8_x
    rows = 32 if shapes.activation_bytes == 4 else 128 if converted else 64
    least, enough = (32, multiprocessors) if converted else (MIN_DOT, multiprocessors // 2)
    while True:
        columns = _batched_columns(rows, operation, shapes)
        # Each split of this many steps still fills the pipeline.
        deep = shape.columns // (columns * _BATCHED_STAGES)
        most = min(MAX_PRODUCT_SPLITS, max(1, deep)) if operation in SPLITTING else 1
        if rows <= least or shape.rows // rows * most >= enough:
            break
        rows //= 2
    splits = max(1, min(most, programs // -(-shape.rows // rows)))
    warps = 4 if rows <= 64 else 8
    rows = min(rows, most_rows(operation, shapes))
    tile = Tile(rows, columns, warps, _BATCHED_STAGES, splits)
    while spills(tile, shapes):
        tile = replace(tile, columns=tile.columns // 2)
    while shared_bytes(tile, operation, shapes) > _BATCHED_SHARED_BYTES:
        tile = replace(tile, num_stages=tile.num_stages - 1)
    return tile


def _batched_columns(rows: int, operation: TiledOperation, shapes: StepShapes) -> int:
    """256 bytes of activations; for few tokens and unsplit rows, 16 KiB of narrow weights."""
    tokens = padded_tokens(shapes.batch)
    columns = _BATCHED_ROW_BYTES // shapes.activation_bytes
    narrow = shapes.element_bytes(operation) < shapes.activation_bytes == 2
    if narrow and tokens <= 32 and operation not in SPLITTING:
        columns = min(_BATCHED_BLOCK_BYTES // rows, MAX_COLUMNS)
    return min(columns, max(MIN_DOT, power_of_2_from(shapes.shape(operation).columns)))


def _attention_tile(shapes: StepShapes, multiprocessors: int) -> Tile:
    """Blocks of 128 positions, or what registers hold, and one wave of splits: two programs a
    multiprocessor, or four if a block fills half of their registers.

    Measured in whole steps on an H200 with 8 KV heads. With head_dim 128 over 8192 positions, a
    layer takes 5 us more with 16 splits than with 32, and 7 more with 64. With head_dim 64 over
    12352, 64 splits save 6 % of the step against 32; over 256, one block of all of them with eight
    warps was faster than two splits, and over 3136 and 6208, blocks of 256 by 1 %.
    """
    warps = 4
    held = 32 * warps * attention_thread_bytes(shapes.kv_bytes)
    position_bytes = 2 * power_of_2_from(shapes.head_dim) * shapes.kv_bytes
    columns = max(MIN_DOT, min(128, power_of_2_to(held // position_bytes)))
    resident = min(4, 2 * held // (columns * position_bytes)) * multiprocessors
    splits = default_splits(shapes.capacity, shapes.batch, shapes.kv_heads, resident)
    return Tile(1, columns, warps, splits=splits)
