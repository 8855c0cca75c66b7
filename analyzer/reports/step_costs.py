"""What the step that stands for a trace must read and compute: from its capture, or its model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.contradictions import (
    TraceFacts,
    contradictions,
    product_sizes,
)
from decodescope.analyzer.modelling.role_work import (
    RoleWork,
    step_bytes,
    step_flops,
    with_fused_roles,
)
from decodescope.analyzer.modelling.step import StepShape, causal_pairs
from decodescope.analyzer.modelling.step_work import role_work
from decodescope.analyzer.modelling.weights import Part, model_weights
from decodescope.analyzer.reports.given import Given, GivenModel
from decodescope.analyzer.roofline.limits import compute_dtype, work_limit
from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_cost import StepCost
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
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
    "qkv": "attention", "o": "attention", "gate_up": "mlp", "down": "mlp", "experts": "experts",
    "head": "head",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of the whole step, None if unknown; the work of the roles that have ops in it, empty
    if unknown; the peak, None if unknown; the dtype of the matrix units for the roles with products
    or attention; and why the model was not used, if it was not."""

    step: StepCost | None
    work: dict[str, RoleWork] = field(default_factory=dict)
    peak: DatasheetPeak | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def find_costs(
    timeline: Timeline,
    step: int | None,
    given: Given,
    structure: StructureReport,
    roles: tuple[RoleReport, ...],
) -> Costs:
    """The costs of `step`. A model that contradicts the trace is not used: a finding says where."""
    capture = timeline.trace.capture
    name, peak = _device(timeline, step, given)
    cost = None if capture is None else captured_cost(capture, given.peak)
    model = given.model or (None if capture is None else _model_of(capture))
    if model is None or step is None or timeline.trace.on_cpu:
        return Costs(cost, peak=peak)
    said = kinds_of(timeline.trace, timeline.steps)[step]
    try:
        shape = _step_shape(said, given)
        if problems := _contradictions(timeline, said, given, model, structure, roles):
            raise InputError("; ".join(problems))
        work = role_work(model.shape, shape, model.weights, model.tensor_parallel)
    except InputError as error:
        if given.model is None:
            return Costs(cost, peak=peak)
        why = f"the model {model.shape.name} is not used: {error}"
        return Costs(cost, peak=peak, findings=(Finding("model_not_used", why),))
    present = [row.role for row in roles if row.ops_per_step]
    if given.model is not None or cost is None:
        cost = _of_model(model, shape, work, name, peak)
    return Costs(cost, with_fused_roles(work, present), _deciding(cost, peak), _dtypes(model))


def with_costs(roles: tuple[RoleReport, ...], costs: Costs) -> tuple[RoleReport, ...]:
    """The roles with the bytes and FLOPs of each, and the time that these take at least."""
    return tuple(
        _with_cost(row, costs.work[row.role], costs) if row.role in costs.work else row
        for row in roles
    )


def _with_cost(row: RoleReport, work: RoleWork, costs: Costs) -> RoleReport:
    limit = work_limit(work, costs.peak, costs.dtypes.get(row.role, "bf16"))
    return replace(
        row,
        bytes=work.bytes,
        flops=work.flops,
        limit_ns=None if limit is None else limit.ns,
        bound=None if limit is None else limit.bound,
    )


def _dtypes(model: GivenModel) -> dict[str, str]:
    dtype = model.shape.dtype
    return {
        role: compute_dtype(model.weights.of(part), dtype) for role, part in _PART_OF.items()
    } | {"attention": dtype}


def _device(timeline: Timeline, step: int | None, given: Given) -> tuple[str, DatasheetPeak | None]:
    """The name of the device that the step ran on, and its peak: the user's, else its vendor's."""
    trace = timeline.trace
    if trace.capture is not None:
        name = trace.capture.device_name
    elif step is not None:
        name = trace.device_names.get(int(timeline.steps.device[step]), "")
    else:
        names = set(trace.device_names.values())
        name = names.pop() if len(names) == 1 else ""
    return name, given.peak or datasheet_peak(name)


