"""The work of a step by a model: of each role, and of the whole step."""

from collections.abc import Mapping

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.contradictions import TraceFacts, contradictions, product_sizes
from decodescope.analyzer.modelling.shape import StepShape, causal_pairs
from decodescope.analyzer.modelling.step_work import (
    role_work,
    step_bytes,
    step_flops,
    with_fused_roles,
)
from decodescope.analyzer.modelling.weights import Part, model_weights
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.analyzer.roofline.peaks import DatasheetPeak
from decodescope.analyzer.roofline.roofline import Costs, compute_dtype, peak_fields
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import RoleReport, StepCost, StructureReport
from decodescope.analyzer.timing.step_annotations import StepAnnotation
from decodescope.analyzer.timing.step_kinds import kinds_of
from decodescope.analyzer.timing.timeline import Timeline

# Weights and KV cache that a word of a variant's name stands for.
_OF_VARIANT = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_e5m2_cast", "w8a8"), "fp8,head=fp8"),
    "int8": "int8,head=int8",
    "kv_fp8_e4m3": "kv=fp8",
}
_PART_OF: Mapping[str, Part] = {
    "qkv": "attention",
    "o": "attention",
    "gate_up": "mlp",
    "down": "mlp",
    "experts": "experts",
    "head": "head",
}


def model_costs(
    timeline: Timeline,
    step: int,
    facts: Given,
    structure: StructureReport,
    roles: tuple[RoleReport, ...],
    device_name: str,
    captured: Costs,
) -> Costs:
    """The costs of `step` by the user's model, else by the model that its capture names; `captured`
    are those without a model. A model that contradicts the trace is not used: a finding says where.
    """
    capture, cost, peak = timeline.trace.capture, captured.step, captured.peak
    model = facts.model or (None if capture is None else _model_of(capture))
    if model is None:
        return captured
    annotation = kinds_of(timeline.trace, timeline.steps)[step]
    present = [row.role for row in roles if row.ops_per_step]
    try:
        shape = _step_shape(annotation, facts)
        tokens = annotation.query_tokens or annotation.batch or facts.batch or 1
        trace_facts = TraceFacts(
            layers=structure.layers or None,
            product_sizes=product_sizes(timeline.trace.work, tokens),
            roles=present if structure.layers else (),
            batch=annotation.batch,
        )
        tensor_parallel = model.tensor_parallel
        if problems := contradictions(model.shape, trace_facts, tensor_parallel, facts.batch):
            raise InputError("; ".join(problems))
        work = role_work(model.shape, shape, model.weights, model.tensor_parallel)
    except InputError as error:
        if facts.model is None:
            return captured
        why = f"the model {model.shape.name} is not used: {error}"
        return Costs(cost, peak=peak, findings=(Finding("model_not_used", why),))
    if facts.model is not None or cost is None:
        cost = StepCost(
            source="model",
            model=model.shape.name,
            dtype=model.shape.dtype,
            bytes_per_step=step_bytes(work),
            flops_per_step=step_flops(work),
            batch=shape.batch,
            kv_tokens=shape.kv_tokens,
            query_tokens=shape.queries,
            weights=model.weights_text,
            tensor_parallel=model.tensor_parallel,
            device_name=device_name,
            **peak_fields(peak, model.shape.dtype),
        )
    if cost.measured_peak_bytes_per_s is not None:
        flops_per_s = {} if peak is None else peak.flops_per_s
        peak = DatasheetPeak(cost.measured_peak_bytes_per_s, "measured", flops_per_s)
    dtypes = {
        role: compute_dtype(model.weights.of(part), model.shape.dtype)
        for role, part in _PART_OF.items()
    }
    return Costs(
        cost,
        with_fused_roles(work, present),
        peak,
        {**dtypes, "attention": model.shape.dtype},
    )


def _model_of(capture: CaptureInfo) -> GivenModel | None:
    """The model of one of decodescope's own runs, if its shape is known by name."""
    try:
        shape = read_model_config(capture.model)
        formats = [_OF_VARIANT[word] for word in capture.variant.split("+") if word in _OF_VARIANT]
        text = ",".join((capture.dtype, *formats))
        return GivenModel(shape, model_weights(shape, text), text)
    except InputError:
        return None


def _step_shape(annotation: StepAnnotation, facts: Given) -> StepShape:
    batch = facts.batch if annotation.batch is None else annotation.batch
    if batch is None:
        raise InputError("the trace does not say how many requests a step has; give --batch")
    kv_tokens = annotation.kv_tokens
    if kv_tokens is None:
        if facts.context is None:
            raise InputError("the trace does not say how long the KV cache is; give --context")
        kv_tokens = batch * facts.context
    return StepShape(batch, kv_tokens, annotation.query_tokens, _pairs(annotation))


def _pairs(annotation: StepAnnotation) -> int | None:
    """(Query, key) pairs under the causal mask; None where the annotation does not say them, or
    says what cannot be."""
    tokens, squares = annotation.query_tokens, annotation.query_squares
    keys = annotation.query_keys
    if tokens is None or squares is None or keys is None:
        return None
    pairs = causal_pairs(tokens, squares, keys)
    return pairs if tokens <= pairs <= tokens * (annotation.kv_tokens or 0) else None
