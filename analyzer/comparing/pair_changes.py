"""What changed between two profiled windows: launches, ops, busy, idle of each class, ranges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange, SpeedRatio
from decodescope.analyzer.schema.report import GAP_CLASSES, Report, StepReport

ALL_IDLE = "all"
IDLE_FIGURES = (*GAP_CLASSES, ALL_IDLE)


@dataclass(frozen=True, slots=True)
class _Figures:
    """A window's figures per step, or its totals; None where missing."""

    launch_calls: float | None
    gpu_ops: float | None
    busy_ns: float | None
    idle_ns: Mapping[str, float | None]


_MISSING = _Figures(None, None, None, dict.fromkeys(IDLE_FIGURES))


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
    return Pair(
        base=names[0],
        other=names[1],
        speed=speed,
        step_ns=step_ns,
        launch_calls=Change(base.launch_calls, other.launch_calls),
        gpu_ops=Change(base.gpu_ops, other.gpu_ops),
        busy_ns=Change(base.busy_ns, other.busy_ns),
        idle_ns={key: Change(base.idle_ns[key], other.idle_ns[key]) for key in IDLE_FIGURES},
        ranges=_ranges(*windows, whole=whole),
    )


def _figures(window: Report | None, whole: bool) -> _Figures:
    """Means over the window's steps, or its totals; CPU captures have no launch calls."""
    if window is None or not (whole or window.steps):
        return _MISSING
    if whole:
        devices = window.devices
        return _Figures(
            launch_calls=None if window.on_cpu else window.launches.calls,
            gpu_ops=sum(device.gpu_ops for device in devices),
            busy_ns=sum(device.busy_ns for device in devices),
            idle_ns={
                name: sum(device.gaps[name].total_ns for device in devices if name in device.gaps)
                for name in GAP_CLASSES
            }
            | {ALL_IDLE: sum(device.idle_ns for device in devices)},
        )
    steps = window.steps
    return _Figures(
        launch_calls=None if window.on_cpu else _mean(step.launch_calls for step in steps),
        gpu_ops=_mean(step.gpu_ops for step in steps),
        busy_ns=_mean(step.busy_ns for step in steps),
        idle_ns=_idle_of_steps(steps),
    )


def _idle_of_steps(steps: tuple[StepReport, ...]) -> dict[str, float | None]:
    """Mean idle of each class; a step that launched nothing has no idle time.

    All of it is null if no step launched anything, the classes if they do not add up to the idle
    time.
    """
    if all(step.idle_ns is None for step in steps):
        return dict.fromkeys(IDLE_FIGURES)
    idle_ns = _mean(step.idle_ns or 0 for step in steps)
    figures: dict[str, float | None] = dict.fromkeys(GAP_CLASSES)
    if all(sum(step.gaps.values()) == (step.idle_ns or 0) for step in steps):
        figures = {name: _mean(step.gaps.get(name, 0) for step in steps) for name in GAP_CLASSES}
    return figures | {ALL_IDLE: idle_ns}


def _mean(values: Iterable[int]) -> float:
    numbers = tuple(values)
    return sum(numbers) / len(numbers)


def _ranges(base: Report | None, other: Report | None, *, whole: bool) -> tuple[RangeChange, ...]:
    if base is None or other is None or not (whole or (base.steps and other.steps)):
        return ()
    return align_ranges(
        base.ranges,
        other.ranges,
        1 if whole else len(base.steps),
        1 if whole else len(other.steps),
    )
