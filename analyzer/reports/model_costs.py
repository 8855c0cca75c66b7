"""The work of a step by a model: of each role, and of the whole step."""

from dataclasses import replace

from decodescope.analyzer.answer.parts import MedianStep
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.step_work import (
    RoleWork,
    role_work,
    step_bytes,
    step_flops,
    with_fused_roles,
)
from decodescope.analyzer.modelling.trace_facts import contradictions
from decodescope.analyzer.modelling.weights import PART_OF_ROLE, model_weights
from decodescope.analyzer.reports.model_facts import (
    StepSizes,
    element_bytes,
    kernels_of_roles,
    step_sizes,
    trace_facts,
)
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.analyzer.roofline.peaks import DatasheetPeak
from decodescope.analyzer.roofline.roofline import (
    Costs,
    LimitedWork,
    compute_dtype,
    limited_work,
    peak_fields,
)
from decodescope.analyzer.schema.report import CaptureInfo, Finding
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import duration

# Weights and KV cache that a word of a variant's name stands for.
_OF_VARIANT = {
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_e5m2_cast", "w8a8"), "fp8,head=fp8"),
    "int8": "int8,head=int8",
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
        flops_per_s = {} if peak is None else peak.flops_per_s
        peak = DatasheetPeak(cost.measured_peak_bytes_per_s, "measured", flops_per_s)
    works = {
        role: limited_work(amount, peak, _dtype(model, role))
        for role, amount in with_fused_roles(
            work, [part.part for part in found.parts if part.ops]
        ).items()
    }
    if model.source != "capture":
        _check_time(found, works, model.source)
    return Costs(cost, works)


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
        formats = [_OF_VARIANT[word] for word in capture.variant.split("+") if word in _OF_VARIANT]
        # What the variant does not say is as the checkpoint stores it.
        weights = model_weights(shape, ",".join(formats))
        text = ",".join((capture.dtype, *formats))
        return GivenModel(shape, weights, text, source="capture")
    except InputError:
        return None
