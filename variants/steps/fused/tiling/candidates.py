"""The tiles that are worth measuring: the default and a few around it that fit the GPU."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.tile import MAX_REGISTERS, Tile
from decodescope.variants.steps.fused.tiling.rules import default_tiles
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.tile_limits import (
    SHARED_REGISTERS,
    SPLITTING,
    TargetGpu,
    shared_bytes,
    tile_fits,
    with_blocks_ahead,
)

MAX_CANDIDATES = 24


def tile_candidates(
    operation: TiledOperation, shapes: StepShapes, gpu: TargetGpu
) -> tuple[Tile, ...]:
    """Tiles to measure, the default first, then the most promising: at most `MAX_CANDIDATES`, at
    batch 1 each with and without a limit of registers.

    Raises:
        MissingRequirement: none fits the GPU's shared memory; names the limit.
    """
    start = default_tiles(shapes, gpu.multiprocessors).of(operation)
    tiles = (start, *_around(start, operation, shapes))
    fitting = [tile for tile in dict.fromkeys(tiles) if tile_fits(tile, operation, shapes, gpu)]
    if not fitting:
        least = min(shared_bytes(tile, operation, shapes) for tile in tiles)
        raise MissingRequirement(
            f"no tile for {operation} fits: {gpu.name} has {gpu.shared_bytes} bytes of shared "
            f"memory for a program, and the smallest tile needs {least}"
        )
    fitting = fitting[:MAX_CANDIDATES]
    if shapes.batch == 1 and operation != "attention":
        return tuple(choice for tile in fitting for choice in (tile, _other_limit(tile)))
    return tuple(fitting)


def _around(start: Tile, operation: TiledOperation, shapes: StepShapes) -> Iterator[Tile]:
    if operation == "attention":
        return _around_attention(start)
    if shapes.batch > 1:
        return _around_batched(start, operation)
    return _around_vector(start, operation, shapes)


def _other_limit(tile: Tile) -> Tile:
    """The same tile without a limit of registers, or with one that 512 threads fit under.

    Left to itself, the compiler gives a thread up to 255, so that its loads do not wait for each
    other. Then programs do, where fewer of them fit on a multiprocessor.
    """
    limited = tile.max_registers < MAX_REGISTERS
    return replace(tile, max_registers=MAX_REGISTERS if limited else SHARED_REGISTERS)


def _around_vector(start: Tile, operation: TiledOperation, shapes: StepShapes) -> Iterator[Tile]:
    columns, size = shapes.shape(operation).columns, shapes.element_bytes(operation)
    if size == 1 and shapes.activation_bytes == 2:
        yield from _narrow_tiles(operation, columns)
        return
    sizes = tuple(_vector_sizes(start, operation, power_of_2_from(columns)))
    for tile in sizes:
        yield with_blocks_ahead(tile, columns, size)
    # More rows than registers hold at once: their later blocks are loaded after the wait.
    for tile in sizes:
        yield replace(tile, num_stages=1)


# Rows, columns and warps of FP8 and INT8 tiles: tensor cores from 16 rows on, CUDA cores below.
_NARROW_SIZES = (
    (16, 1024, 4),
    (32, 512, 2),
    (8, 4096, 4),
    (4, 8192, 8),
    (16, 512, 1),
    (16, 512, 2),
    (16, 2048, 4),
    (4, 2048, 4),
    (32, 512, 4),
    (32, 1024, 4),
    (8, 2048, 4),
    (16, 1024, 2),
    (16, 512, 4),
)


def _narrow_tiles(operation: TiledOperation, columns: int) -> Iterator[Tile]:
    for split_choices in ((4, 1), (2,)) if operation in SPLITTING else ((1,),):
        for (rows, block, warps), splits in product(_NARROW_SIZES, split_choices):
            tile = Tile(rows, min(block, power_of_2_from(columns)), warps, splits=splits)
            if splits == 1 or columns > 4 * block:
                yield with_blocks_ahead(tile, columns, 1)


def _vector_sizes(start: Tile, operation: TiledOperation, whole: int) -> Iterator[Tile]:
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


def _around_batched(start: Tile, operation: TiledOperation) -> Iterator[Tile]:
    yield from _scaled(start, columns=2)
    if operation in SPLITTING:
        yield from _scaled(start, splits=2)
        yield from _scaled(start, splits=0.5)
    yield from _scaled(start, rows=2)
    yield from _scaled(start, rows=0.5)
    yield from _scaled(start, rows=0.5, columns=2)
    yield from _scaled(start, rows=2, num_warps=2)
    yield from _scaled(start, rows=0.5, columns=2, num_warps=0.5)
    yield from _scaled(start, rows=2, columns=0.5, num_warps=2)
    yield replace(start, num_stages=max(1, start.num_stages - 1))
    yield from _scaled(start, columns=2, num_warps=2)
    yield from _scaled(start, num_warps=0.5)
    yield from _scaled(start, num_warps=2)
    yield from _scaled(start, columns=0.5)


def _around_attention(start: Tile) -> Iterator[Tile]:
    yield from _scaled(start, splits=2)
    yield from _scaled(start, splits=0.5)
    # Three programs a multiprocessor in place of two.
    yield from _scaled(start, splits=1.5)
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
    """`start` with some sizes times a power of two; nothing if one would fall below 1."""
    sizes = {name: int(getattr(start, name) * factor) for name, factor in factors.items()}
    if min(sizes.values()) >= 1:
        yield replace(start, **sizes)
