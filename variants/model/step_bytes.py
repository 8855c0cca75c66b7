"""The bytes one decode step must read: the numerator of every bandwidth figure.

Weights: every parameter once, and the elements and scales of quantised matrices, except that an
embedding table counts one row a sequence. A table tied to the head is read entirely, as the head.
All experts of a mixture are counted.
KV cache: 2 * batch * KV heads * head_dim * element size * positions, summed over the layers, where
positions is the cache length, or the part of it in a layer's sliding window.
"""

from typing import Any

from decodescope.variants.model.quantized_linear import weight_tensors


def weight_bytes_read(model: Any, batch: int) -> int:
    """Bytes of weights that a step for `batch` sequences reads from memory."""
    table = weight_tensors(model.get_input_embeddings())
    head = model.get_output_embeddings()
    read = set() if head is None else {id(tensor) for tensor in weight_tensors(head)}
    looked_up = {id(tensor) for tensor in table} - read
    total = sum(one.nbytes for one in weight_tensors(model) if id(one) not in looked_up)
    return int(total + batch * sum(one.nbytes // len(one) for one in table))


class KvBytes:
    """Bytes of K and V that a step reads at a cache length, from the model's configuration."""

    def __init__(self, config: Any, batch: int, element_bytes: int) -> None:
        decoder = config.get_text_config(decoder=True)
        self._windows = layer_windows(decoder)
        kv_heads = getattr(decoder, "num_key_value_heads", None) or decoder.num_attention_heads
        self._layer_position_bytes = 2 * batch * kv_heads * head_dim(decoder) * element_bytes

    def at(self, position: int) -> int:
        """Bytes read at cache length `position`, all sequences and layers."""
        positions = sum(
            position if window is None else min(position, window - 1) for window in self._windows
        )
        return int(self._layer_position_bytes * positions)


def head_dim(decoder: Any) -> int:
    """Elements of one attention head, from the decoder's configuration."""
    given: int | None = getattr(decoder, "head_dim", None)
    return given or int(decoder.hidden_size) // int(decoder.num_attention_heads)


def layer_windows(decoder: Any) -> tuple[int | None, ...]:
    """Each layer's sliding window in tokens, the new one included; None if it sees all."""
    window: int | None = getattr(decoder, "sliding_window", None)
    types = getattr(decoder, "layer_types", None)
    if types is None:
        return (window,) * int(decoder.num_hidden_layers)
    return tuple(window if kind == "sliding_attention" else None for kind in types)
