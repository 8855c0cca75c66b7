"""The costs of a workload: the bytes and FLOPs of each decode step, and the memory of a run.

Bytes of a step are the numerator of every bandwidth figure.
Weights: every parameter once, and the elements and scales of quantised matrices, except that an
embedding table counts one row a sequence. A table tied to the head is read entirely, as the head.
Of a mixture's E experts those are counted that `batch` sequences use in expectation, if each
chooses k of them uniformly: E (1 - (1 - k / E)^batch), which is k of one sequence.
KV cache: 2 * batch * KV heads * head_dim * element size * positions, summed over the layers, where
positions is the cache length, or the part of it in a layer's sliding window. Of latent attention
the latents are counted, of a gated DeltaNet its float32 state, which is read and written.

FLOPs of a step.
Matrix products: 2 * batch * weight elements of every matrix that is multiplied, of a mixture's
experts those that a sequence chooses. An embedding table
is only looked up; a table tied to the head counts once, as the head.
Attention: 4 * batch * heads * head_dim * positions, summed over the layers: 2 for the scores and 2
for the weighted sum of the values. The positions are those in the cache and the new one, limited to
a layer's sliding window. Of a gated DeltaNet: 6 for each element of its state.
Norms, rotary embedding, activations and the softmax are left out: they are memory-bound.

A workload whose memory cannot fit is refused before it is started. On the host nothing else would:
the system ends a process that takes too much without a word.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import MissingRequirement, ModelError, first_line
from decodescope.analyzer.text.formatting import bytes_size
from decodescope.analyzer.text.numbers import is_integer
from decodescope.variants.machine.memory import free_gpu_bytes, free_host_bytes
from decodescope.variants.model.experts import expert_counts, has_experts
from decodescope.variants.model.quantized_weights import (
    QuantizedEmbedding,
    QuantizedLinear,
    dequantized_bytes,
    expert_elements,
    expert_tensors,
    quantization_of,
    weight_tensors,
)
from decodescope.variants.model.quantizing import planned_weights
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.exchange import from_rank_0
from decodescope.variants.parallel.place import ranks_here
from decodescope.variants.spec import VariantSpec

_LESS = "lower --batch, --context or --tokens, or choose a smaller model"
_NARROW = VariantSpec("fused", weight_format="fp8_e4m3")
# CPython: an entry of a list and its integer. Ids of the prompt and the output become lists.
_LISTED_ID_BYTES = 36
_FP32_BYTES = 4
_TABLES = nn.Embedding | QuantizedEmbedding


def weight_bytes_read(model: Any, batch: int) -> int:
    """Bytes of weights that a step for `batch` sequences reads from memory."""
    modules = (module for module in model.modules() if isinstance(module, _TABLES))
    table = [tensor for module in modules for tensor in weight_tensors(module)]
    head = model.get_output_embeddings()
    read = set() if head is None else {id(tensor) for tensor in weight_tensors(head)}
    looked_up = {id(tensor) for tensor in table} - read
    experts, (count, chosen) = (
        {id(tensor) for tensor in expert_tensors(model)},
        expert_counts(model.config),
    )
    read_share = expected_experts(count, chosen, batch) / count
    total = sum(
        weight.nbytes * (read_share if id(weight) in experts else 1)
        for weight in weight_tensors(model)
        if id(weight) not in looked_up
    )
    return int(total + batch * sum(part.nbytes // len(part) for part in table))


def expected_experts(count: int, chosen: int, batch: int) -> Fraction:
    """Of `count` experts, those that `batch` sequences use if each chooses uniformly."""
    return count * (1 - (1 - Fraction(chosen, count)) ** batch)


class KvBytes:
    """Bytes of K and V that a step reads at a cache length, from the model's configuration."""

    def __init__(self, config: Any, batch: int, element_bytes: int) -> None:
        decoder = config.get_text_config(decoder=True)
        self._layers = _attention_layers(decoder)
        shared = getattr(decoder, "num_kv_shared_layers", None) or 0
        self._with_cache = self._layers[: len(self._layers) - shared]
        self._element_bytes = batch * element_bytes
        self._state_bytes = 2 * _FP32_BYTES * batch * sum(each.state for each in self._layers)

    def at(self, position: int) -> int:
        """Bytes read at cache length `position`, all sequences and layers."""
        return self._bytes(self._layers, position)

    def kept(self, position: int) -> int:
        """As `at`, but without the layers that read the K and V of an earlier one (Gemma 4)."""
        return self._bytes(self._with_cache, position)

    def _bytes(self, layers: Sequence["_Attention"], position: int) -> int:
        elements = (each.kv_elements * each.cached(position) for each in layers)
        return self._element_bytes * sum(elements) + self._state_bytes


