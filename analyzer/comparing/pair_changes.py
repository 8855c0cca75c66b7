"""Changes between two profiled windows: figures of a step, ranges, roles, layers and kernels.

step time = busy time of its ops + idle time of each class + host tail, as in `roofline.waterfall`.
The attributed times of the roles add up to the busy time of the whole GPU span, so a row
`beyond_step` takes away what the waterfall does not count: ops that ran while the next step did, or
during an interruption.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.roofline.waterfall import busy_time_ns
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
        ranges=_range_changes(*windows, whole=whole),
        overlapping=any(window is not None and window.overlapping for window in windows),
        step=step_changes(*windows),
    )


def _figures(window: Report | None, whole: bool) -> dict[str, float]:
    """A window's totals, or the means of its steps, with idle time by gap class; what is unknown is
    missing. CPU captures have no launch calls."""
    if window is None or not (whole or window.steps):
        return {}
    devices, steps = window.devices, window.steps
    if whole:
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
        figures = {name: _mean(getattr(step, name) for step in steps) for name in _STEP_FIGURES}
        figures |= _idle_of_steps(steps)
    if window.on_cpu:
        del figures["launch_calls"]
    return figures


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
    figures = {ALL_IDLE: _mean(step.idle_ns or 0 for step in steps)}
    if all(sum(step.gaps.values()) == (step.idle_ns or 0) for step in steps):
        figures |= {name: _mean(step.gaps.get(name, 0) for step in steps) for name in GAP_CLASSES}
    return figures


def _mean(values: Iterable[int]) -> float:
    numbers = tuple(values)
    return sum(numbers) / len(numbers)


def _range_changes(
    base: Report | None, other: Report | None, *, whole: bool
) -> tuple[RangeChange, ...]:
    if base is None or other is None or not (whole or (base.steps and other.steps)):
        return ()
    return align_ranges(
        base.ranges,
        other.ranges,
        1 if whole else len(base.steps),
        1 if whole else len(other.steps),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Time of one side's step; `ops` is None for time in which nothing runs."""

    ns: int
    ops: int | None = None


_Key = tuple[PartKind, str]
_Parts = dict[_Key, _Part]
_NOT_BUSY: _Key = ("not_busy", "not_busy")


def step_changes(base: Report | None, other: Report | None) -> StepChanges | None:
    """The parts of the two steps that stand for the reports; None unless both have one with roles.

    Idle time is split by class if both have a waterfall. Layers are compared by number if there are
    as many on both sides, else motif by motif at their mean (all layers together if one side has
    more motifs than the other), with a row for the layers that one side has more.
    """
    if base is None or other is None:
        return None
    base_ns, other_ns = _step_ns(base), _step_ns(other)
    if base_ns is None or other_ns is None:
        return None
    split = bool(base.waterfall and other.waterfall)
    base_parts, other_parts = (
        _role_parts(*side, split) for side in ((base, base_ns), (other, other_ns))
    )
    layers: tuple[StepPartChange, ...] = ()
    if base.layers and other.layers:
        first, second = _layer_parts(base.layers, other.layers)
        layers = _rows(_completed(first, base, base_ns), _completed(second, other, other_ns))
    return StepChanges(
        base_ns, other_ns, other_ns - base_ns, _rows(base_parts, other_parts), layers
    )


def _step_ns(report: Report) -> int | None:
    """The time of the profiled step that stands for a trace, without interruptions."""
    if not report.roles or report.observer is None:
        return None
    return report.observer.profiled_step_ns


def _role_parts(report: Report, step_ns: int, split: bool) -> _Parts:
    parts: _Parts = {
        ("role", row.role): _Part(row.ns_per_step, row.ops_per_step) for row in report.roles
    }
    completed = _completed(parts, report, step_ns)
    if split:
        rest_ns = completed.pop(_NOT_BUSY).ns
        idle: _Parts = {
            ("idle", part.part): _Part(part.ns)
            for part in report.waterfall
            if part.part in GAP_CLASSES
        }
        tail_ns = rest_ns - sum(part.ns for part in idle.values())
        completed |= {**idle, ("host_tail", "host_tail"): _Part(tail_ns)}
    return completed


def _completed(parts: _Parts, report: Report, step_ns: int) -> _Parts:
    """The parts with the rest of the step: time in which nothing runs, and (negative) what they
    count beyond the step."""
    counted_ns = sum(part.ns for part in parts.values())
    busy_ns = busy_time_ns(report.waterfall)
    if busy_ns is None:
        busy_ns = min(counted_ns, step_ns)
    return {
        **parts,
        _NOT_BUSY: _Part(step_ns - busy_ns),
        ("beyond_step", "beyond_step"): _Part(busy_ns - counted_ns),
    }


