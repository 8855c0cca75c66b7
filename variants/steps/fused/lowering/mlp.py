"""The MLP of a layer, dense or a mixture of experts."""

from functools import partial

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer
from decodescope.variants.steps.fused.lowering.builder import Source, StepBuilder, row_blocks
from decodescope.variants.steps.fused.torch_operators import scale_by_sigmoid

_NORM = "post_attention_norm"


def lower_mlp(builder: StepBuilder, path: str, layer: FusedLayer) -> None:
    """The operations of the MLP of the next layer, under `path`."""
    mlp = layer.mlp
    first = mlp.router if isinstance(mlp, Experts) else mlp.gate_up
    if layer.parallel:
        source = builder.kept(f"{path}/mlp", first)
    else:
        source = builder.normed(f"{path}/{_NORM}", layer.mlp_norm, first)
    norm_path = f"{path}/post_mlp_norm"
    path += "/mlp" if source.norm is None else f"/{_NORM}+mlp"
    if isinstance(mlp, Experts):
        _mixture(builder, path, source, mlp, layer)
    else:
        memory_of = builder.buffers.activation, builder.tiles["gate_up"]
        activation = _gated(builder, path, source, mlp, *memory_of)
        memory = activation, mlp.down, builder.tiles["down"]
        norm = layer.mlp_output_norm
        factor = layer.factor if layer.own_input is None else None
        builder.add_product(f"{path}/down_proj", *memory, norm, norm_path, factor)


def _gated(
    builder: StepBuilder, path: str, source: Source, mlp: DenseMlp, buffer: torch.Tensor, tile: Tile
) -> torch.Tensor:
    """The activation that the down projection reads, in `buffer`."""
    buffers, activation = builder.buffers, builder.rows(buffer, mlp.width)
    function = mlp.activation.removesuffix("_tanh")
    if builder.spec.uses("gate_up"):
        fused = NormGateUp(
            source.x,
            source.norm,
            mlp.gate_up,
            activation,
            tile,
            source.scale,
            mlp.activation,
        )
        builder.add(f"{path}/gate_up+{function}", fused)
    else:
        halves = row_blocks(mlp.gate_up, [mlp.width] * 2)
        gate, up = (builder.rows(each, mlp.width) for each in (buffers.gate, buffers.up))
        for weight, out in zip(halves, (gate, up), strict=True):
            builder.linear(f"{path}/gate_up", source, weight, out, tile)
        builder.add(f"{path}/{function}", Swiglu(gate, up, activation, mlp.activation))
    return activation


def _mixture(
    builder: StepBuilder, path: str, source: Source, mlp: Experts, layer: FusedLayer
) -> None:
    """The experts of each token, and around them the one of all tokens: it reads what the others
    add to."""
    if layer.shared is None:
        _experts(builder, path, source, mlp)
        return
    buffers, tiles, inside = builder.buffers, builder.tiles, f"{path}/shared_expert"
    memory = buffers.shared, tiles["shared_gate_up"]
    activation = _gated(builder, inside, source, layer.shared, *memory)
    if layer.shared_gate is not None:
        logit = buffers.shared_gate
        builder.linear(f"{inside}/gate", source, layer.shared_gate, logit, tiles["router"])
        builder.call(f"{inside}/gate", scale_by_sigmoid, activation, logit)
    _experts(builder, path, source, mlp, continued=True)
    down = layer.shared.down, tiles["shared_down"]
    builder.add_product(f"{inside}/down_proj", activation, *down)


def _experts(
    builder: StepBuilder, path: str, source: Source, mlp: Experts, continued: bool = False
) -> None:
    """The router's product, and launches in which every program finds its experts itself. Those of
    a batch leave the sum over a token's experts to a launch of its own."""
    buffers, tiles = builder.buffers, builder.tiles
    logits = next(builder.router_logits)
    if len(source.x) == 1:
        builder.linear(f"{path}/router", source, mlp.router, logits, tiles["router"])
    else:
        # Its few rows leave most multiprocessors without work unless programs share them.
        shared = tiles["router"], builder.plan.workspace
        router = LinearResidual(source.x, mlp.router, logits, *shared, adds=False)
        builder.add(f"{path}/router", router)
    activation, gate, up = (
        builder.rows(buffer, mlp.width).view(-1, mlp.chosen, mlp.intermediate)
        for buffer in (buffers.activation, buffers.gate, buffers.up)
    )
    gate_up = partial(ExpertsGateUp, source.x, source.norm, mlp, logits)
    tile = tiles["experts_gate_up"]
    if builder.spec.uses("gate_up"):
        builder.add(f"{path}/experts_gate_up+silu", gate_up(activation, tile))
    else:
        builder.add(f"{path}/experts_gate_up", gate_up(gate, tile, up))
        memory = gate.flatten(0, 1), up.flatten(0, 1), activation.flatten(0, 1)
        builder.add(f"{path}/silu", Swiglu(*memory, mlp.clamped or "silu"))
    tile = tiles["experts_down"]
    if len(source.x) == 1:
        weighted = partial(ExpertsDown, activation, mlp, logits, tile=tile)
        builder.add_residual(f"{path}/experts_down", weighted, continued=continued)
        return
    outputs = buffers.expert_outputs
    products = ExpertsDownProducts(activation, mlp, logits, outputs, tile)
    builder.add(f"{path}/experts_down", products)
    combined = partial(ExpertsCombine, outputs, mlp, logits)
    builder.add_residual(f"{path}/experts_combine", combined, continued=continued)
