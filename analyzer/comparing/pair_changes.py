"""What changed between two profiled windows: launches, ops, busy, idle of each class, ranges."""

from collections.abc import Iterable

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.comparing.role_changes import step_changes
from decodescope.analyzer.schema.comparison_report import Change, Pair, RangeChange, SpeedRatio
from decodescope.analyzer.schema.report import GAP_CLASSES, Report, StepReport

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
        ranges=_ranges(*windows, whole=whole),
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


def _ranges(base: Report | None, other: Report | None, *, whole: bool) -> tuple[RangeChange, ...]:
    if base is None or other is None or not (whole or (base.steps and other.steps)):
        return ()
    return align_ranges(
        base.ranges,
        other.ranges,
        1 if whole else len(base.steps),
        1 if whole else len(other.steps),
    )
