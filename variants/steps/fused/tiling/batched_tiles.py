"""Tiles of a product of several tokens, on the tensor cores."""

from collections.abc import Iterator
from dataclasses import replace

from decodescope.kernels.host.tile import MIN_DOT, Tile, padded_tokens
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.tile_kind import (
    MAX_WARPS,
    PROGRAMS_PER_MULTIPROCESSOR,
    Factors,
    TileKind,
    scaled,
)
from decodescope.variants.steps.fused.tiling.vector_tiles import most_rows

# A product splits its inner dimension where rows alone leave the GPU short of work.
_MAX_SPLITS = 8
_MAX_COLUMNS = 512
_STAGES = 4
_ROW_BYTES = 256
_BLOCK_BYTES = 16 * 1024
# Two programs fit on a multiprocessor of compute capability 9.0, one on 8.6 and 8.9.
_SHARED_BYTES = 97 * 1024
_CHOICES: tuple[Factors, ...] = (
    {"columns": 2},
    {"splits": 2},
    {"splits": 0.5},
    {"rows": 2},
    {"rows": 0.5},
    {"rows": 0.5, "columns": 2},
    {"rows": 2, "num_warps": 2},
    {"rows": 0.5, "columns": 2, "num_warps": 0.5},
    {"rows": 2, "columns": 0.5, "num_warps": 2},
    {"num_stages": 0.75},
    {"columns": 2, "num_warps": 2},
    {"num_warps": 0.5},
    {"num_warps": 2},
    {"columns": 0.5},
)


class BatchedTiles(TileKind):
    def default(self, operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
        """A loop over blocks of 16 KiB of weights; products that add to the residual may split it.

        64 rows of 16-bit weights win on an H200 even where they occupy two multiprocessors of
        three. 128 rows of narrow weights read as few 16-bit activations for each byte of weights,
        but a multiprocessor without work costs more; E4M3 activations are as few with 64.
        """
        shape, splits_inside = shapes.shape(operation), shapes.may_split(operation)
        programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        converted = shapes.element_bytes(operation) < shapes.activation_bytes and not shapes.fp8_x
        rows = 32 if shapes.activation_bytes == 4 else 128 if converted else 64
        least, enough = (32, multiprocessors) if converted else (MIN_DOT, multiprocessors // 2)
        while True:
            columns = _columns(rows, operation, shapes)
            # Each split of this many steps still fills the pipeline.
            deep = shape.columns // (columns * _STAGES)
            most = min(_MAX_SPLITS, max(1, deep)) if splits_inside else 1
            if rows <= least or shape.rows // rows * most * shape.matrices >= enough:
                break
            rows //= 2
        splits = max(1, min(most, programs // -(-shape.rows // rows)))
        warps = 4 if rows <= 64 else 8
        rows = min(rows, most_rows(operation, shapes))
        tile = Tile(rows, columns, warps, _STAGES, splits)
        while _spills(tile, shapes):
            tile = replace(tile, columns=tile.columns // 2)
        while self.shared_bytes(tile, operation, shapes) > _SHARED_BYTES:
            tile = replace(tile, num_stages=tile.num_stages - 1)
        return tile

    def around(self, start: Tile, operation: TiledOperation, shapes: StepShapes) -> Iterator[Tile]:
        return scaled(start, _CHOICES, operation, shapes)

    def fits(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> bool:
        return (
            MIN_DOT <= tile.rows <= most_rows(operation, shapes)
            and tile.num_warps <= MAX_WARPS
            and tile.splits <= (_MAX_SPLITS if shapes.may_split(operation) else 1)
            and MIN_DOT <= tile.columns <= _MAX_COLUMNS
            and not _spills(tile, shapes)
        )

    def shared_bytes(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> int:
        # Of 4 bits: half a byte.
        element = shapes.element_bytes(operation) or 0.5
        x_bytes = 1 if shapes.fp8_x and element == 1 else shapes.activation_bytes
        tokens = padded_tokens(shapes.batch) * x_bytes
        return int(tile.num_stages * (tile.rows * element + tokens) * tile.columns) + 1024


def _columns(rows: int, operation: TiledOperation, shapes: StepShapes) -> int:
    """256 bytes of activations; for few tokens and unsplit rows, 16 KiB of narrow weights."""
    tokens = padded_tokens(shapes.batch)
    columns = _ROW_BYTES // shapes.activation_bytes
    narrow = shapes.element_bytes(operation) < shapes.activation_bytes == 2
    if narrow and tokens <= 32 and not shapes.may_split(operation):
        columns = min(_BLOCK_BYTES // rows, _MAX_COLUMNS)
    return min(columns, max(MIN_DOT, power_of_2_from(shapes.shape(operation).columns)))


def _spills(tile: Tile, shapes: StepShapes) -> bool:
    """Whether a product is float32 and its blocks take more registers than there are.

    It has no tensor cores: registers hold the blocks. Triton 3.6 was seen to keep within them up to
    this size on compute capability 9.0, and to spill beyond it.
    """
    held = (tile.rows + padded_tokens(shapes.batch)) * tile.columns
    return shapes.activation_bytes == 4 and held > 768 * tile.num_warps
