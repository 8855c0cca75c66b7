"""Which tiles are worth a measurement: the default and a few around it that fit the GPU."""

from collections.abc import Iterator
from dataclasses import replace

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.device.attention_splits import MAX_SPLITS
from decodescope.kernels.host.tile import MIN_DOT, Tile
from decodescope.variants.steps.fused.tiling.rules import (
    LOAD_BYTES,
    MAX_PRODUCT_SPLITS,
    MAX_THREAD_BYTES,
    MAX_WARPS,
    SPLITTING,
    Operation,
    StepShapes,
    attention_thread_bytes,
    default_tiles,
    least_rows,
    most_elements,
    most_rows,
    power_of_2_from,
    with_blocks_ahead,
)
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu

MAX_CANDIDATES = 12

_MAX_COLUMNS = 512


def candidates(operation: Operation, shapes: StepShapes, gpu: TargetGpu) -> tuple[Tile, ...]:
    """At most `MAX_CANDIDATES` tiles to measure, the default first, the likeliest before others.

    Raises:
        MissingRequirement: none fits the GPU's shared memory; names the limit.
    """
    start = default_tiles(shapes, gpu.multiprocessors).of(operation)
    tiles = (start, *_around(start, operation, shapes))
    fitting = [tile for tile in dict.fromkeys(tiles) if fits(tile, operation, shapes, gpu)]
    if not fitting:
        least = min(shared_bytes(tile, operation, shapes) for tile in tiles)
        raise MissingRequirement(
            f"no tile for {operation} fits: {gpu.name} has {gpu.shared_bytes} bytes of shared "
            f"memory for a program, and the smallest tile needs {least}"
        )
    return tuple(fitting[:MAX_CANDIDATES])


def fits(tile: Tile, operation: Operation, shapes: StepShapes, gpu: TargetGpu) -> bool:
    """Whether a kernel takes this tile and a program with it finds room on the GPU."""
    if not least_rows(operation, shapes.batch) <= tile.rows <= most_rows(operation, shapes):
        return False
    if tile.num_warps > MAX_WARPS or shared_bytes(tile, operation, shapes) > gpu.shared_bytes:
        return False
    if operation == "attention":
        return _fits_attention(tile, shapes)
    if tile.splits > (MAX_PRODUCT_SPLITS if operation in SPLITTING else 1):
        return False
    if shapes.batch == 1:
        return _fits_vector(tile, operation, shapes)
    return MIN_DOT <= tile.columns <= _MAX_COLUMNS