@dataclass(frozen=True, slots=True)
class _Attention:
    """The attention of one layer, by its elements for one position: those in the cache, and those
    of K and V that all heads of Q are multiplied by; and by those of its recurrent state."""

    window: int | None
    kv_elements: int
    products: int
    state: int = 0

    def cached(self, position: int) -> int:
        """Positions before `position` that a query sees."""
        return position if self.window is None else min(position, self.window - 1)


def _attention_layers(decoder: Any) -> tuple[_Attention, ...]:
    """Every layer's attention, from the decoder's configuration: some families have other heads in
    some layers. Of latent attention the cache holds a latent, and a part of K that is rotated."""
    layers = []
    kinds = getattr(decoder, "layer_types", None) or [""] * int(decoder.num_hidden_layers)
    windows = layer_windows(decoder)
    for config, window, kind in zip(layer_configs(decoder), windows, kinds, strict=True):
        if kind == "linear_attention":
            state = config.linear_num_value_heads * config.linear_value_head_dim
            layers.append(_Attention(None, 0, 0, state * config.linear_key_head_dim))
            continue
        heads, width = int(config.num_attention_heads), 2 * head_dim(config)
        kv_elements = (getattr(config, "num_key_value_heads", None) or heads) * width
        if latent := getattr(config, "kv_lora_rank", None):
            kv_elements = latent + config.qk_rope_head_dim
            width = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
        layers.append(_Attention(window, int(kv_elements), heads * int(width)))
    return tuple(layers)


def has_delta_net(decoder: Any) -> bool:
    """Whether the layers without K and V are those of a gated DeltaNet, whose states are known."""
    return hasattr(decoder, "linear_num_value_heads")


def layer_configs(decoder: Any) -> Sequence[Any]:
    """The configuration of each layer: in some families, some have other heads."""
    layers: Sequence[Any] | None = getattr(decoder, "per_layer_config", None)
    return [decoder] * int(decoder.num_hidden_layers) if layers is None else layers


def head_dim(decoder: Any) -> int:
    """Elements of one attention head, from the decoder's configuration."""
    elements: int | None = getattr(decoder, "head_dim", None)
    return elements or int(decoder.hidden_size) // int(decoder.num_attention_heads)


def layer_windows(decoder: Any) -> tuple[int | None, ...]:
    """Each layer's sliding window in tokens, the new one included; None if it sees all."""
    windows = [getattr(config, "sliding_window", None) for config in layer_configs(decoder)]
    types = getattr(decoder, "layer_types", None) or ["sliding_attention"] * len(windows)
    kinds = zip(windows, types, strict=True)
    return tuple(window if kind == "sliding_attention" else None for window, kind in kinds)


class StepFlops:
    """FLOPs of a step at a cache length; a multiply-add counts as two."""

    def __init__(self, model: Any, batch: int) -> None:
        self._products = 2 * batch * _multiplied_elements(model)
        self._layers = _attention_layers(model.config.get_text_config(decoder=True))
        self._batch = batch

    def at(self, position: int) -> int:
        """FLOPs of the step that decodes at cache length `position`."""
        elements = (
            each.products * (each.cached(position) + 1) + 3 * each.state for each in self._layers
        )
        return self._products + 2 * self._batch * sum(elements)


def _multiplied_elements(model: nn.Module) -> int:
    """Elements of the weight matrices of all modules but the embedding tables, that one sequence
    is multiplied by."""
    modules = [module for module in model.modules() if not isinstance(module, _TABLES)]
    weights = (getattr(module, "weight", None) for module in modules)
    narrow = (module.elements for module in modules if isinstance(module, QuantizedLinear))
    count, chosen = expert_counts(model.config)
    return (
        expert_elements(model) * chosen // count
        + sum(narrow)
        + sum(
            weight.numel()
            for weight in weights
            if isinstance(weight, torch.Tensor) and weight.dim() == 2
        )
    )


