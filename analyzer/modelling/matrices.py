"""The weights of a model as matrices and vectors, each with the role that reads it.

A matrix has `rows` output channels and `columns` inputs. Tensor parallelism splits heads, the
width of MLPs and experts, and the vocabulary; K and V heads are repeated where there are fewer of
them than devices.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.shape import Experts, LatentAttention, ModelShape
from decodescope.analyzer.modelling.weights import Part


@dataclass(frozen=True, slots=True)
class Matrix:
    """`copies` matrices of one size, of which a token uses `used`; router and gates have no `part`:
    they keep the model's dtype."""

    role: str
    part: Part | None
    rows: int
    columns: int
    bias: bool = False
    copies: int = 1
    used: int = 1


@dataclass(frozen=True, slots=True)
class Vector:
    """`size` parameters in the model's dtype that are no part of a matrix, such as a norm's."""

    role: str
    size: int


def layer_weights(
    shape: ModelShape, layer: int, tensor_parallel: int = 1
) -> tuple[list[Matrix], list[Vector]]:
    """The weights of one layer on one of `tensor_parallel` devices.

    Raises:
        InputError: the model cannot be divided so.
    """
    split = _Split(shape, tensor_parallel)
    if shape.layers[layer] == "linear":
        attention = split.delta_net()
    elif shape.latent is not None:
        attention = split.latent_attention(shape.latent)
    else:
        attention = split.attention(layer)
    experts = shape.experts if shape.is_moe[layer] else None
    width = shape.intermediate * (2 if shape.wide_mlp and shape.shares_kv(layer) else 1)
    mlp = split.mlp(width) if experts is None else split.experts(experts)
    norms = Vector("norm", (shape.norms_per_layer + bool(shape.layer_input)) * norm_size(shape))
    weights = (norms, *attention, *mlp, *own_input(shape))
    return (
        [part for part in weights if isinstance(part, Matrix)],
        [part for part in weights if isinstance(part, Vector)],
    )


def norm_size(shape: ModelShape) -> int:
    """Parameters of one norm of the residual stream's width."""
    return shape.hidden * (1 + shape.norm_bias)


def own_input(shape: ModelShape) -> Iterator[Matrix]:
    """The gate and the projection of a layer's own input."""
    if width := shape.layer_input:
        yield Matrix("gate_up", "mlp", width, shape.hidden)
        yield Matrix("down", "mlp", shape.hidden, width)


def inputs_matrix(shape: ModelShape) -> Matrix:
    """The matrix that makes the inputs of all layers of the embedding; no rows without them."""
    return Matrix("copy", None, len(shape.layers) * shape.layer_input, shape.hidden)


def head_matrix(shape: ModelShape, tensor_parallel: int = 1) -> Matrix:
    """lm_head on one device."""
    rows = _Split(shape, tensor_parallel).vocabulary
    return Matrix("head", "head", rows, shape.hidden)


class _Split:
    def __init__(self, shape: ModelShape, devices: int) -> None:
        if devices < 1:
            raise InputError(f"tensor parallelism over {devices} devices; give 1 or more")
        self._shape, self._devices = shape, devices
        self._heads = self._part(shape.heads, "num_attention_heads")
        if shape.kv_heads >= devices and shape.latent is None:
            self._part(shape.kv_heads, "num_key_value_heads")
        self.vocabulary = -(-shape.vocabulary // devices)

    def _part(self, size: int, name: str) -> int:
        if size % self._devices:
            raise InputError(
                f"{self._shape.name}: {name} ({size}) cannot be split over {self._devices} devices;"
                " give the degree of tensor parallelism of the trace"
            )
        return size // self._devices

    def attention(self, layer: int) -> Iterator[Matrix | Vector]:
        shape = self._shape
        kv_heads, head_dim = shape.heads_of(layer)
        q, k = self._heads * head_dim, max(1, kv_heads // self._devices) * head_dim
        parts = 1 if shape.keys_are_values and shape.layers[layer] == "full" else 2
        parts = 0 if shape.shares_kv(layer) else parts
        rows = q * (2 if shape.attention_gate else 1) + parts * k
        yield Matrix("qkv", "attention", rows, shape.hidden, shape.qkv_bias)
        yield Matrix("o", "attention", shape.hidden, q, shape.o_bias)
        normed = min(2, 1 + parts)
        norms = {"none": 0, "plain": 0, "head": normed * head_dim, "all": q + k}
        if size := norms[shape.qk_norm]:
            yield Vector("qk_norm", size)
        if shape.sinks:
            yield Vector("attention", self._heads)

    def latent_attention(self, latent: LatentAttention) -> Iterator[Matrix | Vector]:
        """In decoding, the part of kv_b for K is applied to Q and that for V to the output."""
        shape, heads = self._shape, self._heads
        q = heads * (latent.nope_dim + latent.rope_dim)
        if latent.q_rank is not None:
            yield Matrix("qkv", "attention", latent.q_rank, shape.hidden, shape.qkv_bias)
        yield Matrix("qkv", "attention", q, latent.q_rank or shape.hidden)
        kv_rows = latent.kv_rank + latent.rope_dim
        yield Matrix("qkv", "attention", kv_rows, shape.hidden, shape.qkv_bias)
        yield Matrix("qkv", "attention", heads * latent.nope_dim, latent.kv_rank)
        yield Matrix("o", "attention", heads * latent.value_dim, latent.kv_rank)
        yield Matrix("o", "attention", shape.hidden, heads * latent.value_dim, shape.o_bias)
        yield Vector("qk_norm", latent.kv_rank + (latent.q_rank or 0))

    def delta_net(self) -> Iterator[Matrix | Vector]:
        linear, hidden = self._shape.linear, self._shape.hidden
        assert linear is not None
        value_heads = self._part(linear.value_heads, "linear_num_value_heads")
        keys = self._part(linear.key_heads, "linear_num_key_heads") * linear.key_dim
        values = value_heads * linear.value_dim
        yield Matrix("qkv", "attention", 2 * keys + 2 * values, hidden)
        yield Matrix("qkv", None, 2 * value_heads, hidden)
        yield Matrix("o", "attention", hidden, values)
        convolution = linear.convolution * (2 * keys + values)
        yield Vector("attention", convolution + 2 * value_heads + linear.value_dim)

    def mlp(self, intermediate: int) -> Iterator[Matrix | Vector]:
        shape, width = self._shape, self._part(intermediate, "intermediate_size")
        rows = 2 * width if shape.gated else width
        yield Matrix("gate_up", "mlp", rows, shape.hidden, shape.mlp_bias)
        yield Matrix("down", "mlp", shape.hidden, width, shape.mlp_bias)

    def experts(self, experts: Experts) -> Iterator[Matrix | Vector]:
        shape, count = self._shape, experts.count
        width = self._part(experts.intermediate, "moe_intermediate_size")
        rows = 2 * width if shape.gated else width
        routed = partial(Matrix, "experts", "experts", copies=count, used=experts.per_token)
        yield Matrix("router", None, count, shape.hidden)
        yield routed(rows, shape.hidden, experts.bias)
        yield routed(shape.hidden, width, experts.bias)
        if experts.shared_intermediate:
            yield from self.mlp(experts.shared_intermediate)
        if experts.shared_gate:
            yield Matrix("router", None, 1, shape.hidden)
        if experts.router_bias:
            yield Vector("router", count)
