"""A family: models whose layers are read, and refused, in the same way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from decodescope.kernels.host.activation import Activation
from decodescope.kernels.host.weights import Norm
from decodescope.variants.steps.fused.blocks import FusedLayer, FusedModel, LayerInputs
from decodescope.variants.steps.fused.merging import norm_of


@dataclass(frozen=True, slots=True)
class Family:
    """`layer` reads a decoder layer of transformers, given its window. `reasons` says which options
    of a configuration the family has and the kernels lack, to follow "cannot run". `norm` reads
    the final norm, `inputs` what makes each layer's input, and `whole` adds to a model what else is
    not in its layers. `activation` is the one that `layer` reads. A variant may quantise the
    weights of one that is `quantizable`. The attention of one that is not `windowed` sees every
    position whatever the configuration says. Layers with a window and those without may have
    `own_heads`.

    `rotates_part`: RoPE may leave the last elements of a head as they are. `rotates_neighbours`:
    its pairs are neighbours, otherwise half of what is rotated apart. `repeats_angles`: the rotary
    module gives each angle twice in a row, otherwise all angles and then all again, or with
    `angles_once` not again.
    """

    layer: Callable[[Any, int | None], FusedLayer]
    reasons: Callable[[Any], Iterator[str]] = lambda config: iter(())
    norm: Callable[[Any], Norm] = norm_of
    whole: Callable[[Any, FusedModel], FusedModel] = lambda config, parts: parts
    inputs: Callable[[Any], LayerInputs | None] = lambda decoder: None
    activation: Activation = "silu"
    rotates_part: bool = False
    rotates_neighbours: bool = False
    repeats_angles: bool = False
    angles_once: bool = False
    quantizable: bool = True
    windowed: bool = True
    own_heads: bool = False