def _layer_parts(
    base: Sequence[LayerReport], other: Sequence[LayerReport]
) -> tuple[_Parts, _Parts]:
    sides = _by_motif(base), _by_motif(other)
    around = _around(base), _around(other)
    if len(_layers(base)) == len(_layers(other)):
        one, two = ({_layer_key(row): _part([row]) for row in _layers(r)} for r in (base, other))
        return {**one, **around[0]}, {**two, **around[1]}
    if len(sides[0]) != len(sides[1]):
        sides = [_layers(base)], [_layers(other)]
    means: tuple[_Parts, _Parts] = ({}, {})
    for motif, rows in enumerate(zip(*sides, strict=True)):
        name = f" of motif {motif}" if len(sides[0]) > 1 else ""
        shared = min(map(len, rows))
        for parts, mine in zip(means, rows, strict=True):
            parts |= _at_mean(mine, shared, name)
    return {**means[0], **around[0]}, {**means[1], **around[1]}


def _at_mean(rows: Sequence[LayerReport], shared: int, name: str) -> _Parts:
    """`shared` layers at the mean of all `rows`, and the others: together exactly their time."""
    whole = _part(rows)
    ns, ops = whole.ns * shared // len(rows), (whole.ops or 0) * shared // len(rows)
    parts: _Parts = {("layer", f"{_counted(shared, 'layer')}{name}"): _Part(ns, ops)}
    if more := len(rows) - shared:
        parts["more_layers", f"{_counted(more, 'more layer')}{name}"] = _Part(
            whole.ns - ns, (whole.ops or 0) - ops
        )
    return parts


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _layers(rows: Iterable[LayerReport]) -> list[LayerReport]:
    return [row for row in rows if isinstance(row.layer, int)]


def _by_motif(rows: Iterable[LayerReport]) -> list[list[LayerReport]]:
    """The layers of each motif, in order of appearance."""
    motifs: dict[int | None, list[LayerReport]] = {}
    for row in _layers(rows):
        motifs.setdefault(row.motif, []).append(row)
    return list(motifs.values())


def _around(rows: Iterable[LayerReport]) -> _Parts:
    """The time outside of all layers."""
    return {(row.layer, row.layer): _part([row]) for row in rows if not isinstance(row.layer, int)}


def _layer_key(row: LayerReport) -> _Key:
    return "layer", f"layer {row.layer}"


def _part(rows: Sequence[LayerReport]) -> _Part:
    return _Part(sum(row.ns_per_step for row in rows), sum(row.ops for row in rows))


def _rows(base: _Parts, other: _Parts) -> tuple[StepPartChange, ...]:
    """A row for each part of either side that takes time or has ops, the largest change first."""
    rows = (_row(key, base.get(key), other.get(key)) for key in _keys(base, other))
    shown = [row for row in rows if row.base_ns or row.other_ns or row.base_ops or row.other_ops]
    return tuple(sorted(shown, key=lambda row: -abs(row.change_ns)))


def _keys(base: _Parts, other: _Parts) -> Iterator[_Key]:
    """All keys, in an order that does not depend on which side is which."""
    order = {key: place for place, key in enumerate(base)}
    after = {key: place for place, key in enumerate(other)}
    last = len(order) + len(after)
    places = {
        key: (min(order.get(key, last), after.get(key, last)), key) for key in {**order, **after}
    }
    yield from sorted(places, key=lambda key: places[key])


def _row(key: _Key, base: _Part | None, other: _Part | None) -> StepPartChange:
    kind, part = key
    return StepPartChange(
        part=part,
        kind=kind,
        base_ns=base.ns if base else None,
        other_ns=other.ns if other else None,
        change_ns=(other.ns if other else 0) - (base.ns if base else 0),
        base_ops=base.ops if base else None,
        other_ops=other.ops if other else None,
    )


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
    before, after = (_kernels(report, attributed) for report in (base, other))
    none = (None, None)
    rows = [
        KernelChange(
            name,
            Change(before.get(name, none)[0], after.get(name, none)[0]),
            Change(before.get(name, none)[1], after.get(name, none)[1]),
        )
        for name in dict.fromkeys((*before, *after))
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.ns.moved), row.name)))


def _kernels(report: Report, attributed: bool) -> dict[str, tuple[float, float]]:
    """Calls and ns per step of each kernel."""
    steps = len(report.steps) or 1
    return {
        kernel.name: (
            kernel.count / steps,
            (kernel.attributed_ns if attributed else kernel.total_ns) / steps,
        )
        for kernel in report.kernels
    }
