"""Tiles of attention: positions of a block, and the splits that share a KV head.

At batch 1, 1.5 times the splits are three programs a multiprocessor in place of two.
"""

from collections.abc import Iterator

from decodescope.kernels.device.attention_splits import MAX_SPLITS, default_splits
from decodescope.kernels.host.tile import MIN_DOT, Tile
from decodescope.variants.steps.fused.tiling.shapes import power_of_2_from, power_of_2_to
from decodescope.variants.steps.fused.tiling.tile_kind import MAX_WARPS, Factors, TileKind

_MAX_BLOCK = 512
_CHOICES: tuple[Factors, ...] = (
    {"splits": 2},
    {"splits": 0.5},
    {"splits": 1.5},
    {"columns": 0.5},
    {"num_warps": 2},
    {"columns": 2, "splits": 0.5},
    {"columns": 2},
    {"num_warps": 0.5},
    {"columns": 2, "splits": 0.5, "num_warps": 2},
    {"columns": 0.5, "num_warps": 0.5},
    {"columns": 0.5, "splits": 2},
)


class AttentionTiles(TileKind):
    def default(self, multiprocessors: int) -> Tile:
        """Blocks of 128 positions, or what registers hold, and one wave of splits: two programs a
        multiprocessor, or four if a block fills half of their registers.

        Measured in whole steps on an H200 with 8 KV heads. With head_dim 128 over 8192 positions, a
        layer takes 5 us more with 16 splits than with 32, and 7 more with 64. With head_dim 64 over
        12352, 64 splits save 6 % of the step against 32; over 256, one block of all of them with
        eight warps was faster than two splits, and over 3136 and 6208, blocks of 256 by 1 %.
        """
        shapes, shape, warps = self.shapes, self.shape, 4
        thread_bytes = _thread_bytes(self.element_bytes)
        position_bytes = 2 * power_of_2_from(shape.unit) * self.element_bytes
        # The smallest block of long heads in float32 takes eight.
        while MIN_DOT * position_bytes > 32 * warps * thread_bytes:
            warps *= 2
        held = 32 * warps * thread_bytes
        columns = max(MIN_DOT, min(128, power_of_2_to(held // position_bytes)))
        resident = min(4, 2 * held // (columns * position_bytes)) * multiprocessors
        splits = default_splits(shapes.capacity, shapes.batch, shape.rows // shape.unit, resident)
        return Tile(1, columns, warps, splits=splits)

    def around(self, start: Tile) -> Iterator[Tile]:
        return self.scaled(start, _CHOICES)

    def fits(self, tile: Tile) -> bool:
        # Registers hold a block of K and V.
        block_bytes = 2 * tile.columns * power_of_2_from(self.shape.unit) * self.element_bytes
        blocks = self.shape.columns // tile.columns
        return (
            tile.rows == 1
            and tile.num_warps <= MAX_WARPS
            and MIN_DOT <= tile.columns <= _MAX_BLOCK
            and tile.num_stages == 1
            and tile.splits <= max(1, min(MAX_SPLITS, blocks))
            and block_bytes <= 32 * tile.num_warps * _thread_bytes(self.element_bytes)
        )

    def shared_bytes(self, tile: Tile) -> int:
        shape, size = self.shape, self.element_bytes
        lanes = power_of_2_from(shape.unit)
        queries = max(MIN_DOT, power_of_2_from(self.shapes.heads * shape.unit // shape.rows))
        # Blocks go to the products through shared memory: K, and V as well without tensor cores. Of
        # float8 both are there at once.
        operands = 1 if size == 2 else 2
        blocks = operands * tile.columns * lanes * size
        return blocks + queries * 4 * (lanes + tile.columns) + 1024


def _thread_bytes(element_bytes: int) -> int:
    """Bytes of K and V that a thread has room for.

    float32 products have no tensor cores and take registers themselves: with 512 bytes, Triton 3.6
    spills 1.6 KB a thread on compute capability 9.0 at head_dim 128, with 256 below 0.2 KB. float8
    becomes float16, twice as large: with 256 bytes it takes 142 registers, with 512 it takes 213,
    and no third program has room.
    """
    return 512 if element_bytes == 2 else 256
