"""Contradictions between a trace and the chosen model: one sentence for each field."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from decodescope.analyzer.modelling.matrices import Matrix, head_matrix, layer_weights
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.trace import OperatorWork


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """Facts of the model that a trace shows; None, or empty, where it does not show them.

    `layers` and `layer_variants` are the repetitions of the motif and the number of its variants.
    `products` holds (rows, columns) of the matrices of products, and `product_sizes` rows * columns
    of products whose shape is not known: FLOPs / (2 * tokens). `roles` are the roles that were
    found with certainty.
    """

    layers: int | None = None
    layer_variants: int | None = None
    hidden: int | None = None
    vocabulary: int | None = None
    products: Collection[tuple[int, int]] = ()
    product_sizes: Collection[int] = ()
    roles: Collection[str] = ()
    batch: int | None = None


def contradictions(
    shape: ModelShape,
    facts: TraceFacts,
    tensor_parallel: int = 1,
    batch: int | None = None,
) -> list[str]:
    """Sentences that name the field and both values; empty if nothing contradicts.

    Products contradict only if those that fit no matrix of the model, on one device or on
    `tensor_parallel`, have most of the weights: a trace may hold a draft model or a vision tower.
    `batch` is the one that the user gave.
    """
    return [
        *_counts(shape, facts),
        *_products(shape, facts, tensor_parallel),
        *_experts(shape, facts),
        *_batch(facts, batch),
    ]


def product_sizes(work: OperatorWork, tokens: int) -> list[int]:
    """Weights of the products of a trace with steps of `tokens` tokens: FLOPs / (2 * tokens).

    One entry a product; one whose FLOPs do not divide has none.
    """
    per_weight = 2 * tokens
    sizes = work.flops[(work.flops > 0) & (work.flops % per_weight == 0)] // per_weight
    return list(sizes.tolist())


def matrix_sizes(shape: ModelShape, tensor_parallel: int = 1) -> frozenset[tuple[int, int]]:
    """(rows, columns) of every matrix of the model, and of the blocks of rows that engines multiply
    apart: Q, K, V, K and V, gate, up."""
    sizes = {_size(head_matrix(shape, tensor_parallel)), *_blocks(shape, tensor_parallel)}
    kinds = shape.kinds()
    for kind in set(kinds):
        for part in layer_weights(shape, kinds.index(kind), tensor_parallel).matrices:
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


def _counts(shape: ModelShape, facts: TraceFacts) -> Iterator[str]:
    variants = len(set(shape.kinds()))
    for field, stated, seen, role in (
        ("num_hidden_layers", len(shape.layers), facts.layers, "layers"),
        ("hidden_size", shape.hidden, facts.hidden, "as the width of a token"),
        ("vocab_size", shape.vocabulary, facts.vocabulary, "as the width of the logits"),
    ):
        if seen is not None and seen != stated:
            yield f"{field} of {shape.name} is {stated:,}, but the trace shows {seen:,} {role}"
    if facts.layer_variants is not None and facts.layer_variants > 1 and variants == 1:
        yield (
            f"all layers of {shape.name} are alike (layer_types), but the trace shows "
            f"{facts.layer_variants} kinds of them"
        )


def _products(shape: ModelShape, facts: TraceFacts, devices: int) -> Iterator[str]:
    known = matrix_sizes(shape) | matrix_sizes(shape, devices)
    either = known | {(columns, rows) for rows, columns in known}
    odd = [product for product in facts.products if product not in either]
    if 2 * _weights(odd) > _weights(facts.products):
        rows, columns = max(odd, key=prod)
        yield (
            f"hidden_size of {shape.name} is {shape.hidden:,}, but most products of the trace fit "
            f"none of its matrices; the largest has {rows:,} x {columns:,} weights"
        )
    sizes = {rows * columns for rows, columns in known}
    strange = [size for size in facts.product_sizes if size not in sizes]
    if 2 * sum(strange) > sum(facts.product_sizes):
        yield (
            f"most products of the trace fit none of the matrices of {shape.name} (hidden_size "
            f"{shape.hidden:,}); the largest has {max(strange):,} weights"
        )


def _weights(products: Collection[tuple[int, int]]) -> int:
    return sum(map(prod, products))


def _experts(shape: ModelShape, facts: TraceFacts) -> Iterator[str]:
    if "experts" in facts.roles and shape.experts is None:
        yield f"{shape.name} has no experts (num_experts), but the trace shows products of experts"
    if shape.experts is not None and "gate_up" in facts.roles and "experts" not in facts.roles:
        yield (
            f"num_experts of {shape.name} is {shape.experts.count:,}, but the trace shows an MLP "
            "without experts"
        )


def _batch(facts: TraceFacts, batch: int | None) -> Iterator[str]:
    if batch is not None and facts.batch is not None and batch != facts.batch:
        yield f"--batch is {batch:,}, but the trace says {facts.batch:,} requests a step"
