"""The work of a step by a model, of each role and of the whole step; the sizes of the step, and the
facts that it shows of its model."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from decodescope.analyzer.answer.parts import MedianStep
from decodescope.analyzer.collectives.participants import messages_of
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.matrices import head_matrix
from decodescope.analyzer.modelling.shape import ModelShape, StepShape
from decodescope.analyzer.modelling.step_work import (
    RoleWork,
    link_bytes,
    role_work,
    step_bytes,
    step_flops,
    with_fused_roles,
)
from decodescope.analyzer.modelling.trace_facts import (
    Product,
    ProductFit,
    TraceFacts,
    contradictions,
    distinct_products,
    matrix_sizes,
    shown_requests,
)
from decodescope.analyzer.modelling.weights import PART_OF_ROLE, model_weights
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.analyzer.roofline.peaks import DatasheetPeak
from decodescope.analyzer.roofline.roofline import (
    Costs,
    Limit,
    LimitedWork,
    compute_dtype,
    limited_work,
    peak_fields,
)
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import duration
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
    """Tokens by the product of a layer with most FLOPs; requests by the logits. A product that may
    be the head's tells no tokens: transposed, it may fit a small matrix with as many tokens as the
    vocabulary has."""
    head = head_matrix(shape, devices)
    tokens, requests = None, shown_requests(shape, facts, devices)
    fits = tuple(_fits(shape, facts, devices))
    of_head = {product for product, size, _ in fits if size == (head.rows, head.columns)}
    for product, size, fit in fits:
        if size == (head.rows, head.columns):
            requests = requests or fit.tokens
        elif product not in of_head:
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


# Weights and KV cache that a word of a variant's name stands for.
_OF_VARIANT = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_e5m2_cast", "w8a8"), "fp8,head=fp8"),
    "int8": "int8,head=int8",
    **{
        # Without a part, "mxfp4" would be the format of experts alone.
        name: ",".join((name, *(f"{part}={name}" for part in ("attention", "mlp", "head"))))
        for name in ("int4", "int4_g64", "int4_g32", "int4_channel", "int4_asym", "mxfp4", "nvfp4")
    },
    "kv_fp8_e4m3": "kv=fp8",
}
_MOST_NAMED = 5


def model_costs(
    found: MedianStep,
    given: Given,
    model: GivenModel,
    device_name: str,
    peak: DatasheetPeak | None,
    own_cost: StepCost | None,
) -> Costs:
    """The costs of a step by the `model`; `own_cost` is that of its capture.

    Raises:
        InputError: the model contradicts the trace.
    """
    facts = trace_facts(found)
    problems = contradictions(model.shape, facts, model.tensor_parallel, given.batch)
    if words := "; ".join(problems):
        raise InputError(words)
    sizes = step_sizes(found.annotation, given, model.shape, facts, model.tensor_parallel)
    work = role_work(model.shape, sizes.shape, model.weights, model.tensor_parallel)
    cost = own_cost
    if cost is None or model.source != "capture":
        cost = _step_cost(model, sizes, work, device_name, peak)
    if cost.measured_peak_bytes_per_s is not None:
        sheet = peak or DatasheetPeak(0, "", {})
        peak = replace(sheet, bytes_per_s=cost.measured_peak_bytes_per_s, source="measured")
    works = {
        role: limited_work(amount, peak, _dtype(model, role))
        for role, amount in with_fused_roles(
            work, [part.part for part in found.parts if part.ops]
        ).items()
    }
    if model.tensor_parallel > 1:
        sent_bytes = link_bytes(model.shape, sizes.shape, model.tensor_parallel)
        works |= _communication(found, sent_bytes, peak)
    if model.source != "capture":
        _check_time(found, works, model.source)
    return Costs(cost, works)


def _communication(
    found: MedianStep, sent_bytes: int, peak: DatasheetPeak | None
) -> dict[str, LimitedWork]:
    """The work of exposed communication. Its limit is no longer than its time: the rest of the
    communication may be what must be sent."""
    rate = None if peak is None else peak.link_bytes_per_s
    return {
        part.part: LimitedWork(
            sent_bytes,
            0,
            None if not rate else Limit(min(part.ns, round(sent_bytes * 1e9 / rate)), "links"),
        )
        for part in found.parts
        if part.group == "communication"
    }


def _step_cost(
    model: GivenModel,
    sizes: StepSizes,
    work: dict[str, RoleWork],
    device_name: str,
    peak: DatasheetPeak | None,
) -> StepCost:
    return StepCost(
        source=model.source,
        model=model.shape.name,
        dtype=model.shape.dtype,
        bytes_per_step=step_bytes(work),
        flops_per_step=step_flops(work),
        batch=sizes.batch,
        kv_tokens=sizes.kv_tokens,
        query_tokens=None if sizes.batch is None else sizes.shape.queries,
        weights=model.weights_text,
        tensor_parallel=model.tensor_parallel,
        device_name=device_name,
        batch_by_shapes=sizes.batch_by_shapes,
        is_lower_bound=sizes.batch is None or sizes.kv_tokens is None,
        evidence=model.evidence,
        **peak_fields(peak, model.shape.dtype),
    )


def _dtype(model: GivenModel, role: str) -> str:
    """The dtype of the matrix units for a role with products or attention."""
    part = PART_OF_ROLE.get(role)
    if part is None:
        return model.shape.dtype
    return compute_dtype(model.weights.of(part), model.shape.dtype)


def _check_time(found: MedianStep, works: dict[str, LimitedWork], source: str) -> None:
    """The limit is no longer than the kernels of the step ran; of a guess, neither is that of the
    products alone.

    Raises:
        InputError: it is longer.
    """
    groups = [("it", set(works))]
    if source == "guess":
        groups.append(("its products", works.keys() & PART_OF_ROLE.keys()))
    for words, roles in groups:
        least_ns = sum(limit.ns for role in roles if (limit := works[role].limit) is not None)
        ran_ns = sum(part.ns for part in found.parts if part.part in roles or words == "it")
        if ran_ns and least_ns > ran_ns:
            raise InputError(
                f"{words} would take {duration(least_ns)} at least, but the kernels ran for "
                f"{duration(ran_ns)}; the model, its weights (--weights), the degree of "
                "parallelism (--tensor-parallel), the sizes or the bandwidth (--peak) differ"
            )


def guessed_model(found: MedianStep, given: Given) -> tuple[GivenModel | None, tuple[Finding, ...]]:
    """The bundled model that alone fits the trace, and what is to be said about it."""
    from decodescope.analyzer.modelling.guess import candidates, narrowed

    facts = trace_facts(found)
    fitting = candidates(facts, given.tensor_parallel)
    if len(fitting) != 1 or not fitting[0].is_enough:
        if not fitting:
            return None, ()
        words = [candidate.words for candidate in fitting]
        more = f" or {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
        message = (
            f"the trace may be of {', '.join(words[:_MOST_NAMED])}{more} "
            f"({', '.join(fitting[0].evidence.values())}); name the model with --model"
        )
        return None, (Finding("model_candidates", message),)
    (candidate,) = fitting
    shape, devices = candidate.shape, candidate.tensor_parallel
    try:
        weights, text = model_weights(shape, given.weights_text), given.weights_text
    except InputError as error:
        return None, (Finding("model_not_used", str(error)),)
    if text is None:
        least = element_bytes(shape, facts, devices)
        weights, text = narrowed(weights, kernels_of_roles(found), least)
    evidence = tuple(candidate.evidence.values())
    others = f" (or {', '.join(candidate.names[1:])})" if len(candidate.names) > 1 else ""
    message = (
        f"taken for {candidate.words}{others}, a guess by {', '.join(evidence)}; --model NAME "
        "names the model, --model none guesses none"
    )
    chosen = GivenModel(shape, weights, text, devices, "guess", evidence)
    return chosen, (Finding("model_guessed", message),)


def captured_model(capture: CaptureInfo) -> GivenModel | None:
    """The model of one of decodescope's own runs, if its shape is known by name."""
    try:
        shape = replace(read_model_config(capture.model), dtype=capture.dtype)
        words = capture.variant.split("+")
        formats = [_OF_VARIANT[word] for word in words if word in _OF_VARIANT]
        if "head16" in words:
            formats.append(f"head={capture.dtype}")
        # What the variant does not say is as the checkpoint stores it.
        weights = model_weights(shape, ",".join(formats))
        text = ",".join((capture.dtype, *formats))
        return GivenModel(shape, weights, text, capture.tp, source="capture")
    except InputError:
        return None
