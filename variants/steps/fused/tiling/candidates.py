"""The tiles that are worth measuring: the default and a few around it that fit the GPU.

candidates.json has the tiles around a default as factors of its sizes (null: all columns of the
matrix), in the order in which they are measured, for operations at batch 1 (`vector`), for those of
a batch (`batched`) and for attention, where 1.5 times the splits are three programs a
multiprocessor in place of two. `narrow` has rows, columns and warps of FP8 and INT8 tiles at batch
1: tensor cores from 16 rows on, CUDA cores below.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import msgspec
from msgspec import Struct

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

Factors = dict[str, float | None]


class _Choices(Struct, frozen=True):
    vector: tuple[Factors, ...]
    batched: tuple[Factors, ...]
    attention: tuple[Factors, ...]
    narrow: tuple[tuple[int, int, int], ...]


@cache
def _choices() -> _Choices:
    data = Path(__file__).with_name("candidates.json").read_bytes()
    return msgspec.json.decode(data, type=_Choices)


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
    whole = power_of_2_from(shapes.shape(operation).columns)
    if operation == "attention":
        return _scaled(start, _choices().attention, whole)
    if shapes.batch > 1:
        return _scaled(start, _without_splits(_choices().batched, operation), whole)
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
    factors = _without_splits(_choices().vector, operation)
    sizes = tuple(_scaled(start, factors, power_of_2_from(columns)))
    for tile in sizes:
        yield with_blocks_ahead(tile, columns, size)
    # More rows than registers hold at once: their later blocks are loaded after the wait.
    for tile in sizes:
        yield replace(tile, num_stages=1)


def _narrow_tiles(operation: TiledOperation, columns: int) -> Iterator[Tile]:
    for split_choices in ((4, 1), (2,)) if operation in SPLITTING else ((1,),):
        for (rows, block, warps), splits in product(_choices().narrow, split_choices):
            tile = Tile(rows, min(block, power_of_2_from(columns)), warps, splits=splits)
            if splits == 1 or columns > 4 * block:
                yield with_blocks_ahead(tile, columns, 1)


def _without_splits(choices: tuple[Factors, ...], operation: TiledOperation) -> tuple[Factors, ...]:
    """The choices that are possible for `operation`, which may not be able to split."""
    return tuple(each for each in choices if operation in SPLITTING or "splits" not in each)


def _scaled(start: Tile, choices: tuple[Factors, ...], whole: int) -> Iterator[Tile]:
    """`start` with some sizes times their factors, without those where rows, columns or warps would
    fall below 1; `whole` columns are all."""
    for factors in choices:
        sizes = {
            name: whole if factor is None else int(getattr(start, name) * factor)
            for name, factor in factors.items()
        }
        if all(size >= 1 or name in ("splits", "num_stages") for name, size in sizes.items()):
            yield replace(start, **{name: max(1, size) for name, size in sizes.items()})
