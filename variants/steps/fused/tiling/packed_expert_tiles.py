"""Tiles of experts in MXFP4, words of eight weights: one token is multiplied on the CUDA cores,
several on the tensor cores."""

from collections.abc import Iterator
from dataclasses import replace

from decodescope.kernels.host.mxfp4 import BLOCK
from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.packed_tiles import PackedBatchTiles
from decodescope.variants.steps.fused.tiling.tile_kind import MAX_WARPS, TileKind

# Weights that a thread converts in one block, and those of all chosen experts.
_THREAD_WEIGHTS = 256
_HELD_WEIGHTS = 1024
# Rows, columns and warps. Of gate and up the first won on an H200 at the shape of gpt-oss-20b; that
# of the down projection has as many weights a thread.
_CHOICES = {
    "experts_gate_up": ((16, 1024, 4), (8, 1024, 1), (8, 1024, 2), (8, 512, 1), (32, 1024, 8)),
    "experts_down": (
        (4, 1024, 4),
        (8, 1024, 8),
        (2, 1024, 1),
        (4, 512, 4),
        (2, 1024, 2),
        (4, 1024, 1),
    ),
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


class PackedExpertTiles(TileKind):
    """Blocks of whole MXFP4 blocks."""

    def default(self, multiprocessors: int) -> Tile:
        return next(self._tiles())

    def around(self, start: Tile) -> Iterator[Tile]:
        for tile in self._tiles():
            yield tile
            ahead = 1 if tile.num_stages > 1 else 3
            yield replace(tile, num_stages=min(ahead, tile.blocks(self.shape.columns)))

    def fits(self, tile: Tile) -> bool:
        columns = self.shape.columns
        weights = tile.rows * tile.columns // (32 * tile.num_warps)
        held = self.shapes.chosen if self.operation == "experts_down" else 1
        return (
            tile.rows >= self.declared.least_rows
            and BLOCK <= tile.columns <= self.all_columns
            and tile.num_warps <= MAX_WARPS
            and tile.splits == 1
            and weights <= _THREAD_WEIGHTS
            and weights * held * tile.blocks_ahead(columns) <= _HELD_WEIGHTS
        )

    def shared_bytes(self, tile: Tile) -> int:
        # Sums of each warp, scales, and x on their way between threads.
        return 4 * MAX_WARPS * tile.rows + 4 * tile.columns + tile.rows * tile.columns // 8

    def _tiles(self) -> Iterator[Tile]:
        columns = self.shape.columns
        for rows, block, warps in _CHOICES[self.operation]:
            block = min(block, self.all_columns)
            # Gate and up have waited already: nothing is gained by asking for all blocks first.
            ahead = min(3, -(-columns // block)) if self.operation == "experts_down" else 1
            yield Tile(rows, block, warps, num_stages=ahead)


class PackedExpertBatchTiles(PackedBatchTiles):
    """Products of several tokens with weights that become elements of the model's dtype."""

    def default(self, multiprocessors: int) -> Tile:
        if self.shapes.activation_bytes == 4:
            return super().default(multiprocessors)
        shape = self.shape
        programs = -(-shape.rows // _BATCHED[0].rows) * shape.matrices
        tile = _BATCHED[programs < _PROGRAMS * multiprocessors]
        rows = min(tile.rows, self.most_rows)
        return replace(tile, rows=rows, columns=min(tile.columns, self.all_columns))

    def around(self, start: Tile) -> Iterator[Tile]:
        yield from _BATCHED
