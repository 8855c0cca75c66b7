"""Changes between two profiled windows: figures of a step, ranges, roles, layers and kernels.

step time = busy time of its ops + idle time of each class + host tail, as in `roofline.waterfall`.
The attributed times of the roles add up to the busy time of the whole GPU span, so a row
`beyond_step` takes away what the waterfall does not count: ops that ran while the next step did, or
during an interruption.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from decodescope.analyzer.answer.parts import busy_ns
from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.schema.comparison_report import (
    Change,
    Pair,
    PartKind,
    RangeChange,
    SpeedRatio,
    StepChanges,
    StepPartChange,
)
from decodescope.analyzer.schema.report import GAP_CLASSES, Report, StepReport
from decodescope.analyzer.schema.step_report import LayerReport

ALL_IDLE = "all"
_STEP_FIGURES = ("launch_calls", "gpu_ops", "busy_ns")


def pair_of(
    names: tuple[str, str],
    windows: tuple[Report | None, Report | None],
    speed: SpeedRatio | None,
    step_ns: Change,
) -> Pair:
    """The changes from the first window to the second.

    Two windows without steps are compared by their totals. If only one lacks steps, or a window is
    missing, its figures are null.
    """
    whole = not any(window is not None and window.steps for window in windows)
    base, other = (_figures(window, whole) for window in windows)

    def change(name: str) -> Change:
        return Change(base.get(name), other.get(name))

    return Pair(
        base=names[0],
        other=names[1],
        speed=speed,
        step_ns=step_ns,
        **{name: change(name) for name in _STEP_FIGURES},
        idle_ns={name: change(name) for name in (*GAP_CLASSES, ALL_IDLE)},
        ranges=_range_changes(*windows),
        overlapping=any(window is not None and window.overlapping for window in windows),
        step=step_changes(*windows),
    )


def _figures(window: Report | None, whole: bool) -> dict[str, float]:
    """A window's totals, or the means of its steps, with idle time by gap class; what is unknown is
    missing. CPU captures have no launch calls."""
    if window is None or not (whole or window.steps):
        return {}
    if whole:
        devices = window.devices
        figures: dict[str, float] = {
            "launch_calls": window.launches.calls,
            "gpu_ops": sum(device.gpu_ops for device in devices),
            "busy_ns": sum(device.busy_ns for device in devices),
            ALL_IDLE: sum(device.idle_ns for device in devices),
        }
        for name in GAP_CLASSES:
            gaps = (device.gaps[name] for device in devices if name in device.gaps)
            figures[name] = sum(total.total_ns for total in gaps)
    else:
        steps = uninterrupted_steps(window)
        figures = {name: fmean(getattr(step, name) for step in steps) for name in _STEP_FIGURES}
        figures |= _idle_of_steps(steps)
    if window.on_cpu:
        del figures["launch_calls"]
    return figures


def _range_changes(base: Report | None, other: Report | None) -> tuple[RangeChange, ...]:
    """The aligned ranges; none unless both windows have steps, or neither does."""
    if base is None or other is None or bool(base.steps) != bool(other.steps):
        return ()
    steps = [window.main_steps.steps or 1 for window in (base, other)]
    return align_ranges(base.ranges, other.ranges, *steps)


def uninterrupted_steps(window: Report) -> tuple[StepReport, ...]:
    """The steps without an interruption; all steps if there is no such one."""
    interrupted = {interruption.step for interruption in window.interruptions}
    return tuple(step for step in window.steps if step.index not in interrupted) or window.steps


def _idle_of_steps(steps: tuple[StepReport, ...]) -> dict[str, float]:
    """Mean idle of each class, and of all; a step that launched nothing has no idle time.

    All is missing if no step launched anything, the classes if they do not add up to the idle time.
    """
    if all(step.idle_ns is None for step in steps):
        return {}
    figures = {ALL_IDLE: fmean(step.idle_ns or 0 for step in steps)}
    if all(sum(step.gaps.values()) == (step.idle_ns or 0) for step in steps):
        figures |= {name: fmean(step.gaps.get(name, 0) for step in steps) for name in GAP_CLASSES}
    return figures


class _StepPart(NamedTuple):
    """Time of one side's step; `ops` is None for time in which nothing runs."""

    ns: int
    ops: int | None = None


