"""The MLP of a layer, dense or a mixture of experts."""

from collections.abc import Callable
from functools import partial

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import ResidualOperation
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp
from decodescope.kernels.ops.linear_residual import LinearResidual
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, MixtureNorms
from decodescope.variants.steps.fused.lowering.builder import (
    Behind,
    Source,
    StepBuilder,
    row_blocks,
)
from decodescope.variants.steps.fused.torch_operators import scale_by_sigmoid

_NORM = "post_attention_norm"


def lower_mlp(builder: StepBuilder, path: str, layer: FusedLayer) -> None:
    """The operations of the MLP of the next layer, under `path`."""
    if layer.mixture_norms is not None:
        _beside(builder, path, layer, layer.mixture_norms)
        return
    mlp = layer.mlp
    first, experts = (mlp.router, True) if isinstance(mlp, Experts) else (mlp.gate_up, False)
    if layer.parallel:
        source = builder.kept(f"{path}/mlp", first)
    else:
        source = builder.normed(f"{path}/{_NORM}", layer.mlp_norm, first, experts)
    norm_path = f"{path}/post_mlp_norm"
    path += "/mlp" if source.norm is None else f"/{_NORM}+mlp"
    if isinstance(mlp, Experts):
        _mixture(builder, path, source, mlp, layer)
    else:
        memory_of = builder.buffers.activation, builder.tiles["gate_up"]
        activation = _gated(builder, path, source, mlp, *memory_of)
        factor = layer.factor if layer.own_input is None else None
        behind = Behind(norm_path, layer.mlp_output_norm, factor)
        tile = builder.tiles["down"]
        builder.add_product(f"{path}/down_proj", activation, mlp.down, tile, behind)


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


def _beside(builder: StepBuilder, path: str, layer: FusedLayer, norms: MixtureNorms) -> None:
    """The experts, then the MLP beside them, each after a norm of its own; the sum of their norms
    is left in `added`."""
    mlp, shared = layer.mlp, layer.shared
    assert isinstance(mlp, Experts)
    assert shared is not None
    buffers, tiles, own_path = builder.buffers, builder.tiles, f"{path}/mlp"
    shared_path = f"{own_path}/shared_expert"
    source = builder.normed(f"{own_path}/router_norm", norms.router, mlp.router)
    logits = _routed(builder, own_path, source, mlp)
    source = builder.normed(f"{path}/{_NORM}", layer.mlp_norm, mlp.gate_up, experts=True)
    path_of_sum, summed = _used(builder, own_path, source, mlp, logits)
    builder.add_sum(path_of_sum, summed, buffers.beside, adds=False)
    source = builder.normed(f"{shared_path}/input_norm", norms.shared, shared.gate_up)
    memory = buffers.shared, tiles["shared_gate_up"]
    activation = _gated(builder, shared_path, source, shared, *memory)
    tile, workspace = tiles["shared_down"], builder.plan.workspace
    down = partial(LinearResidual, activation, shared.down, tile=tile, workspace=workspace)
    builder.add_sum(f"{shared_path}/down_proj", down, buffers.added, adds=False)
    output = RmsNorm(buffers.added, norms.shared_output, buffers.added)
    builder.add(f"{shared_path}/output_norm", output)
    experts_output = buffers.beside, buffers.added, None, None, norms.experts_output
    builder.add(f"{own_path}/output_norm", RmsNormResidual(*experts_output))
    behind = Behind(f"{path}/post_mlp_norm", layer.mlp_output_norm, layer.factor)
    builder.leave(f"{own_path}/residual", behind)


def _experts(
    builder: StepBuilder, path: str, source: Source, mlp: Experts, continued: bool = False
) -> None:
    """The router's product, and launches in which every program finds its experts itself. Those of
    a batch leave the sum over a token's experts to a launch of its own."""
    logits = _routed(builder, path, source, mlp)
    builder.add_residual(*_used(builder, path, source, mlp, logits), continued=continued)


def _routed(builder: StepBuilder, path: str, source: Source, mlp: Experts) -> torch.Tensor:
    """The router's logits [batch, experts]."""
    tiles, logits = builder.tiles, next(builder.router_logits)
    if len(source.x) == 1:
        builder.linear(f"{path}/router", source, mlp.router, logits, tiles["router"])
    else:
        # Its few rows leave most multiprocessors without work unless programs share them.
        shared = tiles["router"], builder.plan.workspace, source.scale
        router = LinearResidual(source.x, mlp.router, logits, *shared, adds=False)
        builder.add(f"{path}/router", router)
    return logits


def _used(
    builder: StepBuilder, path: str, source: Source, mlp: Experts, logits: torch.Tensor
) -> tuple[str, Callable[..., ResidualOperation]]:
    """The experts that the tokens use, up to the operation that adds their weighted sum: its path,
    and what makes it."""
    buffers, tiles = builder.buffers, builder.tiles
    activation, gate, up = (
        builder.rows(buffer, mlp.width).view(-1, mlp.chosen, mlp.intermediate)
        for buffer in (buffers.activation, buffers.gate, buffers.up)
    )
    function = "gelu" if mlp.activation == "gelu_tanh" else "silu"
    gate_up = partial(ExpertsGateUp, source.x, source.norm, mlp, logits)
    tile = tiles["experts_gate_up"]
    if builder.spec.uses("gate_up"):
        builder.add(f"{path}/experts_gate_up+{function}", gate_up(activation, tile))
    else:
        builder.add(f"{path}/experts_gate_up", gate_up(gate, tile, up))
        memory = gate.flatten(0, 1), up.flatten(0, 1), activation.flatten(0, 1)
        builder.add(f"{path}/{function}", Swiglu(*memory, mlp.activation))
    tile = tiles["experts_down"]
    if len(source.x) == 1:
        return f"{path}/experts_down", partial(ExpertsDown, activation, mlp, logits, tile=tile)
    outputs = buffers.expert_outputs
    products = ExpertsDownProducts(activation, mlp, logits, outputs, tile)
    builder.add(f"{path}/experts_down", products)
    return f"{path}/experts_combine", partial(ExpertsCombine, outputs, mlp, logits)
