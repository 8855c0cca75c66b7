"""Everything that one fused step needs."""

from dataclasses import dataclass

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.rope import RopeTable
from decodescope.kernels.sampling.workspace import SamplingWorkspace
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.buffers import StepBuffers
from decodescope.variants.steps.fused.kv_cache import KvCache
from decodescope.variants.steps.fused.model_parts import FusedModel
from decodescope.variants.steps.fused.static_attention import VisibleRows
from decodescope.variants.steps.fused.tiling.rules import StepTiles


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
    sampling: SamplingSettings | None = None
    draws: SamplingWorkspace | None = None
