"""The MLP of a layer, dense or a mixture of experts."""

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer
from decodescope.variants.steps.fused.lowering.builder import Source, StepBuilder, row_blocks

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
        _experts(builder, path, source, mlp)
    else:
        activation = _gated(builder, path, source, mlp)
        memory = activation, mlp.down, builder.tiles.of("down")
        builder.add_product(f"{path}/down_proj", *memory, layer.mlp_output_norm, norm_path)


def _gated(builder: StepBuilder, path: str, source: Source, mlp: DenseMlp) -> torch.Tensor:
    """The activation that the down projection reads."""
    tile, buffers = builder.tiles.of("gate_up"), builder.buffers
    activation = builder.rows(buffers.activation, mlp.width)
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


def _experts(builder: StepBuilder, path: str, source: Source, mlp: Experts) -> None:
    """The router's product, and launches in which every program finds its experts itself. Those of
    a batch leave the sum over a token's experts to a launch of its own."""
    buffers, tiles = builder.buffers, builder.tiles
    logits = next(builder.router_logits)
    builder.linear(f"{path}/router", source, mlp.router, logits, tiles.of("router"))
    activation = builder.rows(buffers.activation, mlp.width).view(-1, mlp.chosen, mlp.intermediate)
    tile = tiles.of("experts_gate_up")
    gated = ExpertsGateUp(source.x, source.norm, mlp, logits, activation, tile)
    builder.add(f"{path}/experts_gate_up+silu", gated)
    tile = tiles.of("experts_down")
    if len(source.x) == 1:
        weighted = ExpertsDown(activation, mlp, logits, buffers.x, tile)
        builder.add(f"{path}/experts_down+residual", weighted)
        return
    outputs = buffers.expert_outputs
    products = ExpertsDownProducts(activation, mlp, logits, outputs, tile)
    builder.add(f"{path}/experts_down", products)
    combined = ExpertsCombine(outputs, mlp, logits, buffers.x)
    builder.add(f"{path}/experts_combine+residual", combined)
