"""Tiles of experts of 4 bits."""

from collections.abc import Iterator
from dataclasses import replace

from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.batched_tiles import BatchedTiles
from decodescope.variants.steps.fused.tiling.packed_tiles import (
    HELD_WEIGHTS,
    PackedBatchTiles,
    PackedTiles,
)

# Rows, columns and warps. The first has the fewest instructions a weight, as compiled for compute
# capability 9.0, that leave programs for all multiprocessors: a warp has all columns of its block,
# so that nothing passes through shared memory. Of the down projection, registers hold the blocks of
# all chosen experts. The last is for short rows.
_CHOICES = {
    "experts_gate_up": ((8, 1024, 1), (16, 1024, 1), (4, 1024, 1), (16, 2048, 2), (8, 512, 1)),
    "experts_down": ((2, 1024, 1), (4, 1024, 1), (8, 1024, 1), (2, 512, 1), (4, 256, 1)),
}

# Of several tokens, for wgmma. The first has the fewest instructions a weight, as compiled for
# compute capability 9.0; the second has half as many rows, for twice as many programs.
_BATCHED = (
    Tile(128, 64, 4, 4),
    Tile(64, 128, 4, 4),
    Tile(128, 128, 4, 3),
    Tile(64, 64, 4, 6),
    Tile(128, 64, 4, 6),
    Tile(64, 256, 4, 3),
    Tile(128, 128, 8, 4),
    Tile(128, 256, 8, 3),
)
# Programs a multiprocessor that hide the latency of memory: each has few bytes in flight.
_PROGRAMS = 4


class PackedExpertTiles(PackedTiles):
    """A warp a program; the down projection holds blocks of all chosen experts."""

    def default(self, multiprocessors: int) -> Tile:
        tiles = tuple(self.around(Tile(1, 1)))
        return next(filter(self.fits, tiles), tiles[-1])

    def around(self, start: Tile) -> Iterator[Tile]:
        # Gate and up have waited already: nothing is gained by asking for all blocks first.
        most_ahead = (3, 2, 1) if self.operation == "experts_down" else (1, 3)
        for rows, block, warps in _CHOICES[self.operation]:
            tile = Tile(min(rows, self.most_rows), min(block, self.all_columns), warps)
            for ahead in most_ahead:
                yield replace(tile, num_stages=min(ahead, tile.blocks(self.shape.columns)))

    def fits(self, tile: Tile) -> bool:
        held = self.shapes.chosen if self.operation == "experts_down" else 1
        weights = tile.rows * tile.columns // (32 * tile.num_warps)
        ahead = tile.blocks_ahead(self.shape.columns)
        return weights * held * ahead <= HELD_WEIGHTS[1] and super().fits(tile)


class PackedExpertBatchTiles(PackedBatchTiles):
    """Fewer instructions first, if there are programs enough."""

    def default(self, multiprocessors: int) -> Tile:
        if self.shapes.activation_bytes == 4:
            return BatchedTiles.default(self, multiprocessors)
        shape = self.shape
        programs = -(-shape.rows // _BATCHED[0].rows) * shape.matrices
        tile = _BATCHED[programs < _PROGRAMS * multiprocessors]
        rows = min(tile.rows, self.most_rows)
        return replace(tile, rows=rows, columns=min(tile.columns, self.all_columns))

    def around(self, start: Tile) -> Iterator[Tile]:
        yield from _BATCHED
