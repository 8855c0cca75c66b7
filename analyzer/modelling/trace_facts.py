"""The facts that a trace shows of the model of its steps, and contradictions with a chosen one."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decodescope.analyzer.modelling.matrices import Matrix, head_matrix, layer_weights
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.trace import Int64s

# Bytes of an element of the inputs, of the weights and of the output. Products of 8-bit elements
# come with scales of 4 bytes, at most one for 128 inputs, and one for 128 x 128 weights.
_ELEMENTS = ((2, 2, 2), (4, 4, 4), (1, 1, 2))
# Engines pad the vocabulary to a multiple of this.
_PADDED_TO = 64
_MOST_REQUESTS = 4096


class ProductFit(NamedTuple):
    """A product as that of `rows` tokens with a matrix whose elements have `element_bytes`."""

    tokens: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Product:
    """`count` matrix products that move `bytes` (inputs and output once) and compute `flops`."""

    bytes: int
    flops: int
    count: int = 1

    @property
    def all_flops(self) -> int:
        return self.flops * self.count

    def fits(self, rows: int, columns: int) -> ProductFit | None:
        """The product as one of T tokens with a matrix of `rows` outputs and `columns` inputs, None
        if it cannot be that: 2 T rows columns FLOPs, and the bytes of T columns inputs, the matrix,
        T rows outputs, and biases or scales. T follows from the FLOPs, so the bytes check it."""
        tokens, rest = divmod(self.flops, 2 * rows * columns)
        if rest or not tokens:
            return None
        inputs, matrix, outputs = tokens * columns, rows * columns, tokens * rows
        for of_input, of_weight, of_output in _ELEMENTS:
            least = inputs * of_input + matrix * of_weight + outputs * of_output
            slack = 4 * (rows + tokens)
            if of_weight == 1:
                slack += inputs // 32 + matrix // 4096
            if least <= self.bytes <= least + slack:
                return ProductFit(tokens, of_weight)
        return None


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """Facts of the model; None, or empty, where the trace does not show them.

    `layers` are the repetitions of the motif and `motif` the variant of each of them. `products`
    are the distinct ones of a step, which computes `tokens` tokens for `batch` requests. `roles`
    are the roles that were found with certainty. `classes` are the classes of its modules,
    `gathered` and `reduced` the elements that a rank gives to all-gathers and all-reduces, and
    `ranks` the sizes of their groups; `communicates`: it has communication, of whatever kind.
    """

    layers: int | None = None
    motif: tuple[int, ...] = ()
    products: Collection[Product] = ()
    tokens: int | None = None
    batch: int | None = None
    roles: Collection[str] = ()
    classes: Collection[str] = ()
    gathered: Collection[int] = ()
    reduced: Collection[int] = ()
    ranks: Collection[int] = ()
    communicates: bool = False


def shown_requests(shape: ModelShape, facts: TraceFacts, tensor_parallel: int) -> int | None:
    """Requests by the logits that each of `tensor_parallel` devices gives to gathers, None if none
    is a multiple of its part of the padded vocabulary."""
    logits = padded_vocabulary(shape) // tensor_parallel
    counts = [size // logits for size in facts.gathered if size % logits == 0]
    return min((count for count in counts if 0 < count <= _MOST_REQUESTS), default=None)


def padded_vocabulary(shape: ModelShape) -> int:
    """Rows of the head as engines pad it before they divide it."""
    return -(-shape.vocabulary // _PADDED_TO) * _PADDED_TO


def distinct_products(moved: Int64s, flops: Int64s) -> tuple[Product, ...]:
    """The distinct products among operators of these bytes and FLOPs, and how often each runs."""
    computes = (flops > 0) & (moved > 0)
    pairs = np.column_stack((moved[computes], flops[computes]))
    rows, count = np.unique(pairs, axis=0, return_counts=True)
    return tuple(
        Product(bytes=row[0], flops=row[1], count=number)
        for row, number in zip(rows.tolist(), count.tolist(), strict=True)
    )


def contradictions(
    shape: ModelShape, facts: TraceFacts, tensor_parallel: int = 1, batch: int | None = None
) -> Iterator[str]:
    """Contradictions between a trace and a model: sentences that name the field and both values.

    Products contradict only if those that fit no matrix of the model, on one device or on
    `tensor_parallel`, have most of the FLOPs: a trace may hold a draft model or a vision tower.
    The rows of a product contradict nothing: engines pad batches, and run the head for the last
    token of each request alone. `batch` is the one that the user gave.
    """
    if facts.layers is not None and facts.layers != len(shape.layers):
        yield (
            f"num_hidden_layers of {shape.name} is {len(shape.layers):,}, but the trace shows "
            f"{facts.layers:,} layers"
        )
    yield from _strange_products(shape, facts, tensor_parallel)
    if "experts" in facts.roles and shape.experts is None:
        yield f"{shape.name} has no experts (num_experts), but the trace shows products of experts"
    if shape.experts is not None and "gate_up" in facts.roles and "experts" not in facts.roles:
        yield (
            f"num_experts of {shape.name} is {shape.experts.count:,}, but the trace shows an MLP "
            "without experts"
        )
    if batch is not None and facts.batch is not None and batch != facts.batch:
        yield f"--batch is {batch:,}, but the trace says {facts.batch:,} requests a step"


def matrix_sizes(shape: ModelShape, tensor_parallel: int = 1) -> frozenset[tuple[int, int]]:
    """(rows, columns) of every matrix of the model, and of the blocks of rows that engines multiply
    apart: Q, K, V, K and V, gate, up."""
    sizes = {_size(head_matrix(shape, tensor_parallel)), *_blocks(shape, tensor_parallel)}
    kinds = shape.kinds()
    for kind in set(kinds):
        for part in layer_weights(shape, kinds.index(kind), tensor_parallel)[0]:
            sizes.add(_size(part))
            if part.role in ("gate_up", "experts") and shape.gated and part.columns == shape.hidden:
                sizes.add((part.rows // 2, part.columns))
    return frozenset(sizes)


def _blocks(shape: ModelShape, devices: int) -> Iterator[tuple[int, int]]:
    if shape.latent is not None:
        heads, latent = shape.heads // devices, shape.latent
        yield heads * (latent.nope_dim + latent.value_dim), latent.kv_rank
        yield latent.kv_rank + latent.rope_dim + (latent.q_rank or 0), shape.hidden
        # One head's block of kv_b, in batched products.
        yield from ((latent.kv_rank, latent.nope_dim), (latent.value_dim, latent.kv_rank))
        return
    kv = max(1, shape.kv_heads // devices) * shape.head_dim
    q = shape.heads // devices * shape.head_dim
    yield from ((rows, shape.hidden) for rows in (q, kv, 2 * kv))


def _size(matrix: Matrix) -> tuple[int, int]:
    return matrix.rows, matrix.columns


def _strange_products(shape: ModelShape, facts: TraceFacts, devices: int) -> Iterator[str]:
    sizes = matrix_sizes(shape) | matrix_sizes(shape, devices)
    # Of products whose bytes are odd, the FLOPs decide alone, if the tokens are known.
    of_tokens = {2 * rows * columns * (facts.tokens or 0) for rows, columns in sizes}
    strange = [
        product
        for product in facts.products
        if product.flops not in of_tokens and not any(product.fits(*size) for size in sizes)
    ]
    if 2 * sum(product.all_flops for product in strange) > sum(
        product.all_flops for product in facts.products
    ):
        largest = max(strange, key=lambda product: product.flops)
        yield (
            f"most products of the trace fit none of the matrices of {shape.name} (hidden_size "
            f"{shape.hidden:,}); the largest has {largest.flops:,} FLOPs"
        )
