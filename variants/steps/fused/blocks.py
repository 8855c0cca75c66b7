"""A decoder as the fused kernels read it: its blocks, with their matrices, norms and windows."""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix


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
    of tokens a query sees, its own included; None: all. Without `rotates` Q and K have no rotation.
    """

    input_norm: Norm
    qkv: WeightMatrix
    qk_norm: QkNorm | None
    o: WeightMatrix
    post_attention_norm: Norm
    mlp: DenseMlp | Experts
    window: int | None
    rotates: bool = True

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
    def chosen(self) -> int:
        """Experts that a token uses; 0 if the MLP is dense."""
        mlp = self.layers[0].mlp
        return mlp.chosen if isinstance(mlp, Experts) else 0

    @property
    def vocab(self) -> int:
        return self.head.rows
