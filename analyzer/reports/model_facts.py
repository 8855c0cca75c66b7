"""The facts that a step shows of its model, and the sizes of the step."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from decodescope.analyzer.answer.parts import MedianStep
from decodescope.analyzer.collectives.participants import messages_of
from decodescope.analyzer.modelling.matrices import head_matrix
from decodescope.analyzer.modelling.shape import ModelShape, StepShape
from decodescope.analyzer.modelling.trace_facts import (
    Product,
    ProductFit,
    TraceFacts,
    distinct_products,
    matrix_sizes,
    shown_requests,
)
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.timing.step_annotations import StepAnnotation
from decodescope.analyzer.trace import CollectiveMessage

_CLASS_PART = re.compile(r"(?:^|/)([A-Za-z]\w*?_\d+)(?=/|$)")
_GATHERS = ("allgather", "all_gather")
_REDUCES = ("allreduce", "all_reduce")
_ranks = msgspec.json.Decoder(list[int])


@dataclass(frozen=True, slots=True)
class StepSizes:
    """The sizes of a step, at least: `batch` and `kv_tokens` are None if they are unknown, and then
    `shape` has one request, and no other KV positions than the new ones. `batch_by_shapes`: neither
    annotations nor the user say the batch."""

    shape: StepShape
    batch: int | None
    kv_tokens: int | None
    batch_by_shapes: bool = False


def trace_facts(found: MedianStep) -> TraceFacts:
    """The facts that the step shows of its model."""
    trace, work, annotation = found.timeline.trace, found.timeline.work, found.annotation
    ops = np.flatnonzero(found.timeline.steps.op_step == found.step)
    if trace.capture is None:
        moved, flops = work.bytes[ops], work.flops[ops]
    else:
        # The work of our own ops is that of fused kernels.
        moved, flops = trace.work.bytes, trace.work.flops
    numbers = np.unique(messages_of(trace, ops)).tolist()
    messages = [trace.message_table[number] for number in numbers if number >= 0]
    return TraceFacts(
        layers=found.report.layers or None,
        motif=tuple(row.motif for row in found.layers if row.motif is not None),
        products=distinct_products(moved, flops),
        tokens=annotation.query_tokens or annotation.batch,
        batch=annotation.batch,
        roles=[part.part for part in found.parts if part.ops] if found.layers else (),
        classes=_classes(found),
        gathered=_elements(messages, _GATHERS),
        reduced=_elements(messages, _REDUCES),
        ranks=frozenset(ranks for message in messages if (ranks := _group_size(message))),
        communicates=any(part.part == "communication" for part in found.parts),
    )


def kernels_of_roles(found: MedianStep) -> dict[str, list[str]]:
    """The names of the kernels of each role of the step."""
    trace = found.timeline.trace
    ops = np.flatnonzero(found.timeline.steps.op_step == found.step)
    names: dict[str, list[str]] = {}
    roles = found.timeline.structure.role[ops]
    for role in np.unique(roles).tolist():
        of_role = np.unique(trace.ops.name[ops[roles == role]])
        names[ROLES[role]] = [trace.names[name] for name in of_role.tolist()]
    return names


def step_sizes(
    annotation: StepAnnotation, given: Given, shape: ModelShape, facts: TraceFacts, devices: int
) -> StepSizes:
    """The sizes of a step by its annotations, else by the user, else by its products: those of the
    head and the gathers of its logits have a row for each request, the others for each token."""
    tokens, requests = _shown_rows(shape, facts, devices)
    if annotation.kind == "decode" and requests is None:
        requests = tokens
    batch = annotation.batch or given.batch or requests
    queries = annotation.query_tokens
    if queries is None and annotation.kind != "decode" and tokens is not None:
        queries = max(tokens, batch or 1)
    kv_tokens = annotation.kv_tokens
    if kv_tokens is None and given.context is not None:
        kv_tokens = (batch or 1) * given.context
    least = max(queries or 0, batch or 1)
    # Of unknown requests, each token may be one, which sees itself alone.
    pairs = queries if batch is None else annotation.pairs
    shape_of_step = StepShape(batch or 1, least if kv_tokens is None else kv_tokens, queries, pairs)
    by_shapes = batch is not None and not (annotation.batch or given.batch)
    return StepSizes(shape_of_step, batch, kv_tokens, by_shapes)


def element_bytes(shape: ModelShape, facts: TraceFacts, devices: int) -> int | None:
    """The least bytes of an element of the weights that the shapes of products show."""
    widest: dict[Product, int] = {}
    for product, _, fit in _fits(shape, facts, devices):
        widest[product] = max(widest.get(product, 0), fit.element_bytes)
    return min(widest.values(), default=None)


def _fits(
    shape: ModelShape, facts: TraceFacts, devices: int
) -> Iterator[tuple[Product, tuple[int, int], ProductFit]]:
    """The products as those of matrices of the model, those with most FLOPs first."""
    for product in sorted(facts.products, key=lambda product: -product.all_flops):
        for size in matrix_sizes(shape, devices):
            if (fit := product.fits(*size)) is not None:
                yield product, size, fit


def _shown_rows(
    shape: ModelShape, facts: TraceFacts, devices: int
) -> tuple[int | None, int | None]:
    """Tokens by the product of a layer with most FLOPs; requests by the logits."""
    head = head_matrix(shape, devices)
    tokens, requests = None, shown_requests(shape, facts, devices)
    for _, size, fit in _fits(shape, facts, devices):
        if size == (head.rows, head.columns):
            requests = requests or fit.tokens
        else:
            tokens = tokens or fit.tokens
    return tokens, requests


def _classes(found: MedianStep) -> frozenset[str]:
    trace = found.timeline.trace
    names = {trace.names[name] for name in np.unique(trace.ranges.name).tolist()}
    if trace.reference is not None:
        names |= {op.path for op in trace.reference.ops}
    return frozenset(part for name in names for part in _CLASS_PART.findall(name))


def _elements(messages: list[CollectiveMessage], names: tuple[str, ...]) -> frozenset[int]:
    return frozenset(
        message.in_elements
        for message in messages
        if message.in_elements and any(name in message.collective for name in names)
    )


def _group_size(message: CollectiveMessage) -> int | None:
    """The number of ranks in the text of a group, None if it does not list them all."""
    try:
        return len(_ranks.decode(message.group)) or None
    except msgspec.DecodeError:
        return None
