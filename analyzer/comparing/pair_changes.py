"""Changes between two profiled windows: parts and layers of a step, counts, ranges and kernels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.reports.step_figures import gpu_ops_per_step, launch_calls_per_step
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.comparison_report import (
    Change,
    LayerChange,
    LayerKind,
    Pair,
    PartChange,
    RangeChange,
    SpeedRatio,
    StepChanges,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import LayerReport


def pair_of(
    names: tuple[str, str],
    windows: tuple[Report | None, Report | None],
    *,
    speed: SpeedRatio | None = None,
    step_ns: Change | None = None,
    step: StepChanges | None = None,
) -> Pair:
    """The changes from the first window to the second; `speed`, `step_ns` and `step` are those of
    `Pair`.

    Two windows without steps are compared by their totals. If only one lacks steps, or a window is
    missing, its figures are null.
    """
    whole = not any(window is not None and window.steps for window in windows)
    return Pair(
        base=names[0],
        other=names[1],
        speed=speed,
        step_ns=step_ns,
        launch_calls=Change(*(_launch_calls(window, whole) for window in windows)),
        gpu_ops=Change(*(_gpu_ops(window, whole) for window in windows)),
        ranges=_range_changes(*windows),
        overlapping=any(window is not None and window.overlapping for window in windows),
        step=step,
    )


def _launch_calls(window: Report | None, whole: bool) -> float | None:
    """Those of a step, or of the whole window; CPU captures have none."""
    if window is None or window.on_cpu:
        return None
    return window.launches.calls if whole else launch_calls_per_step(window)


def _gpu_ops(window: Report | None, whole: bool) -> float | None:
    if window is None:
        return None
    return sum(device.gpu_ops for device in window.devices) if whole else gpu_ops_per_step(window)


def _range_changes(base: Report | None, other: Report | None) -> tuple[RangeChange, ...]:
    """The aligned ranges; none unless both windows have steps, or neither does."""
    if base is None or other is None or bool(base.steps) != bool(other.steps):
        return ()
    steps = [window.main_steps.steps or 1 for window in (base, other)]
    return align_ranges(base.ranges, other.ranges, *steps)


def step_changes(base: Report | None, other: Report | None) -> StepChanges | None:
    """The changes between the median steps of two windows; None without one of them."""
    if base is None or other is None:
        return None
    return StepChanges(
        base_step_ns=base.answer.step_ns,
        other_step_ns=other.answer.step_ns,
        parts=part_changes(base.answer, other.answer),
        layers=layer_changes(base, other),
    )


def part_changes(base: Answer, other: Answer) -> tuple[PartChange, ...]:
    """A row for each part of either side, the largest change first; none if only one side has
    steps. The rows do not depend on which side is which."""
    if (base.step_ns is None) != (other.step_ns is None):
        return ()
    base_parts = {part.part: part for part in base.parts}
    other_parts = {part.part: part for part in other.parts}
    rows = []
    for name in {**base_parts, **other_parts}:
        base_part, other_part = base_parts.get(name), other_parts.get(name)
        some_part = base_part or other_part
        assert some_part is not None
        rows.append(
            PartChange(
                part=name,
                group=some_part.group,
                base_ns=base_part.ns if base_part else None,
                other_ns=other_part.ns if other_part else None,
                change_ns=(other_part.ns if other_part else 0) - (base_part.ns if base_part else 0),
                base_ops=base_part.ops or None if base_part else None,
                other_ops=other_part.ops or None if other_part else None,
            )
        )
    return tuple(sorted(rows, key=_by_change))


def _by_change(row: PartChange) -> tuple[int, int, str]:
    """The largest change is first; of equal ones, the longest part."""
    return -abs(row.change_ns), -max(row.base_ns or 0, row.other_ns or 0), row.part


class _LayerTime(NamedTuple):
    """Time of layers in one side's step; `ops` is None for the rest of the step."""

    ns: int
    ops: int | None = None


_Key = tuple[LayerKind, str]
_LayerTimes = dict[_Key, _LayerTime]


