"""Changes between two profiled windows: parts of a step, ranges and kernels."""

from dataclasses import dataclass

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.comparison_report import (
    Change,
    Pair,
    PartChange,
    RangeChange,
    SpeedRatio,
    StepChanges,
)
from decodescope.analyzer.schema.report import Report


def pair_of(
    names: tuple[str, str],
    windows: tuple[Report | None, Report | None],
    *,
    speed: SpeedRatio | None = None,
    step: StepChanges | None = None,
) -> Pair:
    """The changes from the first window to the second; `speed` and `step` are those of `Pair`."""
    return Pair(
        base=names[0],
        other=names[1],
        speed=speed,
        ranges=_range_changes(*windows),
        overlapping=any(window is not None and window.overlapping for window in windows),
        step=step,
    )


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
    parts = part_changes(base.answer, other.answer)
    return StepChanges(base.answer.step_ns, other.answer.step_ns, parts)


def part_changes(base: Answer, other: Answer) -> tuple[PartChange, ...]:
    """A row for each part of either side, the largest change first, of equal ones the longest;
    none if only one side has steps, or ops. The rows do not depend on which side is which."""
    if (base.step_ns is None) != (other.step_ns is None):
        return ()
    if not (base.parts and other.parts):
        return ()
    base_parts = {part.part: part for part in base.parts}
    other_parts = {part.part: part for part in other.parts}
    rows = []
    for name, part in (base_parts | other_parts).items():
        base_part, other_part = base_parts.get(name), other_parts.get(name)
        rows.append(
            PartChange(
                part=name,
                group=part.group,
                base_ns=base_part.ns if base_part else None,
                other_ns=other_part.ns if other_part else None,
                change_ns=(other_part.ns if other_part else 0) - (base_part.ns if base_part else 0),
                base_ops=base_part.ops or None if base_part else None,
                other_ops=other_part.ops or None if other_part else None,
            )
        )
    rows.sort(
        key=lambda row: (-abs(row.change_ns), -max(row.base_ns or 0, row.other_ns or 0), row.part)
    )
    return tuple(rows)


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
