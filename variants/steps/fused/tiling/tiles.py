"""The default tiles of a step, those that are worth measuring, and whether a tile fits a GPU.

The defaults are what was measured at batch 1 on one H200, and reasoning elsewhere. They need no
GPU; where one does not fit, the first candidate that does takes its place. `tuner` finds better
ones, and `tile_table` keeps them.
"""

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.tile import MIN_DOT, Tile
from decodescope.variants.steps.fused.tiling.attention_tiles import AttentionTiles
from decodescope.variants.steps.fused.tiling.batched_tiles import BatchedTiles
from decodescope.variants.steps.fused.tiling.packed_expert_tiles import (
    PackedExpertBatchTiles,
    PackedExpertTiles,
)
from decodescope.variants.steps.fused.tiling.packed_tiles import PackedBatchTiles, PackedTiles
from decodescope.variants.steps.fused.tiling.shapes import (
    DECLARATIONS,
    OF_EXPERTS,
    StepShapes,
    StepTiles,
    TiledOperation,
    power_of_2_from,
)
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu
from decodescope.variants.steps.fused.tiling.tile_kind import TileKind
from decodescope.variants.steps.fused.tiling.vector_tiles import NarrowTiles, VectorTiles

MAX_CANDIDATES = 24
# Triton's tensors have at most so many elements.
_MOST_ELEMENTS = 1 << 20


def default_tiles(shapes: StepShapes, multiprocessors: int) -> StepTiles:
    return {name: kind_of(name, shapes).default(multiprocessors) for name in shapes.operations}


def interpreter_tiles(shapes: StepShapes) -> StepTiles:
    """Tiles for Triton's interpreter, where a program costs far more than its elements do."""

    def tile(operation: TiledOperation) -> Tile:
        if operation.endswith("attention"):
            return Tile(1, min(256, max(MIN_DOT, power_of_2_from(shapes.capacity))))
        shape = shapes.shape(operation)
        rows = shape.unit if operation == "qkv" else min(shape.rows, 1024)
        columns = max(MIN_DOT, power_of_2_from(shape.columns))
        least = MIN_DOT if shapes.batch > 1 else DECLARATIONS[operation].least_rows
        rows = max(least, power_of_2_from(rows))
        return Tile(rows, min(columns, _MOST_ELEMENTS // rows))

    return {name: tile(name) for name in shapes.operations}


def tile_candidates(
    operation: TiledOperation, shapes: StepShapes, gpu: TargetGpu
) -> tuple[Tile, ...]:
    """Tiles to measure, the default first, then the most promising: at most `MAX_CANDIDATES`, each
    with the limits of registers that its kind has.

    Raises:
        MissingRequirement: none fits the GPU's shared memory; names the limit.
    """
    kind = kind_of(operation, shapes)
    start = kind.default(gpu.multiprocessors)
    tiles = dict.fromkeys((start, *kind.around(start)))
    fitting = [tile for tile in tiles if tile_fits(tile, operation, shapes, gpu)]
    if not fitting:
        least = min(_shared_bytes(kind, tile, gpu) for tile in tiles)
        raise MissingRequirement(
            f"no tile for {operation} fits: {gpu.name} has {gpu.shared_bytes} bytes of shared "
            f"memory for a program, and the smallest tile needs {least}"
        )
    return tuple(limited for tile in fitting[:MAX_CANDIDATES] for limited in kind.limits(tile))


def tile_fits(tile: Tile, operation: TiledOperation, shapes: StepShapes, gpu: TargetGpu) -> bool:
    """Whether the kernel can run with this tile and one of its programs fits on the GPU."""
    kind = kind_of(operation, shapes)
    return kind.fits(tile) and _shared_bytes(kind, tile, gpu) <= gpu.shared_bytes


def _shared_bytes(kind: TileKind, tile: Tile, gpu: TargetGpu) -> int:
    converted = 0 if gpu.multiplies_from_registers else kind.converted_bytes(tile)
    return max(converted, kind.shared_bytes(tile))


def kind_of(operation: TiledOperation, shapes: StepShapes) -> TileKind:
    return _class_of(operation, shapes)(operation, shapes)


def _class_of(operation: TiledOperation, shapes: StepShapes) -> type[TileKind]:
    if operation.endswith("attention"):
        return AttentionTiles
    packed = shapes.element_bytes(operation) == 0
    of_experts = operation in OF_EXPERTS
    if shapes.batch > 1:
        if packed:
            return PackedExpertBatchTiles if of_experts else PackedBatchTiles
        return BatchedTiles
    if packed:
        return PackedExpertTiles if of_experts else PackedTiles
    narrow = shapes.element_bytes(operation) == 1 and shapes.activation_bytes == 2
    return NarrowTiles if narrow else VectorTiles
