"""Tiles of a product of several tokens, on the tensor cores."""

from collections.abc import Iterator
from dataclasses import replace

from decodescope.kernels.host.tile import MIN_DOT, Tile, padded_tokens
from decodescope.variants.steps.fused.tiling.tile_kind import (
    MAX_WARPS,
    PROGRAMS_PER_MULTIPROCESSOR,
    Factors,
    TileKind,
)

_MAX_COLUMNS = 512
_STAGES = 4
_FEW_COLUMNS = 128
_ROW_BYTES = 256
_BLOCK_BYTES = 16 * 1024
# Two programs fit on a multiprocessor of compute capability 9.0, one on 8.6 and 8.9.
_SHARED_BYTES = 97 * 1024
# Whose products a norm comes before.
_NORMED = ("qkv", "gate_up", "shared_gate_up", "head")
_CHOICES: tuple[Factors, ...] = (
    {"columns": 2},
    {"columns": 2, "num_stages": 0.75},
    {"splits": 2},
    {"splits": 0.5},
    {"rows": 2},
    {"rows": 0.5},
    {"rows": 0.5, "columns": 2},
    {"rows": 2, "num_warps": 2},
    {"rows": 0.5, "columns": 2, "num_warps": 0.5},
    {"rows": 0.5, "num_warps": 0.5},
    {"rows": 0.5, "columns": 2, "num_warps": 0.5, "splits": 0.5},
    {"rows": 0.5, "num_warps": 0.5, "splits": 0.5},
    {"rows": 2, "columns": 0.5, "num_warps": 2},
    {"num_stages": 0.75},
    {"columns": 2, "num_warps": 2},
    {"num_warps": 0.5},
    {"num_warps": 2},
    {"columns": 0.5},
)

# Rows, columns, warps, stages and splits of Q/K/V: two to four programs for each multiprocessor in
# a model of 8B, that fit on it at once.
_SPLIT_QKV = (
    (64, 256, 4, 4, 4),
    (64, 128, 4, 3, 4),
    (64, 256, 4, 3, 4),
    (64, 128, 4, 4, 2),
    (64, 128, 4, 4, 4),
    (64, 256, 4, 4, 2),
    (128, 256, 8, 4, 4),
    (128, 256, 8, 3, 8),
    (128, 128, 8, 4, 8),
    (64, 128, 4, 4, 8),
)


class BatchedTiles(TileKind):
    def default(self, multiprocessors: int) -> Tile:
        """A loop over blocks of 16 KiB of weights; products that add to the residual may split it.

        64 rows of 16-bit weights win on an H200 even where they occupy two multiprocessors of
        three. 128 rows of weights that are converted read as few activations for each byte of
        weights, but a multiprocessor without work costs more; those that 8-bit tensor cores take
        need more programs.
        """
        shapes, shape = self.shapes, self.shape
        programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        converted = self.element_bytes < shapes.activation_bytes and not self._multiplies_fp8
        rows = 32 if shapes.activation_bytes == 4 else 128 if converted else 64
        least, enough = (32, multiprocessors) if converted else (MIN_DOT, multiprocessors // 2)
        while True:
            columns = self._columns(rows)
            # Each split of this many steps still fills the pipeline.
            deep = shape.columns // (columns * _STAGES)
            most = min(self.max_splits, max(1, deep)) if self._splits_unmeasured else 1
            if rows <= least or shape.rows // rows * most * shape.matrices >= enough:
                break
            rows //= 2
        splits = max(1, min(most, programs // -(-shape.rows // rows)))
        warps = 4 if rows <= 64 else 8
        rows = min(rows, self.most_rows)
        tile = Tile(rows, columns, warps, _STAGES, splits)
        while self._spills(tile):
            tile = replace(tile, columns=tile.columns // 2)
        # With two stages left, a loop that converts nothing would wait for each block.
        halves = self._multiplies_fp8 and tile.columns > _FEW_COLUMNS
        if halves and self.shared_bytes(tile) > _SHARED_BYTES:
            tile = replace(tile, columns=tile.columns // 2)
        while self.shared_bytes(tile) > _SHARED_BYTES:
            tile = replace(tile, num_stages=tile.num_stages - 1)
        return tile

    def around(self, start: Tile) -> Iterator[Tile]:
        if self.operation == "qkv":
            tiles = (Tile(*sizes) for sizes in _SPLIT_QKV)
            yield from (tile for tile in tiles if tile.blocks(self.shape.columns) > 1)
        yield from self.scaled(start, _CHOICES)

    def fits(self, tile: Tile) -> bool:
        return (
            MIN_DOT <= tile.rows <= self.most_rows
            and tile.num_warps <= MAX_WARPS
            and tile.splits <= self.max_splits
            and MIN_DOT <= tile.columns <= _MAX_COLUMNS
            and not self._spills(tile)
        )

    def shared_bytes(self, tile: Tile) -> int:
        # Of 4 bits: half a byte.
        element, shapes = self.element_bytes or 0.5, self.shapes
        x_bytes = 1 if shapes.fp8_x and element == 1 else shapes.activation_bytes
        tokens = padded_tokens(shapes.batch) * x_bytes
        return int(tile.num_stages * (tile.rows * element + tokens) * tile.columns) + 1024

    @property
    def _multiplies_fp8(self) -> bool:
        """Whether the tensor cores multiply FP8 weights: by E4M3 activations, or by pairs, which a
        norm gives in a model of bfloat16."""
        shapes = self.shapes
        pairs = self.operation in _NORMED and shapes.activation_bytes == 2
        return shapes.fp8_x or (pairs and self.element_bytes == 1 and not shapes.int8)

    @property
    def _splits_unmeasured(self) -> bool:
        """Whether the default splits. Splits of Q/K/V have to win first (`_SPLIT_QKV`)."""
        return self.may_split and self.operation != "qkv"

    def _columns(self, rows: int) -> int:
        """256 bytes of activations; for few tokens and unsplit rows, 16 KiB of narrow weights."""
        activation_bytes = self.shapes.activation_bytes
        columns = _ROW_BYTES // activation_bytes
        narrow = self.element_bytes < activation_bytes == 2
        if narrow and padded_tokens(self.shapes.batch) <= 32 and not self._splits_unmeasured:
            columns = min(_BLOCK_BYTES // rows, _MAX_COLUMNS)
        return min(columns, max(MIN_DOT, self.all_columns))

    def _spills(self, tile: Tile) -> bool:
        """Whether a product is float32 and its blocks take more registers than there are.

        It has no tensor cores: registers hold the blocks. Triton 3.6 was seen to keep within them
        up to this size on compute capability 9.0, and to spill beyond it.
        """
        held = (tile.rows + padded_tokens(self.shapes.batch)) * tile.columns
        return self.shapes.activation_bytes == 4 and held > 768 * tile.num_warps
