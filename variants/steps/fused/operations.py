"""The operations of one decode step, in their order: 5 a layer and 2 with every fusion.

The norms of a batch are launches of their own, and those of a token before INT4 weights: 7 a layer
and 3. With E4M3 activations (`w8a8`) a launch before each product quantises what it reads, and
applies the norm: 9 a layer and 3. A mixture of experts has a launch more a layer, its router; an
expert of all tokens two, and with norms of its own (Gemma 4) four. Inputs of each layer have four a
layer and three before the first.
"""

from decodescope.kernels.ops.embedding import Embed
from decodescope.variants.steps.fused.lowering.attention import lower_attention
from decodescope.variants.steps.fused.lowering.builder import StepBuilder
from decodescope.variants.steps.fused.lowering.head import lower_head
from decodescope.variants.steps.fused.lowering.layer_inputs import lower_all_inputs, lower_input
from decodescope.variants.steps.fused.lowering.mlp import lower_mlp
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import PlacedOperation


def step_operations(plan: StepPlan, keep_logits: bool = False) -> tuple[PlacedOperation, ...]:
    """The operations that decode the token at the device's position: they write the next token
    behind it and move the position on by one. With `keep_logits` the logits stay in their buffer.
    """
    builder, parts, buffers = StepBuilder(plan), plan.parts, plan.buffers
    embed = Embed(parts.embedding, buffers.tokens, buffers.position, buffers.x)
    builder.add("model/embedding", embed)
    if not plan.spec.uses("attention"):
        builder.call("model/embedding", plan.visible.update, buffers.position)
    if parts.layer_inputs is not None:
        lower_all_inputs(builder, parts.layer_inputs)
    for index, layer in enumerate(parts.layers):
        lower_attention(builder, f"model/layer.{index}", index, layer)
        lower_mlp(builder, f"model/layer.{index}", layer)
        if layer.own_input is not None:
            lower_input(builder, f"model/layer.{index}", index, layer, layer.own_input)
    lower_head(builder, keep_logits)
    return tuple(builder.operations)


def weight_bytes(operations: tuple[PlacedOperation, ...]) -> int:
    """Bytes of weights that the operations read, each tensor once."""
    tensors = [tensor for placed in operations for tensor in placed.operation.weights]
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())
