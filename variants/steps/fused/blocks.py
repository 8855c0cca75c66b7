"""A decoder as the fused kernels read it: its blocks, with their matrices, norms and windows."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch

from decodescope.kernels.host.activation import Activation
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """down(activation(gate) * up); `gate_up` holds the gate rows first."""

    gate_up: WeightMatrix
    down: WeightMatrix
    activation: Activation = "silu"

    @property
    def width(self) -> int:
        """Elements between the two halves of the MLP of a token."""
        return self.down.columns

    @property
    def matrices(self) -> tuple[WeightMatrix, ...]:
        return self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """The inputs of all layers [layers, width]: row of `table` + norm(projection(embedding))."""

    table: WeightMatrix
    projection: WeightMatrix
    norm: Norm

    @property
    def width(self) -> int:
        return len(self.norm.weight)


@dataclass(frozen=True, slots=True)
class MixtureNorms:
    """Norms of a layer whose router and shared MLP do not read what its experts read (Gemma 4).

    Each reads the residual stream after its own. The results of experts and shared MLP have norms
    before they are added up.
    """

    router: Norm
    shared: Norm
    experts_output: Norm
    shared_output: Norm


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """One decoder layer. Norms are before its two parts, after them (before what they give is added
    to the residual stream), or both.

    `qkv` holds the rows of all Q heads, then all K heads, then all V heads. Without the last, V is
    what K is before its norm; without both, attention reads K and V of layer `kv_from`. If it is
    `normed_over_ranks`, the norms of Q and K cover heads that other ranks have too. `kv_heads`
    and `head_dim` are those of its attention. `window` is the number of tokens a query sees, its
    own included; None: all. `rope` is the kind of layers, as in `layer_types`, with whose rotation
    Q and K turn: "" where all layers have one, None: no turn. In a `parallel` layer the MLP reads
    what attention reads, after a centered norm. `shared` is an MLP of all tokens beside the
    experts; `shared_gate` of one row makes the logit of a sigmoid that its output is multiplied by.
    With `mixture_norms`, `mlp_norm` is that of the experts, and `mlp_output_norm` that of the sum.
    `sinks` [heads] are logits of the softmax without a token (`DecodeAttention`). `own_input`
    follows the MLP: up is the layer's input, and what it adds has a norm. The layer's result is
    multiplied by `factor` [1].
    """

    input_norm: Norm | None
    qkv: WeightMatrix
    qk_norm: QkNorm | None
    o: WeightMatrix
    mlp_norm: Norm | None
    mlp: DenseMlp | Experts
    window: int | None
    rope: str | None = ""
    attention_output_norm: Norm | None = None
    mlp_output_norm: Norm | None = None
    parallel: bool = False
    sinks: torch.Tensor | None = None
    shared: DenseMlp | None = None
    shared_gate: WeightMatrix | None = None
    mixture_norms: MixtureNorms | None = None
    own_input: DenseMlp | None = None
    own_input_norm: Norm | None = None
    factor: torch.Tensor | None = None
    kv_from: int | None = None
    kv_heads: int = 0
    head_dim: int = 0
    normed_over_ranks: bool = False

    @property
    def written_heads(self) -> int:
        """KV heads of which it makes K and V."""
        return self.kv_heads if self.kv_from is None else 0

    @property
    def qkv_parts(self) -> int:
        """3 if `qkv` has rows of Q, K and V, 2 of Q and K, 1 of Q."""
        return 1 + (self.qkv.rows - self.o.columns) // (self.kv_heads * self.head_dim)

    @property
    def matrices(self) -> tuple[WeightMatrix, ...]:
        mlps = (each for each in (self.mlp, self.shared, self.own_input) if each is not None)
        return self.qkv, self.o, *(matrix for mlp in mlps for matrix in mlp.matrices)


@dataclass(frozen=True, slots=True)
class FusedModel:
    """A whole decoder. `embedding` is the table [vocabulary, hidden]; if they are tied, `head`
    reads the same memory. `scale` multiplies q·k before the softmax. `dtype` is that of
    activations. A soft cap c makes x to c * tanh(x / c): `score_cap` scores, `logit_cap` logits."""

    embedding: WeightMatrix
    layers: tuple[FusedLayer, ...]
    final_norm: Norm
    head: WeightMatrix
    heads: int
    scale: float
    dtype: torch.dtype
    score_cap: float | None = None
    logit_cap: float | None = None
    layer_inputs: LayerInputs | None = None

    @property
    def device(self) -> torch.device:
        return self.final_norm.weight.device

    @property
    def hidden(self) -> int:
        return self.embedding.columns

    @property
    def intermediate(self) -> int:
        """Elements between the two halves of the widest MLP of a token."""
        mlps = (mlp for layer in self.layers for mlp in (layer.mlp, layer.shared))
        return max(mlp.width for mlp in mlps if mlp is not None)

    @property
    def other_heads(self) -> FusedLayer | None:
        """A layer whose K and V have other heads than those of the first; None if all are alike."""
        first = self.layers[0]
        sizes = first.kv_heads, first.head_dim
        return next((each for each in self.layers if (each.kv_heads, each.head_dim) != sizes), None)

    @property
    def dense(self) -> DenseMlp | None:
        """The widest MLP of the layers that have a dense one."""
        mlps = (each.mlp for each in self.layers if isinstance(each.mlp, DenseMlp))
        return max(mlps, key=lambda mlp: mlp.width, default=None)

    @property
    def shared(self) -> DenseMlp | None:
        """The MLP beside the experts of a layer, None without any; all are of one size."""
        return next((each.shared for each in self.layers if each.shared is not None), None)

    @property
    def mixtures(self) -> tuple[Experts, ...]:
        """The experts of each layer that has some, all of one size."""
        return tuple(each.mlp for each in self.layers if isinstance(each.mlp, Experts))

    @property
    def vocab(self) -> int:
        return self.head.rows


def blocks_for_batches(block: Any) -> Any:
    """`block` with each of its matrices `for_batches`, as products of several tokens read it."""
    if isinstance(block, WeightMatrix):
        return block.for_batches()
    if isinstance(block, tuple):
        return tuple(blocks_for_batches(each) for each in block)
    if not is_dataclass(block) or isinstance(block, type):
        return block
    parts = {each.name: blocks_for_batches(getattr(block, each.name)) for each in fields(block)}
    return replace(block, **parts)
