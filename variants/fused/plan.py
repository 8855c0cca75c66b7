"""Everything one fused step needs, and the two choices that several of its launches share."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from decodescope.kernels.linear import linear
from decodescope.kernels.linear_residual import linear_residual
from decodescope.kernels.rms_norm import rms_norm
from decodescope.kernels.rms_norm_residual import rms_norm_residual
from decodescope.kernels.rope import RopeTable
from decodescope.kernels.sampling.workspace import SamplingWorkspace
from decodescope.kernels.tile import Tile
from decodescope.kernels.weights import Norm, WeightMatrix
from decodescope.kernels.workspace import Workspace
from decodescope.variants.annotations import LayerRanges
from decodescope.variants.fused.buffers import StepBuffers
from decodescope.variants.fused.kv_cache import KvCache
from decodescope.variants.fused.model_parts import FusedModel
from decodescope.variants.fused.static_attention import VisibleRows
from decodescope.variants.fused.tiles import StepTiles
from decodescope.variants.sampling import Sampling
from decodescope.variants.spec import VariantSpec


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step's model, memory and choices. Two plans may share all but the workspace, as long as
    their steps do not run at the same time.

    `pdl`: kernels start while the one before them ends. `prefetch`: attention asks the O projection
    into L2. Both are what `spec` asks for, where the device can do it. `ranges` are shared by all
    plans of one built variant; `visible` is updated in steps without our own attention. `draws` is
    the memory of `sampling`; both are None where decoding is greedy.
    """

    spec: VariantSpec
    parts: FusedModel
    cache: KvCache
    rope: RopeTable
    buffers: StepBuffers
    tiles: StepTiles
    workspace: Workspace
    visible: VisibleRows
    ranges: LayerRanges
    pdl: bool
    prefetch: bool
    sampling: Sampling | None = None
    draws: SamplingWorkspace | None = None

    def range(self, name: str) -> AbstractContextManager[None]:
        """A profiler range around launches, if ranges are on."""
        return self.ranges.open(name)

    def normed(self, name: str, norm: Norm, unadded: bool) -> tuple[torch.Tensor, Norm | None]:
        """What the next projection reads, and the norm that it has to apply itself, if any.

        `name` is the range of a norm that is a launch of its own. `unadded`: a projection came
        before, whose output is not in the residual stream yet if additions are left to the norms.
        """
        buffers = self.buffers
        if self.spec.uses("norm"):
            return buffers.x, norm
        with self.range(name):
            if unadded and not self.spec.uses("residual"):
                rms_norm_residual(buffers.added, buffers.x, norm, buffers.normed, self.pdl)
            else:
                rms_norm(buffers.x, norm, buffers.normed, self.pdl)
        return buffers.normed, None

    def add_product(self, name: str, x: torch.Tensor, weight: WeightMatrix, tile: Tile) -> None:
        """Add W x to the residual stream, or leave that to the norm that comes next."""
        buffers = self.buffers
        if self.spec.uses("residual"):
            with self.range(f"{name}+residual"):
                linear_residual(x, weight, buffers.x, tile, self.workspace, self.pdl)
            return
        with self.range(name):
            linear(x, weight, buffers.added, unsplit(tile), pdl=self.pdl)
        if self.spec.uses("norm"):
            with self.range("residual"):
                buffers.x.add_(buffers.added)


def unsplit(tile: Tile) -> Tile:
    """The same tile for a launch in which nothing adds up the parts of a split."""
    return replace(tile, splits=1)