_Key = tuple[PartKind, str]
_StepParts = dict[_Key, _StepPart]
_NOT_BUSY: _Key = ("not_busy", "not_busy")


def step_changes(base: Report | None, other: Report | None) -> StepChanges | None:
    """The parts of the two steps that stand for the reports; None unless both have one with roles.

    Layers are compared by number if there are
    as many on both sides, else motif by motif at their mean (all layers together if one side has
    more motifs than the other), with a row for the layers that one side has more.
    """
    if base is None or other is None:
        return None
    base_ns, other_ns = _step_ns(base), _step_ns(other)
    if base_ns is None or other_ns is None:
        return None
    roles = _rows(_role_parts(base), _role_parts(other))
    layers: tuple[StepPartChange, ...] = ()
    if base.layers and other.layers:
        base_layers, other_layers = _layer_parts(base.layers, other.layers)
        layers = _rows(
            _completed(base_layers, base, base_ns), _completed(other_layers, other, other_ns)
        )
    return StepChanges(base_ns, other_ns, other_ns - base_ns, roles, layers)


def _step_ns(report: Report) -> int | None:
    return report.answer.step_ns


def _role_parts(report: Report) -> _StepParts:
    return {
        ("idle" if part.group == "host" or part.part in GAP_CLASSES else "role", part.part): (
            _StepPart(part.ns, part.ops or None)
        )
        for part in report.answer.parts
    }


def _completed(parts: _StepParts, report: Report, step_ns: int) -> _StepParts:
    """The parts with the rest of the step: time in which nothing runs, and (negative) what they
    count beyond the step."""
    counted_ns = sum(part.ns for part in parts.values())
    step_busy_ns = busy_ns(report.answer.parts)
    return {
        **parts,
        _NOT_BUSY: _StepPart(step_ns - step_busy_ns),
        ("beyond_step", "beyond_step"): _StepPart(step_busy_ns - counted_ns),
    }


def _layer_parts(
    base: Sequence[LayerReport], other: Sequence[LayerReport]
) -> tuple[_StepParts, _StepParts]:
    """The layers of both sides as parts that can be compared, then the time outside of layers."""
    base_layers, other_layers = _layers(base), _layers(other)
    base_parts: _StepParts = {}
    other_parts: _StepParts = {}
    if len(base_layers) == len(other_layers):
        base_parts = {("layer", f"layer {row.layer}"): _part([row]) for row in base_layers}
        other_parts = {("layer", f"layer {row.layer}"): _part([row]) for row in other_layers}
    else:
        base_motifs, other_motifs = _by_motif(base_layers), _by_motif(other_layers)
        if len(base_motifs) != len(other_motifs):
            base_motifs, other_motifs = [base_layers], [other_layers]
        for motif, rows in enumerate(zip(base_motifs, other_motifs, strict=True)):
            name = f" of motif {motif}" if len(base_motifs) > 1 else ""
            shared = min(map(len, rows))
            base_parts |= _atfmean(rows[0], shared, name)
            other_parts |= _atfmean(rows[1], shared, name)
    return base_parts | _outside_layers(base), other_parts | _outside_layers(other)


def _atfmean(rows: Sequence[LayerReport], shared: int, name: str) -> _StepParts:
    """`shared` layers at the mean of all `rows`, and the others: together exactly their time."""
    whole_ns, whole_ops = _part(rows)
    ns, ops = whole_ns * shared // len(rows), (whole_ops or 0) * shared // len(rows)
    parts: _StepParts = {("layer", f"{_counted(shared, 'layer')}{name}"): _StepPart(ns, ops)}
    if more := len(rows) - shared:
        key: _Key = "more_layers", f"{_counted(more, 'more layer')}{name}"
        parts[key] = _StepPart(whole_ns - ns, (whole_ops or 0) - ops)
    return parts


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _layers(rows: Iterable[LayerReport]) -> list[LayerReport]:
    return [row for row in rows if isinstance(row.layer, int)]