def layer_changes(base: Report, other: Report) -> tuple[LayerChange, ...]:
    """The layers of the median steps and the rest of the step; none unless both steps have layers.

    Layers are compared by number if there are as many on both sides, else motif by motif at their
    mean (all layers together if one side has more motifs than the other), with a row for the layers
    that one side has more.
    """
    base_ns, other_ns = base.answer.step_ns, other.answer.step_ns
    if base_ns is None or other_ns is None or not base.layers or not other.layers:
        return ()
    base_times, other_times = _layer_times(base.layers, other.layers)
    return _layer_rows(_completed(base_times, base_ns), _completed(other_times, other_ns))


def _completed(times: _LayerTimes, step_ns: int) -> _LayerTimes:
    counted_ns = sum(time.ns for time in times.values())
    return {**times, ("rest", "rest"): _LayerTime(step_ns - counted_ns)}


def _layer_times(
    base: Sequence[LayerReport], other: Sequence[LayerReport]
) -> tuple[_LayerTimes, _LayerTimes]:
    """The layers of both sides as times that can be compared, then the time outside of layers."""
    base_layers, other_layers = _layers(base), _layers(other)
    base_times: _LayerTimes = {}
    other_times: _LayerTimes = {}
    if len(base_layers) == len(other_layers):
        base_times = {("layer", f"layer {row.layer}"): _time_of([row]) for row in base_layers}
        other_times = {("layer", f"layer {row.layer}"): _time_of([row]) for row in other_layers}
    else:
        base_motifs, other_motifs = _by_motif(base_layers), _by_motif(other_layers)
        if len(base_motifs) != len(other_motifs):
            base_motifs, other_motifs = [base_layers], [other_layers]
        for motif, rows in enumerate(zip(base_motifs, other_motifs, strict=True)):
            name = f" of motif {motif}" if len(base_motifs) > 1 else ""
            shared = min(map(len, rows))
            base_times |= _at_mean(rows[0], shared, name)
            other_times |= _at_mean(rows[1], shared, name)
    return base_times | _outside_layers(base), other_times | _outside_layers(other)


def _at_mean(rows: Sequence[LayerReport], shared: int, name: str) -> _LayerTimes:
    """`shared` layers at the mean of all `rows`, and the others: together exactly their time."""
    whole_ns, whole_ops = _time_of(rows)
    ns, ops = whole_ns * shared // len(rows), (whole_ops or 0) * shared // len(rows)
    times: _LayerTimes = {("layer", f"{_counted(shared, 'layer')}{name}"): _LayerTime(ns, ops)}
    if more := len(rows) - shared:
        key: _Key = "more_layers", f"{_counted(more, 'more layer')}{name}"
        times[key] = _LayerTime(whole_ns - ns, (whole_ops or 0) - ops)
    return times


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


def _outside_layers(rows: Iterable[LayerReport]) -> _LayerTimes:
    return {
        (row.layer, row.layer): _time_of([row]) for row in rows if not isinstance(row.layer, int)
    }


def _time_of(rows: Sequence[LayerReport]) -> _LayerTime:
    return _LayerTime(sum(row.ns_per_step for row in rows), sum(row.ops for row in rows))


def _layer_rows(base: _LayerTimes, other: _LayerTimes) -> tuple[LayerChange, ...]:
    """A row for each layer of either side that takes time or has ops."""
    rows = []
    for kind, name in {**base, **other}:
        base_time, other_time = base.get((kind, name)), other.get((kind, name))
        if any(base_time or ()) or any(other_time or ()):
            base_ns, base_ops = base_time or (None, None)
            other_ns, other_ops = other_time or (None, None)
            change_ns = (other_ns or 0) - (base_ns or 0)
            rows.append(LayerChange(name, kind, base_ns, other_ns, change_ns, base_ops, other_ops))
    return tuple(sorted(rows, key=_by_change_and_number))


def _by_change_and_number(row: LayerChange) -> tuple[int, int, str]:
    """The largest change is first; of equal ones, the layer with the lowest number."""
    return -abs(row.change_ns), len(row.part), row.part


def shortened(rows: Sequence[LayerChange], most: int) -> Sequence[LayerChange]:
    """The first `most` layers, and one row that stands for all others if it saves any."""
    if len(rows) <= most + 1:
        return rows
    rest = rows[most:]
    together = LayerChange(
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
