"""Which part of each tensor of a model a rank holds, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from decodescope.variants.parallel.ranks import ALONE, Ranks


class Sliceable(Protocol):
    """A tensor, or a stored one of which only what is indexed is read."""

    def __getitem__(self, index: Any, /) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Block:
    """Elements along a dimension that are cut on their own: `units` of `size` elements, none of
    which is cut.

    A rank holds as many units as every other. Of fewer units than ranks it holds one, and
    neighbours hold the same. If they are `uneven`, the last ranks may hold fewer.
    """

    units: int
    size: int = 1
    uneven: bool = False

    @property
    def elements(self) -> int:
        return self.units * self.size

    def splits(self, size: int) -> bool:
        """Whether so many ranks hold equal parts, or no part is empty if they are `uneven`."""
        if self.uneven:
            return (size - 1) * -(-self.units // size) < self.units
        return self.units % size == 0 or size % self.units == 0

    def held(self, ranks: Ranks) -> range:
        """The elements of the block that this rank holds."""
        if self.uneven:
            share = -(-self.units // ranks.size)
            first = ranks.rank * share
            last = min(first + share, self.units)
        else:
            first = ranks.rank * self.units // ranks.size
            last = first + max(1, self.units // ranks.size)
        return range(first * self.size, last * self.size)


@dataclass(frozen=True, slots=True)
class Cut:
    """A rank holds its part of each of the `blocks`, which follow each other along `dimension`:
    of a merged QKV, the heads of Q, of K and of V."""

    dimension: int
    blocks: tuple[Block, ...]

    def of(self, whole: Sliceable, ranks: Ranks) -> torch.Tensor:
        """This rank's part of `whole`, in memory of its own."""
        before: tuple[slice, ...] = (slice(None),) * self.dimension
        parts, start = [], 0
        for block in self.blocks:
            held = block.held(ranks)
            parts.append(whole[(*before, slice(start + held.start, start + held.stop))])
            start += block.elements
        return torch.cat(parts, self.dimension)

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a whole tensor, from that of a part."""
        elements = sum(block.elements for block in self.blocks)
        return (*shape[: self.dimension], elements, *shape[self.dimension + 1 :])

    @property
    def exchanged(self) -> "Cut":
        """The cut of matrices [experts, columns, rows], given that of [experts, rows, columns]."""
        return replace(self, dimension=(0, 2, 1)[self.dimension])

    def in_groups(self, elements: int, dimensions: int) -> "Cut":
        """The cut of [..., rows, groups], of so many dimensions, with a value for so many elements
        of a row. Ranks hold whole groups."""
        if self.dimension < dimensions - 1:
            return self
        return replace(self, blocks=tuple(Block(each.elements // elements) for each in self.blocks))


@dataclass(frozen=True, slots=True)
class Once:
    """The first rank holds the tensor, the others zeros: a bias that a sum over ranks has once."""

    def of(self, whole: Sliceable, ranks: Ranks) -> torch.Tensor:
        held = whole[:].clone()
        return held if ranks.rank == 0 else torch.zeros_like(held)

    def whole_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape


@dataclass(frozen=True, slots=True)
class Split:
    """The split of a model: the `cuts` of its tensors by name; others are on every rank.

    The name of a matrix is that of its parameter in the model's dtype, however it is stored.
    `tied`: the head reads its rows in the embedding table. `ep`: ranks hold whole experts.
    """

    ranks: Ranks = ALONE
    cuts: Mapping[str, Cut | Once] = field(default_factory=dict)
    tied: bool = False
    ep: bool = False

    def part(self, name: str) -> Callable[[Sliceable], torch.Tensor] | None:
        """A function that takes this rank's part of the tensor `name`; None: every rank has it."""
        cut = self.cuts.get(name)
        return None if cut is None else partial(cut.of, ranks=self.ranks)

    def whole_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the whole tensor `name`, from that of this rank's part."""
        cut = self.cuts.get(name)
        return tuple(shape) if cut is None else cut.whole_shape(tuple(shape))

    def cuts_columns(self, name: str, dimensions: int) -> bool:
        """Whether ranks hold parts of the rows of a tensor of so many dimensions."""
        cut = self.cuts.get(name)
        return isinstance(cut, Cut) and cut.dimension == dimensions - 1


def split_of(model: nn.Module) -> Split:
    """The split that `shard_model` has left at `model`; of one rank without it."""
    split = getattr(model, "split", None)
    return split if isinstance(split, Split) else Split()