def captured_cost(capture: CaptureInfo, given: DatasheetPeak | None = None) -> StepCost | None:
    """The cost of a step of one of decodescope's own runs; `given` replaces the peaks."""
    if capture.device == "cpu" or capture.bytes_per_step <= 0:
        return None
    return StepCost(
        source="capture",
        model=capture.model,
        dtype=capture.dtype,
        bytes_per_step=capture.bytes_per_step,
        flops_per_step=capture.flops_per_step,
        batch=capture.batch,
        device_name=capture.device_name,
        measured_peak_bytes_per_s=None if given else capture.measured_peak_bytes_per_s,
        **_peaks(given or datasheet_peak(capture.device_name), capture.dtype),
    )


def _of_model(
    model: GivenModel,
    shape: StepShape,
    work: dict[str, RoleWork],
    name: str,
    peak: DatasheetPeak | None,
) -> StepCost:
    return StepCost(
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
        device_name=name,
        **_peaks(peak, model.shape.dtype),
    )


def _peaks(peak: DatasheetPeak | None, dtype: str) -> dict[str, Any]:
    if peak is None:
        return {}
    return {
        "datasheet_peak_bytes_per_s": peak.bytes_per_s,
        "peak_flops_per_s": peak.flops_per_s.get(dtype),
        "peak_source": peak.source,
    }


def _deciding(cost: StepCost, peak: DatasheetPeak | None) -> DatasheetPeak | None:
    """The peak for limits: the measured bandwidth, if there is one, with the known arithmetic."""
    if cost.measured_peak_bytes_per_s is None:
        return peak
    flops_per_s = {} if peak is None else peak.flops_per_s
    return DatasheetPeak(cost.measured_peak_bytes_per_s, "measured", flops_per_s)


def _model_of(capture: CaptureInfo) -> GivenModel | None:
    """The model of one of decodescope's own runs, if its shape is known by name."""
    try:
        shape = read_model_config(capture.model)
        words = [_OF_VARIANT[one] for one in capture.variant.split("+") if one in _OF_VARIANT]
        text = ",".join((capture.dtype, *words))
        return GivenModel(shape, model_weights(shape, text), text)
    except InputError:
        return None


def _step_shape(said: StepAnnotation, given: Given) -> StepShape:
    batch = given.batch if said.batch is None else said.batch
    if batch is None:
        raise InputError("the trace does not say how many requests a step has; give --batch")
    kv_tokens = said.kv_tokens
    if kv_tokens is None:
        if given.context is None:
            raise InputError("the trace does not say how long the KV cache is; give --context")
        kv_tokens = batch * given.context
    return StepShape(batch, kv_tokens, said.query_tokens, _pairs(said))


def _pairs(said: StepAnnotation) -> int | None:
    """(Query, key) pairs under the causal mask; None where the annotation does not say them, or
    says what cannot be."""
    if said.query_tokens is None or said.query_squares is None or said.query_keys is None:
        return None
    pairs = causal_pairs(said.query_tokens, said.query_squares, said.query_keys)
    most = said.query_tokens * (said.kv_tokens or 0)
    return pairs if said.query_tokens <= pairs <= most else None


def _contradictions(
    timeline: Timeline,
    said: StepAnnotation,
    given: Given,
    model: GivenModel,
    structure: StructureReport,
    roles: tuple[RoleReport, ...],
) -> list[str]:
    tokens = said.query_tokens or said.batch or given.batch or 1
    facts = TraceFacts(
        layers=structure.layers or None,
        product_sizes=product_sizes(timeline.trace.work, tokens),
        roles=[row.role for row in roles if row.ops_per_step] if structure.layers else (),
        batch=said.batch,
    )
    return contradictions(model.shape, facts, model.tensor_parallel, given.batch)
