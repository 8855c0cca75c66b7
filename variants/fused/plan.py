"""Everything that one fused step needs."""

from dataclasses import dataclass

from decodescope.kernels.rope import RopeTable
from decodescope.kernels.sampling.workspace import SamplingWorkspace
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
