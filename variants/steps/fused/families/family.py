"""A family: models whose layers are read, and refused, in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from decodescope.variants.steps.fused.blocks import FusedLayer


@dataclass(frozen=True, slots=True)
class Family:
    """`layer` reads a decoder layer of transformers, given its window. `reasons` says which options
    of a configuration the family has and the kernels lack, to follow "cannot run"."""

    layer: Callable[[Any, int | None], FusedLayer]
    reasons: Callable[[Any], Iterator[str]] = lambda config: iter(())
    is_mixture: bool = False
