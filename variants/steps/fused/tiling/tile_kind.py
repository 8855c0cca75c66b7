"""A kind of kernel, as far as its tiles go: their limits, the default, and those worth a try."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    TiledOperation,
    power_of_2_from,
)

MAX_WARPS = 8
LOAD_BYTES = 16
# Fewer leave multiprocessors without work, or with too few bytes in flight.
PROGRAMS_PER_MULTIPROCESSOR = 2

# Sizes of a tile as factors of those of the default; None: all columns of the matrix.
Factors = dict[str, float | None]


class TileKind(ABC):
    """The tiles of one kind of kernel; the same for each operation that it runs."""

    @abstractmethod
    def default(self, operation: TiledOperation, shapes: StepShapes, multiprocessors: int) -> Tile:
        """The tile where tuning starts, and what a step uses if nothing was measured."""

    @abstractmethod
    def around(self, start: Tile, operation: TiledOperation, shapes: StepShapes) -> Iterator[Tile]:
        """Tiles to measure beside the default, the most promising first; not all of them fit."""

    @abstractmethod
    def fits(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> bool:
        """Whether the kernel can run with this tile, shared memory aside."""

    @abstractmethod
    def shared_bytes(self, tile: Tile, operation: TiledOperation, shapes: StepShapes) -> int:
        """Upper bound of one program's shared memory: what Triton 3.6 was seen to use, rounded
        up."""

    def limits(self, tile: Tile) -> tuple[Tile, ...]:
        """The tile with each limit of registers that is worth measuring."""
        return (tile,)


def scaled(
    start: Tile, choices: Sequence[Factors], operation: TiledOperation, shapes: StepShapes
) -> Iterator[Tile]:
    """`start` with some sizes times their factors, without those where rows, columns or warps would
    fall below 1, and without splits of an operation that does not split."""
    whole = power_of_2_from(shapes.shape(operation).columns)
    for factors in choices:
        if "splits" in factors and not shapes.may_split(operation):
            continue
        sizes: dict[str, Any] = {
            name: whole if factor is None else int(getattr(start, name) * factor)
            for name, factor in factors.items()
        }
        if all(size >= 1 or name in ("splits", "num_stages") for name, size in sizes.items()):
            yield replace(start, **{name: max(1, size) for name, size in sizes.items()})
