"""The arithmetic of one decode step, for dense models.

Matrix products: 2 * batch * weight elements of every matrix that is multiplied. An embedding table
is only looked up; a table tied to the head counts once, as the head.
Attention: 4 * batch * heads * head_dim * positions, summed over the layers: 2 for the scores and 2
for the weighted sum of the values. The positions are those in the cache and the new one, limited to
a layer's sliding window.
Norms, rotary embedding, activations and the softmax are left out: they are memory-bound.
"""

from typing import Any

import torch
from torch import nn

from decodescope.variants.model.quantized_linear import QuantizedEmbedding, QuantizedLinear
from decodescope.variants.model.step_bytes import head_dim, layer_windows


class StepFlops:
    """FLOPs of a step at a cache length; a multiply-add counts as two."""

    def __init__(self, model: Any, batch: int) -> None:
        decoder = model.config.get_text_config(decoder=True)
        self._products = 2 * batch * _multiplied_elements(model)
        self._windows = layer_windows(decoder)
        self._per_position = 4 * batch * int(decoder.num_attention_heads) * head_dim(decoder)

    def at(self, position: int) -> int:
        """FLOPs of the step that decodes at cache length `position`."""
        seen = sum(
            position + 1 if window is None else min(position + 1, window)
            for window in self._windows
        )
        return self._products + self._per_position * seen


def _multiplied_elements(model: nn.Module) -> int:
    """Elements of the weight matrices of all modules but the embedding tables."""
    tables = nn.Embedding | QuantizedEmbedding
    others = (module for module in model.modules() if not isinstance(module, tables))
    weights = (
        module.data if isinstance(module, QuantizedLinear) else getattr(module, "weight", None)
        for module in others
    )
    return sum(
        weight.numel()
        for weight in weights
        if isinstance(weight, torch.Tensor) and weight.dim() == 2
    )