def _by_motif(layers: Iterable[LayerReport]) -> list[list[LayerReport]]:
    """The layers of each motif, in order of appearance."""
    motifs: dict[int | None, list[LayerReport]] = {}
    for row in layers:
        motifs.setdefault(row.motif, []).append(row)
    return list(motifs.values())


def _outside_layers(rows: Iterable[LayerReport]) -> _StepParts:
    return {(row.layer, row.layer): _part([row]) for row in rows if not isinstance(row.layer, int)}


def _part(rows: Sequence[LayerReport]) -> _StepPart:
    return _StepPart(sum(row.ns_per_step for row in rows), sum(row.ops for row in rows))


def _rows(base: _StepParts, other: _StepParts) -> tuple[StepPartChange, ...]:
    """A row for each part of either side that takes time or has ops, the largest change first;
    their order does not depend on which side is which."""
    places: dict[_Key, int] = {}
    for parts in (base, other):
        for place, key in enumerate(parts):
            places[key] = min(place, places.get(key, place))
    rows = []
    for kind, name in sorted(places, key=lambda key: (places[key], key)):
        base_part, other_part = base.get((kind, name)), other.get((kind, name))
        if any(base_part or ()) or any(other_part or ()):
            base_ns, base_ops = base_part or (None, None)
            other_ns, other_ops = other_part or (None, None)
            change_ns = (other_ns or 0) - (base_ns or 0)
            rows.append(
                StepPartChange(name, kind, base_ns, other_ns, change_ns, base_ops, other_ops)
            )
    return tuple(sorted(rows, key=lambda row: -abs(row.change_ns)))


def shortened(rows: Sequence[StepPartChange], most: int | None) -> Sequence[StepPartChange]:
    """The first `most` layers, and one row that stands for all others if it saves any."""
    if most is None or len(rows) <= most + 1:
        return rows
    rest = rows[most:]
    together = StepPartChange(
        part=f"{len(rest)} more, together",
        kind="layer",
        base_ns=sum(row.base_ns or 0 for row in rest),
        other_ns=sum(row.other_ns or 0 for row in rest),
        change_ns=sum(row.change_ns for row in rest),
        base_ops=sum(row.base_ops or 0 for row in rest),
        other_ops=sum(row.other_ops or 0 for row in rest),
    )
    return (*rows[:most], together)


@dataclass(frozen=True, slots=True)
class KernelChange:
    """One kernel of both sides: calls and ns per step (for two traces without steps in all); a side
    that lacks it is null. If ops overlap on a side, `ns` is attributed time."""

    name: str
    count: Change
    ns: Change


def kernel_changes(base: Report, other: Report) -> tuple[KernelChange, ...]:
    """Every kernel of both sides, the one whose time changed most first; none if only one side has
    steps. The changes add up to that of the kernels' time."""
    if bool(base.steps) != bool(other.steps):
        return ()
    attributed = base.overlapping or other.overlapping
    base_kernels, other_kernels = _kernels(base, attributed), _kernels(other, attributed)
    unknown = (None, None)
    rows = [
        KernelChange(
            name,
            *map(Change, base_kernels.get(name, unknown), other_kernels.get(name, unknown)),
        )
        for name in {**base_kernels, **other_kernels}
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.ns.moved), row.name)))


def _kernels(report: Report, attributed: bool) -> dict[str, tuple[float, float]]:
    """Calls and ns per step of each kernel."""
    steps = report.main_steps.steps or 1
    return {
        kernel.name: (
            kernel.count / steps,
            (kernel.attributed_ns if attributed else kernel.total_ns) / steps,
        )
        for kernel in report.kernels
    }
