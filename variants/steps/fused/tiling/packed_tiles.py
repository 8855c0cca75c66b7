"""Tiles of matrices of 4 bits: pairs on the CUDA cores for one token, the tensor cores for
several."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from decodescope.kernels.host.packing import CHUNK
from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.variants.steps.fused.tiling.batched_tiles import BatchedTiles
from decodescope.variants.steps.fused.tiling.tile_kind import (
    MAX_WARPS,
    PROGRAMS_PER_MULTIPROCESSOR,
    TileKind,
)

# Weights that a thread holds before the wait: 64 or 128 registers of words.
HELD_WEIGHTS = (512, 1024)
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

    def default(self, multiprocessors: int) -> Tile:
        """16 rows a lane, or fewer, so that each multiprocessor has programs."""
        shape = self.shape
        splits = 4 if self.may_split and shape.columns >= _LONG_ROW else 1
        columns = min(2048 if splits > 1 else 4096, max(CHUNK, self.all_columns))
        rows = min(16, self.most_rows)
        programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        while rows > self.declared.least_rows and shape.rows * splits < rows * programs:
            rows //= 2
        warps = max(1, columns // (32 * CHUNK))
        tile = Tile(rows, columns, warps, splits=splits)
        return _with_blocks_ahead(tile, shape.columns, HELD_WEIGHTS[0])

    def around(self, start: Tile) -> Iterator[Tile]:
        columns = self.shape.columns
        for split_choices in ((1, 4), (2,)) if self.may_split else ((1,),):
            for (rows, block, warps), splits in product(_CHOICES, split_choices):
                block = min(block, max(CHUNK, self.all_columns))
                tile = Tile(rows, block, warps, splits=splits)
                if splits == 1 or columns > splits * block:
                    for held in HELD_WEIGHTS:
                        yield _with_blocks_ahead(tile, columns, held)

    def fits(self, tile: Tile) -> bool:
        columns = self.shape.columns
        weights = tile.rows * tile.columns // (32 * tile.num_warps)
        return (
            self.declared.least_rows <= tile.rows <= self.most_rows
            and CHUNK <= tile.columns <= max(CHUNK, self.all_columns)
            and tile.num_warps <= MAX_WARPS
            and tile.splits <= self.max_splits
            and weights * tile.blocks_ahead(columns) <= HELD_WEIGHTS[1]
        )

    def shared_bytes(self, tile: Tile) -> int:
        # Sums of each warp, and x on its way between threads.
        return 4 * MAX_WARPS * tile.rows + 8 * tile.columns


class PackedBatchTiles(BatchedTiles):
    """Blocks of whole chunks, whose codes become float16 in registers."""

    def default(self, multiprocessors: int) -> Tile:
        tile = super().default(multiprocessors)
        return replace(tile, columns=max(CHUNK, tile.columns))

    def fits(self, tile: Tile) -> bool:
        return tile.columns >= CHUNK and super().fits(tile)

    def shared_bytes(self, tile: Tile) -> int:
        # Without tensor cores, the converted weights are in shared memory as well.
        converted = 4 * tile.rows * tile.columns if self.shapes.activation_bytes == 4 else 0
        return converted + super().shared_bytes(tile)

    def converted_bytes(self, tile: Tile) -> int:
        # All stages but one, the block in float16, and the scales of its groups.
        words = tile.rows // 2 + padded_tokens(self.shapes.batch) * self.shapes.activation_bytes
        return ((tile.num_stages - 1) * words + 2 * tile.rows) * tile.columns + 2048


def _with_blocks_ahead(tile: Tile, columns: int, held: int) -> Tile:
    weights = tile.rows * tile.columns // (32 * tile.num_warps)
    return replace(tile, num_stages=max(1, min(held // max(1, weights), tile.blocks(columns))))
