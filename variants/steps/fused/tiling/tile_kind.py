"""A kind of kernel, as far as its tiles go: their limits, the default, and those worth a try."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from decodescope.kernels.host.tile import MIN_DOT, Tile
from decodescope.variants.steps.fused.tiling.shapes import (
    DECLARATIONS,
    StepShapes,
    TiledOperation,
    power_of_2_from,
)

MAX_WARPS = 8
LOAD_BYTES = 16
# Fewer leave multiprocessors without work, or with too few bytes in flight.
PROGRAMS_PER_MULTIPROCESSOR = 2
# A product splits its inner dimension where rows alone leave the GPU short of work.
_MAX_SPLITS = 8

# Sizes of a tile as factors of those of the default; None: all columns of the matrix.
Factors = dict[str, float | None]


class TileKind(ABC):
    """The tiles of one operation of a step, by the kind of kernel that runs it.

    `all_columns` is a block of the matrix's columns, `element_bytes` the size of what it reads.
    """

    def __init__(self, operation: TiledOperation, shapes: StepShapes) -> None:
        self.operation = operation
        self.shapes = shapes
        self.shape = shapes.shape(operation)
        self.all_columns = power_of_2_from(self.shape.columns)
        self.element_bytes = shapes.element_bytes(operation)
        self.declared = DECLARATIONS[operation]
        self.may_split = shapes.may_split(operation)

    @abstractmethod
    def default(self, multiprocessors: int) -> Tile:
        """The tile where tuning starts, and what a step uses if nothing was measured."""

    @abstractmethod
    def around(self, start: Tile) -> Iterator[Tile]:
        """Tiles to measure beside the default, the most promising first; not all of them fit."""

    @abstractmethod
    def fits(self, tile: Tile) -> bool:
        """Whether the kernel can run with this tile, shared memory aside."""

    @abstractmethod
    def shared_bytes(self, tile: Tile) -> int:
        """Upper bound of one program's shared memory: what Triton 3.6 was seen to use, rounded
        up."""

    def converted_bytes(self, tile: Tile) -> int:
        """The same where converted weights pass through shared memory
        (`TargetGpu.multiplies_from_registers`), if that takes more."""
        return 0

    def limits(self, tile: Tile) -> tuple[Tile, ...]:
        """The tile with each limit of registers that is worth measuring."""
        return (tile,)

    @property
    def most_rows(self) -> int:
        """The most rows of a tile, such that more than half of them are used."""
        least = MIN_DOT if self.shapes.batch > 1 else self.declared.least_rows
        rows = self.shape.unit if self.operation == "qkv" else self.shape.rows
        return max(least, power_of_2_from(rows))

    @property
    def max_splits(self) -> int:
        return _MAX_SPLITS if self.may_split else 1

    def scaled(self, start: Tile, choices: Sequence[Factors]) -> Iterator[Tile]:
        """`start` with some sizes times their factors, without those where rows, columns or warps
        would fall below 1, and without splits of an operation that does not split."""
        for factors in choices:
            if "splits" in factors and not self.may_split:
                continue
            sizes: dict[str, Any] = {
                name: self.all_columns if factor is None else int(getattr(start, name) * factor)
                for name, factor in factors.items()
            }
            if all(size >= 1 or name in ("splits", "num_stages") for name, size in sizes.items()):
                yield replace(start, **{name: max(1, size) for name, size in sizes.items()})
