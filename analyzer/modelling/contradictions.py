"""Contradictions between a trace and the chosen model: one sentence for each field."""

from collections.abc import Iterator

from decodescope.analyzer.modelling.matrices import Matrix, head_matrix, layer_weights
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.modelling.trace_facts import TraceFacts


def contradictions(
    shape: ModelShape,
    facts: TraceFacts,
    tensor_parallel: int = 1,
    batch: int | None = None,
) -> list[str]:
    """Sentences that name the field and both values; empty if nothing contradicts.

    Products contradict only if those that fit no matrix of the model, on one device or on
    `tensor_parallel`, have most of the FLOPs: a trace may hold a draft model or a vision tower.
    The rows of a product contradict nothing: engines pad batches, and run the head for the last
    token of each request alone. `batch` is the one that the user gave.
    """
    return [
        *_counts(shape, facts),
        *_products(shape, facts, tensor_parallel),
        *_experts(shape, facts),
        *_batch(facts, batch),
    ]


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
    if facts.layers is not None and facts.layers != len(shape.layers):
        yield (
            f"num_hidden_layers of {shape.name} is {len(shape.layers):,}, but the trace shows "
            f"{facts.layers:,} layers"
        )


def _products(shape: ModelShape, facts: TraceFacts, devices: int) -> Iterator[str]:
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
