"""A transformers model as the fused kernels read it: matrices, norms, windows and rotary tables.

Q, K and V, and gate and up, are read as one matrix each. Nothing is stored twice: the parts are
copied into one matrix, and the model's own parameters, or the elements and scales of its quantised
modules, become views of its rows.

The rotary tables have the rotations at each position, taken from the model's own rotary module.
Most RoPE types have fixed frequencies. Two change them with the sequence length: `longrope` (long
factors once it exceeds the original one) and `dynamic` (other frequencies at every length beyond
the original one). A decode step at position p has sequence length p + 1, so row p of the table is
the module's rotation for that length. Rows of the prompt are not used: prefill rotates those keys
itself, with the frequencies of the prompt's length.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix
from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.model.quantized_weights import QuantizedMatrix
from decodescope.variants.model.workload_costs import layer_windows


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """down(silu(gate) * up); `gate_up` holds the gate rows first."""

    gate_up: WeightMatrix
    down: WeightMatrix

    @property
    def width(self) -> int:
        """Elements between the two halves of the MLP of a token."""
        return self.down.columns

    @property
    def matrices(self) -> tuple[WeightMatrix, ...]:
        return self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """One decoder layer.

    `qkv` holds the rows of all Q heads, then all K heads, then all V heads. `window` is the number
    of tokens a query sees, its own included; None: all.
    """

    input_norm: Norm
    qkv: WeightMatrix
    qk_norm: QkNorm | None
    o: WeightMatrix
    post_attention_norm: Norm
    mlp: DenseMlp | Experts
    window: int | None

    @property
    def matrices(self) -> tuple[WeightMatrix, ...]:
        return self.qkv, self.o, *self.mlp.matrices


@dataclass(frozen=True, slots=True)
class FusedModel:
    """A whole decoder. `embedding` is the table [vocabulary, hidden]; if they are tied, `head`
    reads the same memory. `scale` multiplies q·k before the softmax."""

    embedding: WeightMatrix
    layers: tuple[FusedLayer, ...]
    final_norm: Norm
    head: WeightMatrix
    heads: int
    kv_heads: int
    head_dim: int
    scale: float

    @property
    def dtype(self) -> torch.dtype:
        return self.final_norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.final_norm.weight.device

    @property
    def hidden(self) -> int:
        return self.embedding.columns

    @property
    def intermediate(self) -> int:
        return self.layers[0].mlp.width

    @property
    def experts(self) -> int:
        """Experts of a layer; 0 if its MLP is dense."""
        mlp = self.layers[0].mlp
        return mlp.count if isinstance(mlp, Experts) else 0

    @property
    def vocab(self) -> int:
        return self.head.rows


def fused_model(model: Any) -> FusedModel:
    """The parts of a causal language model that the fused kernels support (`support`).

    On first use this moves the model's Q/K/V and gate/up weights into merged matrices, a layer at a
    time: values, parameters and total memory stay the same, addresses change. A CUDA graph that was
    captured before must not be used afterwards. A second call moves nothing.

    Raises:
        ModelError: Q, K and V, or gate and up, of a layer are not stored in one format.
    """
    decoder = model.model
    windows = layer_windows(model.config)
    layers = tuple(map(_layer, decoder.layers, windows))
    if model.device.type == "cuda":
        # The old memory fits no other layer's matrix: as much as the model would stay reserved.
        torch.cuda.empty_cache()
    attention = decoder.layers[0].self_attn
    return FusedModel(
        embedding=_matrix(decoder.embed_tokens),
        layers=layers,
        final_norm=_norm(decoder.norm),
        head=_matrix(model.lm_head),
        heads=int(model.config.num_attention_heads),
        kv_heads=int(model.config.num_key_value_heads),
        head_dim=int(attention.head_dim),
        scale=float(attention.scaling),
    )


def _layer(layer: Any, window: int | None) -> FusedLayer:
    attention = layer.self_attn
    return FusedLayer(
        input_norm=_norm(layer.input_layernorm),
        qkv=_matrix(attention.q_proj, attention.k_proj, attention.v_proj),
        qk_norm=_qk_norm(attention),
        o=_matrix(attention.o_proj),
        post_attention_norm=_norm(layer.post_attention_layernorm),
        mlp=_mlp(layer.mlp),
        window=window,
    )


def _mlp(module: Any) -> DenseMlp | Experts:
    if not hasattr(module, "experts"):
        return DenseMlp(_matrix(module.gate_proj, module.up_proj), _matrix(module.down_proj))
    gate_up, down = module.experts.gate_up_proj.detach(), module.experts.down_proj.detach()
    return Experts(
        router=WeightMatrix(module.gate.weight.detach()),
        gate_up=WeightMatrix(gate_up.flatten(0, 1)),
        down=WeightMatrix(down.flatten(0, 1)),
        chosen=int(module.gate.top_k),
        # Mixtral's router has no such field and always divides.
        normalized=bool(getattr(module.gate, "norm_topk_prob", True)),
    )


def _norm(module: Any) -> Norm:
    return Norm(module.weight.detach(), float(module.variance_epsilon))


def _qk_norm(attention: Any) -> QkNorm | None:
    if not hasattr(attention, "q_norm"):
        return None
    q, k = _norm(attention.q_norm), _norm(attention.k_norm)
    return QkNorm(q.weight, k.weight, q.eps)


def _matrix(*modules: nn.Module) -> WeightMatrix:
    """All outputs of linear modules, in order, as one matrix; or an embedding table."""
    biases = [bias for part in modules if (bias := getattr(part, "bias", None)) is not None]
    bias = torch.cat(biases) if biases else None
    formats = {part.stored if isinstance(part, QuantizedMatrix) else None for part in modules}
    if len(formats) > 1:
        names = ", ".join(str(format[0]) if format else "the run dtype" for format in formats)
        raise ModelError(
            f"matrices of {names} in one layer, which the fused kernels read as one matrix; "
            "choose eager or compiled, or name the quantized format in the variant"
        )
    if formats == {None}:
        return WeightMatrix(_merged(modules, "weight"), bias=bias)
    scaled = all(part.scale is not None for part in modules)
    return WeightMatrix(
        _merged(modules, "data"), _merged(modules, "scale") if scaled else None, bias
    )


def _merged(modules: Sequence[nn.Module], name: str) -> torch.Tensor:
    """The tensors `name` of `modules` in one; they are, or become, views of it."""
    tensors: list[torch.Tensor] = [getattr(part, name) for part in modules]
    parts = [tensor.detach() for tensor in tensors]
    rows = [part.shape[0] for part in parts]
    if _are_consecutive(parts):
        first = parts[0]
        shape = (sum(rows), *first.shape[1:])
        return first.as_strided(shape, first.stride(), first.storage_offset())
    merged = torch.cat(parts)
    for tensor, view in zip(tensors, torch.split(merged, rows), strict=True):
        tensor.data = view
    return merged


def _are_consecutive(parts: Sequence[torch.Tensor]) -> bool:
    """Whether each part begins where the previous one ends, in the same storage."""
    storage = parts[0].untyped_storage().data_ptr()
    offset = parts[0].storage_offset()
    for part in parts:
        same_storage = part.untyped_storage().data_ptr() == storage
        if not same_storage or part.storage_offset() != offset or not part.is_contiguous():
            return False
        offset += part.numel()
    return True


def rope_table(model: Any, positions: int, device: torch.device | str) -> RopeTable:
    """cos and sin [positions, head_dim / 2] of decode steps at positions 0, 1, ..., in order.

    float32, although the model rounds them to its dtype; attention scaling is multiplied in. The
    model's rotary module does not change: it keeps the lengths that it has seen.
    """
    rotary = copy.deepcopy(model.model.rotary_emb).to(device)
    half = int(model.model.layers[0].self_attn.head_dim) // 2
    cos = torch.empty(positions, half, dtype=torch.float32, device=device)
    sin = torch.empty_like(cos)
    # A length of 1 resets a dynamic module to its original frequencies.
    _rotation(rotary, range(1), device)
    for span in _spans(rotary, positions):
        rows = slice(span.start, span.stop)
        cos[rows], sin[rows] = (table[:, :half] for table in _rotation(rotary, span, device))
    return RopeTable(cos, sin)


def _rotation(
    rotary: Any, span: range, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [len(span), head_dim], both halves equal, at sequence length `span.stop`."""
    like = torch.empty(0, dtype=torch.float32, device=device)
    positions = torch.arange(span.start, span.stop, device=device)[None]
    # `forward` itself: the copy carries the module's hooks, which trace the model's steps.
    cos, sin = rotary.forward(like, positions)
    return cos[0], sin[0]


def _spans(rotary: Any, positions: int) -> Iterator[range]:
    """The positions in ranges whose rows are all right at the length of the range's last step."""
    if "dynamic" in rotary.rope_type:
        fixed = min(positions, int(rotary.original_max_seq_len))
        yield range(fixed)
        yield from (range(position, position + 1) for position in range(fixed, positions))
    elif rotary.rope_type == "longrope":
        original = int(rotary.config.rope_parameters["original_max_position_embeddings"])
        yield range(min(positions, original))
        if positions > original:
            yield range(original, positions)
    else:
        yield range(positions)
