"""The memory that a workload needs, so that one that cannot fit is refused before it is started.

On the host nothing else would: the system ends a process that takes too much without a word.
"""

from typing import Any

from decodescope.analyzer.errors import MissingRequirement, ModelError, first_line
from decodescope.analyzer.text.formatting import bytes_size
from decodescope.variants.machine.memory import free_gpu_bytes, free_host_bytes
from decodescope.variants.model.quantize import (
    dequantized_bytes,
    quantization_of,
    quantized_bytes,
)
from decodescope.variants.model.quantized_linear import weight_tensors
from decodescope.variants.model.step_bytes import KvBytes
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec

# CPython: an entry of a list and its integer. Ids of the prompt and the output become lists.
_LISTED_ID_BYTES = 36
_FP32_BYTES = 4
# Configurations of mixtures of experts, which compute the tokens of one expert at a time.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def require_memory(
    name: str,
    model: Any,
    workload: DecodeWorkload,
    device: str,
    weight_bytes: int,
    spec: VariantSpec | None = None,
) -> None:
    """Compare what `workload` needs at least with what is free on `device` and on the host.

    Counted are `weight_bytes`, which are still to be loaded, and what quantising as `spec` says
    makes of them; K and V of every position, as `spec` stores them; the logits, also in fp32; the
    widest activations of the prefill, and the largest quantised matrix in the model's dtype; and on
    the host the lists of token ids. Quantising itself needs the weights as they are loaded and one
    layer.

    Raises:
        MissingRequirement: it does not fit; says what is needed and what is free.
        ModelError: an architecture whose K and V cannot be counted.
    """
    try:
        size = (spec and spec.kv_bytes) or model.dtype.itemsize
        kv = KvBytes(model.config, workload.batch, size).at(workload.cache_length)
        stored, quantising = weight_bytes, 0
        if (quantization := quantization_of(spec)) is not None:
            stored += quantized_bytes(model, quantization) - model_bytes(model)
            quantising = weight_bytes + model_bytes(model.model.layers[0])
        prefill = _activation_bytes(model, workload) + dequantized_bytes(model, quantization)
        on_device = max(stored + kv + prefill, quantising)
    except (AttributeError, TypeError) as error:
        raise ModelError(
            f"{name}: the K and V that a model of type {model.config.model_type} reads cannot be "
            f"counted ({first_line(error)}); only models whose layers all have the same heads can "
            "be decoded"
        ) from error
    weights = bytes_size(max(stored, 0))
    if quantising and weight_bytes:
        weights = f"{bytes_size(weight_bytes)}, quantised {weights}"
    on_host = _LISTED_ID_BYTES * workload.batch * workload.cache_length
    if device == "cuda":
        needs = [
            ("GPU memory", on_device, free_gpu_bytes()),
            ("memory", on_host, free_host_bytes()),
        ]
    else:
        needs = [("memory", on_device + on_host, free_host_bytes())]
    for what, needed, free in needs:
        if free is not None and needed > free:
            raise MissingRequirement(
                f"not enough {what} for {name} in {workload.dtype}: batch {workload.batch:,} of "
                f"{workload.cache_length:,} positions needs at least {bytes_size(needed)} (weights "
                f"{weights}, K and V {bytes_size(kv)}), {bytes_size(free)} are free; lower "
                "--batch, --context or --tokens, or choose a smaller model"
            )


def model_bytes(model: Any) -> int:
    """Bytes of the weights of `model`, which may be without memory; tied ones count once."""
    return sum(weight.nbytes for weight in weight_tensors(model))


def _activation_bytes(model: Any, workload: DecodeWorkload) -> int:
    decoder = model.config.get_text_config(decoder=True)
    size: int = model.dtype.itemsize
    logits = int(decoder.vocab_size) * (size + _FP32_BYTES)
    # A layer reads the residual stream and writes the new one; an MLP multiplies gate and up.
    widths = 2 * int(decoder.hidden_size)
    if not any(hasattr(decoder, name) for name in _EXPERTS):
        intermediate = getattr(decoder, "intermediate_size", None)
        widths += 2 * intermediate if isinstance(intermediate, int) else 0
    return workload.batch * (logits + widths * size * workload.context)
