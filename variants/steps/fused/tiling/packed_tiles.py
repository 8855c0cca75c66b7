"""Tiles of matrices of 4 bits: pairs on the CUDA cores for one token, the tensor cores for
several."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from decodescope.kernels.host.packing import CHUNK
from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.batched_tiles import BatchedTiles
from decodescope.variants.steps.fused.tiling.shapes import (
    DECLARATIONS,
    StepShapes,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.tile_kind import (
    MAX_WARPS,
    PROGRAMS_PER_MULTIPROCESSOR,
    TileKind,
)
from decodescope.variants.steps.fused.tiling.vector_tiles import most_rows

# Weights that a thread holds before the wait: 64 or 128 registers of words.
HELD_WEIGHTS = (512, 1024)
_MAX_SPLITS = 8
# Columns that programs share.
_LONG_ROW = 8192
# Rows, columns and warps. A lane has 32 columns, which it prepares once for all of its rows.
_CHOICES = (
    (16, 4096, 4),
    (16, 2048, 2),
    (8, 4096, 4),
    (8, 2048, 2),
    (16, 1024, 1),
    (8, 1024, 1),
    (32, 1024, 1),
    (32, 2048, 2),
    (4, 4096, 4),
    (4, 2048, 2),
    (16, 2048, 4),
    (16, 4096, 8),
)


class PackedTiles(TileKind):
    """Blocks of whole chunks, 16 bytes of codes a lane."""

    def default(self, operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
        """16 rows a lane, or fewer, so that each multiprocessor has programs."""
        shape = shapes.shape(operation)
        splits = 4 if DECLARATIONS[operation].splits and shape.columns >= _LONG_ROW else 1
        columns = min(2048 if splits > 1 else 4096, max(CHUNK, power_of_2_from(shape.columns)))
        rows = min(16, most_rows(operation, shapes))
        programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        while rows > DECLARATIONS[operation].least_rows and shape.rows * splits < rows * programs:
            rows //= 2
        warps = max(1, columns // (32 * CHUNK))
        tile = Tile(rows, columns, warps, splits=splits)
        return _with_blocks_ahead(tile, shape.columns, HELD_WEIGHTS[0])

    def around(self, start: Tile, operation: TiledOperation, shapes: StepShapes) -> Iterator[Tile]:
        columns = shapes.shape(operation).columns
        for split_choices in ((1, 4), (2,)) if DECLARATIONS[operation].splits else ((1,),):
            for (rows, block, warps), splits in product(_CHOICES, split_choices):
                block = min(block, max(CHUNK, power_of_2_from(columns)))
                tile = Tile(rows, block, warps, splits=splits)
                if splits == 1 or columns > splits * block:
                    for held in HELD_WEIGHTS:
                        yield _with_blocks_ahead(tile, columns, held)

    def fits(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> bool:
        columns = shapes.shape(operation).columns
        weights = tile.rows * tile.columns // (32 * tile.num_warps)
        return (
            DECLARATIONS[operation].least_rows <= tile.rows <= most_rows(operation, shapes)
            and CHUNK <= tile.columns <= max(CHUNK, power_of_2_from(columns))
            and tile.num_warps <= MAX_WARPS
            and tile.splits <= (_MAX_SPLITS if DECLARATIONS[operation].splits else 1)
            and weights * tile.blocks_ahead(columns) <= HELD_WEIGHTS[1]
        )

    def shared_bytes(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> int:
        # Sums of each warp, and x on its way between threads.
        return 4 * MAX_WARPS * tile.rows + 8 * tile.columns


class PackedBatchTiles(BatchedTiles):
    """Blocks of whole chunks, whose codes become float16 in registers."""

    def default(self, operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
        tile = super().default(operation, shapes, multiprocessors)
        return replace(tile, columns=max(CHUNK, tile.columns))

    def fits(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> bool:
        return tile.columns >= CHUNK and super().fits(tile, operation, shapes)

    def shared_bytes(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> int:
        # Without tensor cores, the converted weights are in shared memory as well.
        converted = 4 * tile.rows * tile.columns if shapes.activation_bytes == 4 else 0
        return converted + super().shared_bytes(tile, operation, shapes)


def _with_blocks_ahead(tile: Tile, columns: int, held: int) -> Tile:
    weights = tile.rows * tile.columns // (32 * tile.num_warps)
    return replace(tile, num_stages=max(1, min(held // max(1, weights), tile.blocks(columns))))