def require_memory(
    name: str,
    model: Any,
    workload: DecodeWorkload,
    device: str,
    weight_bytes: int,
    spec: VariantSpec | None = None,
) -> None:
    """Compare the least memory that `workload` needs with the free memory of `device` and the host.

    It counts `weight_bytes`, which are still to be loaded, or their size once they are quantised as
    `spec` says; K and V of every position, as `spec` stores them; the logits, also in fp32; the
    widest activations of the prefill, and the largest quantised matrix in the model's dtype; and on
    the host the lists of token ids. Quantising itself needs the weights as they are loaded and one
    layer. Each rank has a GPU; ranks on a CPU share its memory, which is read before any loads.

    Raises:
        MissingRequirement: it does not fit; says what is needed and what is free.
        ModelError: an architecture whose K and V cannot be counted.
    """
    try:
        need = _need(name, model, workload, weight_bytes, spec)
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(
            f"{name}: the K and V that a model of type {model.config.model_type} reads cannot be "
            f"counted ({first_line(error)}); only models whose configuration names their heads can "
            "be decoded"
        ) from error
    on_host = _LISTED_ID_BYTES * workload.batch * workload.cache_length
    sharing, on_ranks, advice = 1, "", _LESS
    if device == "cuda":
        needs = [
            ("GPU memory", need.on_device, free_gpu_bytes()),
            ("memory", on_host, free_host_bytes()),
        ]
    else:
        ranks = split_of(model).ranks
        sharing, free = ranks_here(ranks), from_rank_0(free_host_bytes(), ranks)
        if sharing > 1:
            on_ranks, advice = f" by {sharing} ranks, each of them", f"lower --tp, or {_LESS}"
        needs = [("memory", need.on_device + on_host, free)]
    for memory, needed, free in needs:
        if free is not None and sharing * needed > free:
            weights = bytes_size(max(need.stored, 0))
            if need.quantising and weight_bytes:
                weights = f"{bytes_size(weight_bytes)}, quantised {weights}"
            if experts := sum(tensor.nbytes for tensor in expert_tensors(model)):
                weights += f", experts {bytes_size(experts)} of them"
            if sharing == 1 and needed >= need.on_device:
                others = needed - need.on_device
                advice = _what_fits(name, model, workload, device, spec, free, others)
            raise MissingRequirement(
                f"not enough {memory} for {name} in {workload.dtype}: batch {workload.batch:,} of "
                f"{workload.cache_length:,} positions needs at least {bytes_size(sharing * needed)}"
                f"{on_ranks} (weights {weights}, K and V {bytes_size(need.kv)}), "
                f"{bytes_size(free)} are free; {advice}"
            )


@dataclass(frozen=True, slots=True)
class _Need:
    """Bytes that a workload needs: of its weights, of K and V, and of all on the device. While
    weights are quantised it is `quantising`, 0 if none are."""

    stored: int
    kv: int
    on_device: int
    quantising: int


def _need(
    name: str, model: Any, workload: DecodeWorkload, weight_bytes: int, spec: VariantSpec | None
) -> _Need:
    size = 1 if spec and spec.kv_format else model.dtype.itemsize
    kv = KvBytes(model.config, workload.batch, size).kept(workload.cache_length)
    planned, quantising = model, 0
    if (quantization := quantization_of(spec)) is not None:
        planned = planned_weights(name, model, quantization)
        quantising = weight_bytes + model_bytes(model.model.layers[0])
    stored = weight_bytes + model_bytes(planned) - model_bytes(model)
    prefill = _activation_bytes(model, workload) + dequantized_bytes(planned)
    return _Need(stored, kv, max(stored + kv + prefill, quantising), quantising)


def _what_fits(
    name: str,
    model: Any,
    workload: DecodeWorkload,
    device: str,
    spec: VariantSpec | None,
    free: int,
    on_host: int,
) -> str:
    """The advice if a workload, and `on_host` bytes beside it, do not fit in `free` bytes: another
    format, if one fits."""
    if model.device.type != "meta":
        return _LESS
    others = []
    if model.dtype == torch.float32:
        others.append(("--dtype bf16", deepcopy(model).to(torch.bfloat16), spec))
    layered = hasattr(getattr(model, "model", None), "layers")
    if device == "cuda" and layered and quantization_of(spec) is None:
        others.append(("--variant fp8 (if the fused kernels run this model)", model, _NARROW))
    fitting = [
        words
        for words, other, how in others
        if _need(name, other, workload, model_bytes(other), how).on_device + on_host <= free
    ]
    if all(model_bytes(each) > free for each in (model, *(other for _, other, _ in others))):
        return "no format fits; choose a smaller model"
    return ", ".join((*fitting, _LESS))


def model_bytes(model: Any) -> int:
    """Bytes of the weights of `model`, which may be without memory; tied ones count once, and a
    tensor that is a part of another not at all."""
    tensors = weight_tensors(model)
    ends: dict[int, int] = {}
    total = 0
    for weight in sorted(tensors, key=torch.Tensor.storage_offset):
        memory = weight.untyped_storage()._cdata
        first = int(weight.storage_offset()) * weight.itemsize
        counted = max(first, ends.get(memory, 0))
        ends[memory] = max(counted, first + weight.nbytes)
        total += ends[memory] - counted
    return total


def _activation_bytes(model: Any, workload: DecodeWorkload) -> int:
    decoder = model.config.get_text_config(decoder=True)
    size: int = model.dtype.itemsize
    logits = int(decoder.vocab_size) * (size + _FP32_BYTES)
    # A layer reads the residual stream and writes the new one; an MLP multiplies gate and up.
    widths = 2 * int(decoder.hidden_size)
    if not has_experts(decoder):
        intermediate = getattr(decoder, "intermediate_size", None)
        widths += 2 * intermediate if is_integer(intermediate) else 0
    return workload.batch * (logits + widths * size * workload.context)