def shared_bytes(tile: Tile, operation: Operation, shapes: StepShapes) -> int:
    """Shared memory of one program, at most: what Triton 3.6 was seen to take, rounded up."""
    element = shapes.element_bytes
    if operation == "attention":
        lanes = power_of_2_from(shapes.head_dim)
        queries = max(MIN_DOT, power_of_2_from(shapes.heads // shapes.kv_heads))
        # Blocks go to the products through shared memory: K, and V as well without tensor cores.
        operands = 1 if element < 4 else 2
        blocks = operands * tile.columns * lanes * element
        return blocks + queries * 4 * (lanes + tile.columns) + 1024
    if shapes.batch == 1:
        # Sums of each warp, and x, which threads exchange where a row is too short for all of them.
        return 4 * MAX_WARPS * tile.rows + 4 * min(tile.columns, 4096)
    return tile.num_stages * (tile.rows + MIN_DOT) * tile.columns * element + 1024


def _fits_vector(tile: Tile, operation: Operation, shapes: StepShapes) -> bool:
    columns = shapes.shape(operation).columns
    ahead = tile.blocks_ahead(columns)
    elements = tile.rows * tile.columns // (32 * tile.num_warps)
    block_bytes = elements * shapes.element_bytes
    return (
        elements <= most_elements(ahead)
        and block_bytes * ahead <= MAX_THREAD_BYTES
        # With less, some threads would repeat what others load.
        and (block_bytes >= LOAD_BYTES or tile.num_warps == 1)
        and tile.columns <= power_of_2_from(columns)
        and tile.splits <= -(-columns // tile.columns)
    )


def _fits_attention(tile: Tile, shapes: StepShapes) -> bool:
    # A block of K and V is in registers.
    lanes = power_of_2_from(shapes.head_dim)
    block_bytes = 2 * tile.columns * lanes * shapes.element_bytes
    blocks = shapes.shape("attention").columns // tile.columns
    return (
        MIN_DOT <= tile.columns <= _MAX_COLUMNS
        and tile.num_stages == 1
        and tile.splits <= max(1, min(MAX_SPLITS, blocks))
        and block_bytes <= 32 * tile.num_warps * attention_thread_bytes(shapes.element_bytes)
    )


def _around(start: Tile, operation: Operation, shapes: StepShapes) -> Iterator[Tile]:
    if operation == "attention":
        return _around_attention(start)
    if shapes.batch > 1:
        return _around_batched(start, operation)
    return _around_vector(start, operation, shapes)


def _around_vector(start: Tile, operation: Operation, shapes: StepShapes) -> Iterator[Tile]:
    columns, size = shapes.shape(operation).columns, shapes.element_bytes
    sizes = tuple(_vector_sizes(start, operation, power_of_2_from(columns)))
    for tile in sizes:
        yield with_blocks_ahead(tile, columns, size)
    # More rows than registers hold at once, the later blocks of which come after the wait.
    for tile in sizes:
        yield replace(tile, num_stages=1)


def _vector_sizes(start: Tile, operation: Operation, whole: int) -> Iterator[Tile]:
    yield from _scaled(start, columns=0.5)
    yield from _scaled(start, rows=2, columns=0.5)
    yield from _scaled(start, rows=2, columns=0.5, num_warps=2)
    yield from _scaled(start, rows=2, num_warps=2)
    yield from _scaled(start, num_warps=2)
    yield from _scaled(start, num_warps=0.5)
    yield from _scaled(start, rows=0.5, num_warps=0.5)
    yield replace(start, columns=whole)
    if operation in SPLITTING:
        yield from _scaled(start, columns=0.5, num_warps=0.5, splits=2)
        yield from _scaled(start, rows=2, columns=0.5, splits=2)
    yield from _scaled(start, rows=0.5)
    yield from _scaled(start, rows=2)


def _around_batched(start: Tile, operation: Operation) -> Iterator[Tile]:
    yield from _scaled(start, columns=2)
    if operation in SPLITTING:
        yield from _scaled(start, splits=2)
        yield from _scaled(start, splits=0.5)
    yield from _scaled(start, rows=2)
    yield from _scaled(start, rows=0.5)
    yield replace(start, num_stages=max(1, start.num_stages - 1))
    yield from _scaled(start, rows=2, num_warps=2)
    yield from _scaled(start, columns=2, num_warps=2)
    yield from _scaled(start, columns=0.5)
    yield from _scaled(start, num_warps=0.5)


def _around_attention(start: Tile) -> Iterator[Tile]:
    yield from _scaled(start, splits=2)
    yield from _scaled(start, splits=0.5)
    yield from _scaled(start, columns=0.5)
    yield from _scaled(start, num_warps=2)
    wide = replace(start, columns=2 * start.columns, splits=max(1, start.splits // 2))
    yield wide
    yield from _scaled(start, columns=2)
    yield from _scaled(start, num_warps=0.5)
    yield from _scaled(wide, num_warps=2)
    yield from _scaled(start, columns=0.5, num_warps=0.5)
    yield from _scaled(start, columns=0.5, splits=2)


def _scaled(start: Tile, **factors: float) -> Iterator[Tile]:
    """`start` with some sizes times a power of two; nothing where one would fall below 1."""
    sizes = {name: int(getattr(start, name) * factor) for name, factor in factors.items()}
    if min(sizes.values()) >= 1:
        yield replace(start, **sizes)
