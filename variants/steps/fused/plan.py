"""All that one fused step needs: the model, the choices, and device memory, allocated once."""

from dataclasses import dataclass

import torch

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.device.attention_splits import attention_workspace
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.weights import FP8_X, INTEGER_X
from decodescope.kernels.host.workspace import Workspace, new_workspace
from decodescope.kernels.ops.linear_residual import split_workspace
from decodescope.kernels.ops.norm_qkv_rope import qkv_workspace
from decodescope.kernels.sampling.workspace import SamplingWorkspace, new_sampling_workspace
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.sums import RankSums, rank_sums
from decodescope.variants.parallel.vocabulary import Vocabulary
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.blocks import FusedModel, blocks_for_batches
from decodescope.variants.steps.fused.kv_cache import KvCache, new_kv_cache
from decodescope.variants.steps.fused.rope_tables import Ropes
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation
from decodescope.variants.steps.fused.torch_operators import VisibleRows

_ONE_RANK = Vocabulary()


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """The tensors that operations pass on, in the model's dtype unless stated otherwise.

    A generation has `tokens` int64 [batch, capacity + 1], the id at each position, and `position`
    int32 [1], the number of tokens in the KV cache. A step has the residual stream `x`
    [batch, hidden], the `layer_inputs` and, before the sum, `projected_inputs` [batch, layers *
    width], `input_gate` [batch, width], `q` and `attended` (flat, as many as the layer with the
    longest heads has), `activation` (flat, as many as the widest MLP has between its halves),
    `router_logits` [layers with experts, batch, experts], float32 if they are corrected,
    `expert_outputs` float32 [batch, chosen, hidden] of a batch, `shared` (flat) and `shared_gate`
    [batch, 1] of the MLP beside the experts, and `logits` float32 [batch, vocabulary]. Before
    narrow weights, norms of their own, fused attention and SwiGLU give `normed_half`, `attended`,
    `activation` and `shared` in float16, in which the next product multiplies.

    `codes` (flat, as many as the widest product reads) and their `scales` float32 [batch] hold what
    products read in turn: E4M3 activations, pairs of them, or int16 of one token before INT4
    weights. Pairs have the memory of int16.

    `normed` [batch, hidden] is what norms of their own give for other weights. Used only if a
    fusion is left out: `added` [batch, hidden], `qkv`, `k` and `v` as `q`, `gate` and `up` as
    `activation`, `model_logits`. `beside` as `added`, of layers with `mixture_norms`. Only several
    ranks that draw tokens use `all_logits` [batch, whole vocabulary].
    """

    tokens: torch.Tensor
    position: torch.Tensor
    x: torch.Tensor
    q: torch.Tensor
    attended: torch.Tensor
    activation: torch.Tensor
    router_logits: torch.Tensor
    layer_inputs: torch.Tensor
    projected_inputs: torch.Tensor
    input_gate: torch.Tensor
    expert_outputs: torch.Tensor
    shared: torch.Tensor
    shared_gate: torch.Tensor
    logits: torch.Tensor
    codes: torch.Tensor
    scales: torch.Tensor
    normed: torch.Tensor
    normed_half: torch.Tensor
    added: torch.Tensor
    beside: torch.Tensor
    qkv: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    model_logits: torch.Tensor
    all_logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step's model, memory and choices. Two plans may share all but the workspace, as long as
    their steps do not run at the same time.

    `pdl`: kernels start while the previous one ends, if `spec` and the device allow it. `ranges`
    are shared by all plans of one built variant; `ropes` are the tables by `FusedLayer.rope`;
    `visible` is updated in steps without our own attention. `draws` is the memory of `sampling`;
    both are None if decoding is greedy. `sums` is that of several ranks, None of one, and
    `vocabulary` says which tokens of it this rank's head makes.
    """

    spec: VariantSpec
    parts: FusedModel
    cache: KvCache
    ropes: Ropes
    buffers: StepBuffers
    tiles: StepTiles
    workspace: Workspace
    visible: VisibleRows
    ranges: LayerRanges
    pdl: bool
    sampling: SamplingSettings | None = None
    draws: SamplingWorkspace | None = None
    sums: RankSums | None = None
    vocabulary: Vocabulary = _ONE_RANK


def step_plan(
    spec: VariantSpec,
    parts: FusedModel,
    ropes: Ropes,
    workload: DecodeWorkload,
    tiles: StepTiles,
    vocabulary: Vocabulary = _ONE_RANK,
) -> StepPlan:
    """A plan with a cache and buffers of its own for this workload, on the model's device. All
    ranks of `vocabulary` call it together; if they are not to exchange anything, the plan is that
    of a rank alone."""
    if spec.all_reduce == "none":
        vocabulary = _ONE_RANK
    device, batch, capacity = parts.device, workload.batch, workload.cache_length
    if batch > 1:
        parts = blocks_for_batches(parts)
    overlaps = can_overlap(device)
    return StepPlan(
        spec=spec,
        parts=parts,
        cache=new_kv_cache(parts, batch, capacity, spec.kv_format),
        ropes=ropes,
        buffers=_new_buffers(spec, parts, batch, capacity, vocabulary),
        tiles=tiles,
        workspace=step_workspace(parts, batch, tiles, device),
        visible=VisibleRows({layer.window for layer in parts.layers}, capacity, device),
        ranges=LayerRanges(None),
        pdl=overlaps and spec.uses("pdl"),
        sampling=workload.sampling,
        draws=None if workload.sampling is None else new_sampling_workspace(batch, device),
        sums=None
        if vocabulary.ranks.alone
        else rank_sums(
            spec.all_reduce,
            batch,
            parts.hidden,
            device,
            vocabulary.ranks,
            norms=any(layer.normed_over_ranks for layer in parts.layers),
        ),
        vocabulary=vocabulary,
    )


def _new_buffers(
    spec: VariantSpec, parts: FusedModel, batch: int, capacity: int, vocabulary: Vocabulary
) -> StepBuffers:
    def zeros(*shape: int, dtype: torch.dtype = parts.dtype) -> torch.Tensor:
        return torch.zeros(batch, *shape, dtype=dtype, device=parts.device)

    q_width = max(layer.o.columns for layer in parts.layers)
    kv_width = max(layer.kv_heads * layer.head_dim for layer in parts.layers)
    widest = max(parts.hidden, q_width, parts.intermediate)
    multiplies_in_half = not spec.fp8_x and parts.dtype == torch.bfloat16
    half = torch.float16 if multiplies_in_half else parts.dtype
    layer = parts.layers[-1]
    attended = half if layer.o.narrow and spec.uses("attention") else parts.dtype
    gated = half if layer.mlp.down.narrow and spec.uses("gate_up") else parts.dtype
    mixtures = parts.mixtures
    experts, chosen = (mixtures[0].count, mixtures[0].chosen) if mixtures else (0, 0)
    corrected = any(each.correction is not None for each in mixtures)
    inputs = parts.layer_inputs.width if parts.layer_inputs else 0
    return StepBuffers(
        tokens=zeros(capacity + 1, dtype=torch.int64),
        position=torch.zeros(1, dtype=torch.int32, device=parts.device),
        x=zeros(parts.hidden),
        q=zeros(q_width).flatten(),
        attended=zeros(q_width, dtype=attended).flatten(),
        activation=zeros(parts.intermediate, dtype=gated).flatten(),
        router_logits=torch.zeros(
            len(mixtures),
            batch,
            experts,
            dtype=torch.float32 if corrected else parts.dtype,
            device=parts.device,
        ),
        layer_inputs=zeros(len(parts.layers) * inputs),
        projected_inputs=zeros(len(parts.layers) * inputs),
        input_gate=zeros(inputs),
        expert_outputs=zeros(chosen if batch > 1 else 0, parts.hidden, dtype=torch.float32),
        shared=zeros(parts.shared.width if parts.shared else 0, dtype=gated).flatten(),
        shared_gate=zeros(1),
        logits=zeros(parts.vocab, dtype=torch.float32),
        codes=zeros(widest, dtype=FP8_X if spec.fp8_x else INTEGER_X).flatten(),
        scales=zeros(dtype=torch.float32),
        normed=zeros(parts.hidden),
        normed_half=zeros(parts.hidden, dtype=half),
        added=zeros(parts.hidden),
        beside=zeros(parts.hidden if parts.layers[0].mixture_norms else 0),
        qkv=zeros(max(layer.qkv.rows for layer in parts.layers)).flatten(),
        k=zeros(kv_width).flatten(),
        v=zeros(kv_width).flatten(),
        gate=zeros(parts.intermediate).flatten(),
        up=zeros(parts.intermediate).flatten(),
        model_logits=zeros(parts.vocab),
        all_logits=zeros(
            0 if vocabulary.ranks.alone else vocabulary.size,
            dtype=torch.float32 if spec.uses("head") else parts.dtype,
        ),
    )


def step_workspace(
    parts: FusedModel, batch: int, tiles: StepTiles, device: torch.device | str
) -> Workspace:
    """A workspace that is large enough for every launch of a step with these tiles."""
    needs = [(0, 1)]
    names: tuple[TiledOperation, ...] = ("attention", "other_attention")
    for name, layer in zip(names, (parts.layers[0], parts.other_heads), strict=True):
        if layer is not None:
            splits, heads = tiles[name].splits, parts.heads + 2 * layer.kv_heads
            needs += [
                qkv_workspace(heads, heads, layer.head_dim, tiles["qkv"], batch),
                attention_workspace(batch, parts.heads, layer.head_dim, splits),
                split_workspace(layer.o, tiles["o"], batch),
            ]
    if parts.dense is not None:
        needs.append(split_workspace(parts.dense.down, tiles["down"], batch))
    if (own := parts.layers[0].own_input) is not None:
        needs.append(split_workspace(own.down, tiles["input_projection"], batch))
    if parts.mixtures:
        needs.append(split_workspace(parts.mixtures[0].router, tiles["router"], batch))
    if parts.shared is not None:
        needs.append(split_workspace(parts.shared.down, tiles["shared_down"], batch))
    floats, counters = (max(sizes) for sizes in zip(*needs, strict=True))
    return new_workspace(floats, counters, device)
