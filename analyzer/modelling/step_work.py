"""Bytes and FLOPs of each role of one step, from the shapes of the model and of the step.

For a product with a matrix of n rows and k columns and T tokens: the matrix as it is stored, T * k
+ T * n activations, 2 * T * n * k FLOPs. Attention: K and V of the positions that it can see, Q and
the output, 4 * pairs * heads * head_dim FLOPs. Every tensor counts once a step, as in
`bytes_moved` of the package's own kernels. Under a router that chooses uniformly, T tokens touch
E (1 - (1 - k/E)^T) of E experts in expectation; real routers are less even, and touch fewer.

Roles: copy (the embedding's rows, and what is made of them for each layer), norm, qkv, qk_norm,
rope, kv_write, attention, o, gate_up, activation, down, router, experts (routed ones, with the sum
over a token's experts), head and sampling. Experts that all tokens share are gate_up, activation
and down.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import add, attrgetter

from decodescope.analyzer.modelling.matrices import (
    Matrix,
    head_matrix,
    inputs_matrix,
    layer_weights,
    norm_size,
)
from decodescope.analyzer.modelling.shape import LatentAttention, ModelShape, StepShape
from decodescope.analyzer.modelling.weights import Weights

# Gated DeltaNet keeps its state in float32.
_STATE_BYTES = 4


@dataclass(frozen=True, slots=True)
class RoleWork:
    """The bytes that a role must move and its FLOPs; each tensor counts once.

    `kv_bytes` are read from the KV cache, or read from and written to a state that stands for it.
    `activation_bytes` are its inputs and outputs, and the new rows of the cache. `flops` are those
    of matrix products and attention; a multiply-add counts as two.
    """

    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    def __add__(self, other: "RoleWork") -> "RoleWork":
        return RoleWork(*map(add, _amounts(self), _amounts(other)))

    def times(self, count: int) -> "RoleWork":
        return RoleWork(*(amount * count for amount in _amounts(self)))


_amounts = attrgetter("weight_bytes", "kv_bytes", "activation_bytes", "flops")

# Where the work of a role is done that has no kernel of its own, the likeliest first.
_DONE_BY: Mapping[str, tuple[str, ...]] = {
    "norm": ("qkv", "gate_up", "router", "experts", "head"),
    "qk_norm": ("rope", "kv_write", "qkv", "attention"),
    "rope": ("kv_write", "qk_norm", "qkv", "attention"),
    "kv_write": ("rope", "qk_norm", "qkv", "attention"),
    "activation": ("gate_up", "experts", "down"),
    "gate_up": ("experts", "down"),
    "down": ("experts", "gate_up"),
    "router": ("experts", "gate_up"),
    "sampling": ("head",),
    "copy": ("norm", "qkv"),
}


def with_fused_roles(work: Mapping[str, RoleWork], present: Collection[str]) -> dict[str, RoleWork]:
    """The work of the roles that have kernels, `present`.

    The weights, K, V and FLOPs of any other role go to the role whose kernel does it; its
    activations stay on the chip there. A role that nothing present stands for keeps its work, so
    that the sum of the weights stays the same.
    """
    fused = dict(work)
    for role in work.keys() - present:
        by = next((by for by in _DONE_BY.get(role, ()) if by in present and by in work), None)
        if by is not None:
            fused[by] += replace(fused.pop(role), activation_bytes=0)
    return fused


def step_bytes(work: Mapping[str, RoleWork]) -> int:
    """The bytes that a step must read: weights, and K and V. The numerator of its MBU."""
    return sum(role.weight_bytes + role.kv_bytes for role in work.values())


def step_flops(work: Mapping[str, RoleWork]) -> int:
    return sum(role.flops for role in work.values())


Named = tuple[str, RoleWork]


def touched_experts(count: int, per_token: int, tokens: int) -> float:
    """Experts that `tokens` tokens use in expectation if a router chooses uniformly."""
    return count * (1 - (1 - per_token / count) ** tokens)


def role_work(
    shape: ModelShape, step: StepShape, weights: Weights, tensor_parallel: int = 1
) -> dict[str, RoleWork]:
    """The work of each role of a whole step, on one of `tensor_parallel` devices.

    Raises:
        InputError: the model cannot be divided so.
    """
    named = [*outside_work(shape, step, weights, tensor_parallel).items()]
    kinds = shape.kinds()
    for kind, count in Counter(kinds).items():
        layer = layer_work(shape, kinds.index(kind), step, weights, tensor_parallel)
        named += ((role, work.times(count)) for role, work in layer.items())
    return _sums(named)


def link_bytes(shape: ModelShape, step: StepShape, tensor_parallel: int) -> int:
    """The bytes that each of the devices must send in a step: what attention and the MLP of a layer
    give is summed over all of n devices, and of a sum each sends 2 (n - 1) / n at least. So are the
    squares, in float32, where one norm covers all heads of Q, and one all of K."""
    squares = 2 * 4 if shape.qk_norm == "all" else 0
    sums = len(shape.kinds()) * step.queries * (2 * shape.hidden * shape.element_bytes + squares)
    return 2 * (tensor_parallel - 1) * sums // tensor_parallel


def layer_work(
    shape: ModelShape, layer: int, step: StepShape, weights: Weights, tensor_parallel: int = 1
) -> dict[str, RoleWork]:
    """The work of each role of one layer; the norms are those before attention and MLP.

    Raises:
        InputError: the model cannot be divided so.
    """
    matrices, vectors = layer_weights(shape, layer, tensor_parallel)
    tokens, element = step.queries, shape.element_bytes
    return _sums(
        [
            ("norm", _norms(shape, tokens, shape.norms_per_layer - 2, 2)),
            *((each.role, _product(each, tokens, weights, element)) for each in matrices),
            *((vector.role, RoleWork(vector.size * element)) for vector in vectors),
            *_attention(shape, layer, step, weights, tensor_parallel),
            *_between(matrices, shape, tokens),
        ]
    )


def outside_work(
    shape: ModelShape, step: StepShape, weights: Weights, tensor_parallel: int = 1
) -> dict[str, RoleWork]:
    """The work of the roles before the first layer and after the last one.

    lm_head and sampling work on the last token of each request.

    Raises:
        InputError: the model cannot be divided so.
    """
    head = head_matrix(shape, tensor_parallel)
    element = shape.element_bytes
    rows = step.queries * weights.embedding.matrix_bytes(1, shape.hidden)
    inputs, made = inputs_matrix(shape), RoleWork()
    if inputs.rows:
        made = _product(inputs, step.queries, weights, element)
        rows += step.queries * weights.embedding.matrix_bytes(1, inputs.rows)
        rows += shape.layer_input * element
    final_norm = RoleWork(norm_size(shape) * element) + _norms(shape, step.queries, 0, 1)
    return {
        "copy": RoleWork(rows, activation_bytes=step.queries * shape.hidden * element) + made,
        "norm": final_norm,
        "head": _product(head, step.batch, weights, element),
        "sampling": RoleWork(activation_bytes=step.batch * head.rows * element),
    }


def _sums(named: list[Named]) -> dict[str, RoleWork]:
    total: dict[str, RoleWork] = {}
    for role, work in named:
        total[role] = total.get(role, RoleWork()) + work
    return total


def _norms(shape: ModelShape, tokens: int, plain: int, residual: int) -> RoleWork:
    """Norms that read and write a row, and norms that add it to the residual stream as well."""
    row = tokens * shape.hidden * shape.element_bytes
    return RoleWork(activation_bytes=(2 * plain + 4 * residual) * row)


def _product(matrix: Matrix, tokens: int, weights: Weights, element: int) -> RoleWork:
    rows, columns = matrix.rows, matrix.columns
    if matrix.part is None:
        size = rows * columns * element
    else:
        size = weights.of(matrix.part).matrix_bytes(rows, columns)
    size += rows * element * matrix.bias
    if matrix.copies == 1:
        moved = tokens * (rows + columns) * element
        return RoleWork(size, activation_bytes=moved, flops=2 * tokens * rows * columns)
    touched = touched_experts(matrix.copies, matrix.used, tokens)
    rows_moved = tokens * matrix.used * (rows + columns) * element
    flops = 2 * tokens * matrix.used * rows * columns
    return RoleWork(round(touched * size), activation_bytes=rows_moved, flops=flops)


def _between(matrices: list[Matrix], shape: ModelShape, tokens: int) -> Iterator[Named]:
    """The activation function behind each gate_up, and the sum over a token's experts."""
    element = shape.element_bytes
    for matrix in matrices:
        if matrix.columns == shape.hidden and matrix.role in ("gate_up", "experts"):
            width = matrix.rows + (matrix.rows // 2 if shape.gated else matrix.rows)
            moved = tokens * matrix.used * width * element
            yield "activation", RoleWork(activation_bytes=moved)
    experts = next((matrix for matrix in matrices if matrix.role == "experts"), None)
    if experts is not None:
        moved = tokens * (experts.used + 1) * shape.hidden * element
        yield "experts", RoleWork(activation_bytes=moved)


def _attention(
    shape: ModelShape, layer: int, step: StepShape, weights: Weights, devices: int
) -> Iterator[Named]:
    """Everything between the products for Q, K and V and the one for O."""
    if shape.layers[layer] == "linear":
        yield "attention", _delta_net(shape, step, devices)
        return
    window = shape.sliding_window if shape.layers[layer] == "sliding" else None
    heads = shape.heads // devices
    if shape.latent is not None:
        yield from _latent_attention(shape.latent, shape, step, weights, heads)
        return
    tokens, element = step.queries, shape.element_bytes
    kv_heads, head_dim = shape.heads_of(layer)
    q, k = heads * head_dim, max(1, kv_heads // devices) * head_dim
    rotated = 2 * tokens * (q + k) * element
    if shape.qk_norm != "none":
        yield "qk_norm", RoleWork(activation_bytes=rotated)
    yield "rope", RoleWork(activation_bytes=rotated + tokens * head_dim * element)
    if not shape.shares_kv(layer):
        yield "kv_write", _kv_write(2 * k, tokens, shape, weights)
    gate = 1 if shape.attention_gate else 0
    yield (
        "attention",
        RoleWork(
            kv_bytes=round(step.kv_read(window) * 2 * k * weights.kv_element_bytes),
            activation_bytes=tokens * q * (2 + gate) * element,
            flops=round(4 * step.attended_pairs(window) * q),
        ),
    )


def _latent_attention(
    latent: LatentAttention, shape: ModelShape, step: StepShape, weights: Weights, heads: int
) -> Iterator[Named]:
    """A decode step scores the latent rows themselves, so that all heads share them; a prefill
    step first expands them to K and V of each head."""
    tokens, element = step.queries, shape.element_bytes
    row = latent.kv_rank + latent.rope_dim
    normed = latent.kv_rank + (latent.q_rank or 0)
    if step.queries == step.batch:
        q, out = row, latent.kv_rank
    else:
        q, out = latent.nope_dim + latent.rope_dim, latent.value_dim
    rope = (2 * (heads + 1) + 1) * latent.rope_dim
    yield "qk_norm", RoleWork(activation_bytes=2 * tokens * normed * element)
    yield "rope", RoleWork(activation_bytes=tokens * rope * element)
    yield "kv_write", _kv_write(row, tokens, shape, weights)
    yield (
        "attention",
        RoleWork(
            kv_bytes=round(step.kv_read(None) * row * weights.kv_element_bytes),
            activation_bytes=tokens * heads * (q + out) * element,
            flops=round(2 * step.attended_pairs(None) * heads * (q + out)),
        ),
    )


def _kv_write(width: int, tokens: int, shape: ModelShape, weights: Weights) -> RoleWork:
    moved = tokens * width * (shape.element_bytes + weights.kv_element_bytes)
    return RoleWork(activation_bytes=moved)


def _delta_net(shape: ModelShape, step: StepShape, devices: int) -> RoleWork:
    """Reads and writes the state S of each request once; a token costs S k, the update of S and
    S q: 6 FLOPs for each element."""
    linear = shape.linear
    assert linear is not None
    heads = linear.value_heads // devices
    keys = linear.key_heads // devices * linear.key_dim
    state = heads * linear.key_dim * linear.value_dim
    widths = 2 * keys + 3 * heads * linear.value_dim
    return RoleWork(
        kv_bytes=2 * step.batch * state * _STATE_BYTES,
        activation_bytes=step.queries * widths * shape.element_bytes,
        flops=6 * step.queries * state,
    )
