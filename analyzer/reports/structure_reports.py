"""The structure of the step that stands for a trace: layers, bytes and FLOPs."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from decodescope.analyzer.answer.parts import WORK, MedianStep, OpShares
from decodescope.analyzer.attribution.ranges import Ranges, replay_sources
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.roofline.peaks import datasheet_peak
from decodescope.analyzer.roofline.roofline import Costs, captured_cost, limits_by_shapes
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.schema.step_report import (
    Confidence,
    LayerPlace,
    LayerReport,
    StructureReport,
    StructureSource,
)
from decodescope.analyzer.structure.layers import MIN_LAYERS, StepLayers
from decodescope.analyzer.structure.paths import layer_of_nodes
from decodescope.analyzer.structure.step_structure import NO_LAYER, Structure
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s, grouped

NO_STRUCTURE = StructureReport("none", 0, 0, (), 0, "none")
# Ranges are a check if they name the layer of at least this share of the ops in layers.
_CHECKED = 0.5


@dataclass(frozen=True, slots=True)
class _Layers:
    source: StructureSource
    confidence: Confidence
    bounds: tuple[int, ...]
    motif: tuple[int, ...]


def structure_reports(
    timeline: Timeline,
    ranges: Ranges,
    structure: Structure,
    step: int | None,
    shares: OpShares | None,
) -> tuple[StructureReport, tuple[LayerReport, ...]]:
    """The layers of a step: their number and sizes, and each in order, with the ops before, behind
    and outside of them; () without layers. `ranges` are without inferred paths."""
    rows, found_layers = structure.of_step.get(-1 if step is None else step, (None, None))
    layers = None if rows is None else _step_layers(timeline, ranges, rows, found_layers)
    if rows is None or layers is None:
        return NO_STRUCTURE, ()
    sizes = np.diff(layers.bounds)
    motifs = list(dict.fromkeys(layers.motif))
    report = StructureReport(
        source=layers.source,
        layers=len(sizes),
        prologue_ops=layers.bounds[0],
        layer_ops=tuple(
            _typical(sizes[[layer_motif == motif for layer_motif in layers.motif]])
            for motif in motifs
        ),
        epilogue_ops=len(rows) - layers.bounds[-1],
        confidence=layers.confidence,
        motif_layers=tuple(layers.motif.count(motif) for motif in motifs),
        step=step,
    )
    if step is None or shares is None:
        return report, ()
    # The place of each op: 0 before the layers, 1 to count in one, count + 1 behind them, count + 2
    # outside: of another step, or on a device without layers.
    count = len(layers.motif)
    place = np.full(len(timeline.trace.ops), count + 2, dtype=np.int64)
    own = np.flatnonzero(timeline.steps.op_step == step)
    for of_device in grouped(own, timeline.trace.ops.device):
        layer = structure.layer[of_device].astype(np.int64)
        if layer.max() == count - 1:
            behind = np.where(structure.prologue[of_device], 0, count + 1)
            place[of_device] = np.where(layer == NO_LAYER, behind, layer + 1)
    place[rows] = np.repeat(np.arange(count + 2), np.diff((0, *layers.bounds, len(rows))))
    time_ns = np.zeros(count + 3, dtype=np.int64)
    np.add.at(time_ns, place[shares.rows], shares.ns)
    ops = np.bincount(place[own], minlength=count + 3)
    names: tuple[int | LayerPlace, ...] = ("prologue", *range(count), "epilogue", "outside")
    motif_of = (None, *(motifs.index(motif) for motif in layers.motif), None, None)
    return report, tuple(
        LayerReport(layer=name, motif=motif, ops=number, ns_per_step=taken_ns)
        for name, motif, number, taken_ns in zip(
            names, motif_of, ops.tolist(), time_ns.tolist(), strict=True
        )
        if motif is not None or number or taken_ns
    )


def _step_layers(
    timeline: Timeline, ranges: Ranges, rows: Int64s, layers: StepLayers | None
) -> _Layers | None:
    """The layers of a step, whose ops on its main device are `rows` in launch order; `layers` are
    those found by repetition."""
    named = np.append(layer_of_nodes(ranges.tree), NO_LAYER)[ranges.op_node[rows]]
    sources = replay_sources(timeline.trace, ranges.reference_op[rows])
    by: StructureSource = "ranges"
    recorded: tuple[Literal["capture", "annotations"], ...] = ("capture", "annotations")
    for source in recorded:
        if 2 * sources.get(source, 0) > len(rows):
            by = source
    return _from_ranges(named, by) if layers is None else _checked(layers, named, by)


def _checked(layers: StepLayers, named: Int64s, by: StructureSource) -> _Layers:
    """The layers found by repetition, compared with those that ranges name for the same ops."""
    bounds = (*(layer.start for layer in layers.layers), layers.layers[-1].end)
    motif = tuple(layer.motif for layer in layers.layers)
    number = np.repeat(np.arange(len(motif)), np.diff(bounds))
    by_range = named[bounds[0] : bounds[-1]]
    known = by_range != NO_LAYER
    if known.mean() < _CHECKED:
        exact = all(layer.exact for layer in layers.layers)
        return _Layers("repetition", "exact" if exact else "partial", bounds, motif)
    first = int(by_range[known].min())
    agree = bool((by_range[known] - first == number[known]).all())
    return _Layers(by, "exact" if agree else "partial", bounds, motif)


def _from_ranges(named: Int64s, by: StructureSource) -> _Layers | None:
    """The layers that ranges name, where repetition found none: each from its first op on."""
    known = np.flatnonzero(named != NO_LAYER)
    numbers, first = np.unique(named[known], return_index=True)
    if len(numbers) < MIN_LAYERS or (np.diff(known[first]) <= 0).any():
        return None
    last = int(known[named[known] == numbers[-1]][-1])
    bounds = (*known[first].tolist(), last + 1)
    sizes = np.diff(bounds).tolist()
    return _Layers(by, "partial", bounds, tuple(sizes.index(size) for size in sizes))


def _typical(sizes: Int64s) -> int:
    """The most frequent of some sizes; of equally frequent ones the largest."""
    values, counts = np.unique(sizes, return_counts=True)
    return int(values[len(counts) - 1 - int(counts[::-1].argmax())])


def choose_model(found: MedianStep, facts: Given) -> tuple[Given, tuple[Finding, ...]]:
    """The facts with the model of the trace, if there is one: the user's, that of its capture, or a
    guess by the step that stands for the trace; and what is to be said about a guess."""
    trace = found.timeline.trace
    if facts.model is not None or found.step is None or found.shares is None or trace.on_cpu:
        return facts, ()
    if trace.capture is None and not (facts.guess and _shows_a_model(found)):
        return facts, ()
    # Traces that show no model need none of the modules that model one.
    from decodescope.analyzer.reports.model_costs import captured_model, guessed_model

    if trace.capture is not None:
        return replace(facts, model=captured_model(trace.capture)), ()
    model, findings = guessed_model(found, facts)
    return replace(facts, model=model), findings


def find_costs(found: MedianStep, facts: Given) -> Costs:
    """The costs of a step: by the model among the `facts`, or by the shapes that the trace has. A
    model that contradicts the step is not used: a finding says where."""
    trace, step, shares = found.timeline.trace, found.step, found.shares
    capture, names = trace.capture, set(trace.device_names.values())
    if capture is not None:
        device_name = capture.device_name
    elif step is not None:
        device_name = trace.device_names.get(int(found.timeline.steps.device[step]), "")
    else:
        device_name = names.pop() if len(names) == 1 else ""
    peak = facts.peak or datasheet_peak(device_name)
    own_cost = None if capture is None else captured_cost(capture, facts.peak)
    costs = Costs(own_cost)
    if shares is None or trace.on_cpu:
        return costs
    if step is not None and (model := facts.model) is not None:
        from decodescope.analyzer.reports.model_costs import model_costs

        try:
            costs = model_costs(found, facts, model, device_name, peak, own_cost)
        except InputError as error:
            if model.source != "capture":
                why = f"the model {model.shape.name} is not used: {error}"
                costs = replace(costs, findings=(Finding("model_not_used", why),))
    if costs.step is not None:
        return costs
    works = limits_by_shapes(
        trace,
        found.timeline.work,
        shares.rows[shares.own],
        shares.ns[shares.own],
        shares.part[shares.own],
        peak,
    )
    return replace(costs, parts={WORK[number]: work for number, work in works.items()})


def _shows_a_model(found: MedianStep) -> bool:
    """Whether there is evidence of a model beside layers, for a guess."""
    trace = found.timeline.trace
    if not found.layers:
        return False
    if len(trace.work) or len(trace.messages) or trace.reference is not None:
        return True
    if any(part.part in ("experts", "qk_norm") for part in found.parts):
        return True
    return any("ForCausalLM_" in name or "DecoderLayer_" in name for name in trace.names)
