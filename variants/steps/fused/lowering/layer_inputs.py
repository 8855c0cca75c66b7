"""A vector of each token for each layer (Gemma 4 E2B), which a gate multiplies behind the MLP."""

from decodescope.kernels.ops.embedding import Embed
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.variants.steps.fused.blocks import DenseMlp, FusedLayer, LayerInputs
from decodescope.variants.steps.fused.lowering.builder import Behind, Source, StepBuilder


def lower_all_inputs(builder: StepBuilder, inputs: LayerInputs) -> None:
    """The vectors of all layers: rows of a table, and normed products with the embedding."""
    path, buffers = "model/embedding/layer_inputs", builder.buffers
    out, projected = buffers.layer_inputs, buffers.projected_inputs
    builder.add(f"{path}/embedding", Embed(inputs.table, buffers.tokens, buffers.position, out))
    x, tile = Source(buffers.x), builder.tiles["layer_inputs"]
    builder.linear(f"{path}/up_proj", x, inputs.projection, projected, tile)
    projected, out = (one.view(-1, inputs.width) for one in (projected, out))
    builder.add(f"{path}/norm", RmsNormResidual(projected, out, None, None, inputs.norm))


def lower_input(
    builder: StepBuilder, path: str, index: int, layer: FusedLayer, own: DenseMlp
) -> None:
    """x + norm(projection(gelu(gate(x)) * input)), times the layer's factor, for layer `index`."""
    buffers, tiles = builder.buffers, builder.tiles
    norm_path, path = f"{path}/post_input_norm", f"{path}/layer_input"
    builder.add_left()
    source = builder.quantized(f"{path}/quantize", Source(buffers.x), own.gate_up)
    gated = buffers.input_gate
    builder.linear(f"{path}/gate_proj", source, own.gate_up, gated, tiles["input_gate"])
    inputs = buffers.layer_inputs.view(len(gated), -1, gated.shape[1])[:, index]
    builder.add(f"{path}/gelu", Swiglu(gated, inputs, gated, own.activation))
    behind = Behind(norm_path, layer.own_input_norm, layer.factor)
    tile = tiles["input_projection"]
    builder.add_product(f"{path}/down_proj", gated, own.down, tile, behind)
