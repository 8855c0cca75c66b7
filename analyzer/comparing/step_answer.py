"""Step against step: the ratio of two step times with its interval, and the change of each part."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.comparability import work_differences
from decodescope.analyzer.comparing.pair_changes import layer_changes, part_changes
from decodescope.analyzer.comparing.step_interval import (
    FEWEST,
    SideSpread,
    ratio_interval,
    side_spread,
    times_as_many,
)
from decodescope.analyzer.schema.comparison_report import ChangeVerdict, DiffAnswer, SideTrace
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.run_report import Interval

BASE, OTHER = "A", "B"


def median_trace(reports: Sequence[Report]) -> Report:
    """The trace with the (lower) median step time; the first, if none has a step time."""
    timed = [report for report in reports if report.answer.step_ns is not None]
    ordered = sorted(timed, key=lambda report: report.answer.step_ns or 0)
    return ordered[(len(ordered) - 1) // 2] if ordered else reports[0]


def diff_answer(bases: Sequence[Report], others: Sequence[Report]) -> DiffAnswer:
    """Compares two sides of at least one trace each. The parts of the step are those of the traces
    with the median step time, whose quotient the ratio is."""
    base, other = median_trace(bases), median_trace(others)
    base_ns, other_ns = base.answer.step_ns, other.answer.step_ns
    base_traces, other_traces = _side_traces(bases), _side_traces(others)
    differences = work_differences(base, other)
    ratio = _quotient(base_ns, other_ns)
    judgement = _Judgement()
    if differences:
        judgement = _Judgement(reason="A and B differ in " + ", ".join(differences))
    elif ratio is not None:
        judgement = _judged(ratio, _spread(base_traces), _spread(other_traces))
    return DiffAnswer(
        base_step_ns=base_ns,
        other_step_ns=other_ns,
        ratio=ratio,
        interval=judgement.interval,
        verdict=judgement.verdict,
        reason=judgement.reason,
        parts=part_changes(base.answer, other.answer),
        layers=layer_changes(base, other),
        differences=differences,
        base_traces=base_traces,
        other_traces=other_traces,
        more_base=judgement.more_base,
        more_other=judgement.more_other,
        unprofiled_ratio=_quotient(base.answer.unprofiled_step_ns, other.answer.unprofiled_step_ns),
    )


@dataclass(frozen=True, slots=True)
class _Judgement:
    """Why there is no interval, or the interval and how much more data would decide."""

    reason: str | None = None
    interval: Interval | None = None
    more_base: int | None = None
    more_other: int | None = None

    @property
    def verdict(self) -> ChangeVerdict:
        if self.interval is None:
            return "unknown"
        if self.interval.low > 1:
            return "slower"
        return "faster" if self.interval.high < 1 else "no_difference_shown"


def _judged(ratio: float, base: SideSpread | int, other: SideSpread | int) -> _Judgement:
    """The judgement from the spread of both sides, or from the number of steps of a side that has
    too few for one."""
    few = [
        f"{name} has {_steps(side)}"
        for name, side in ((BASE, base), (OTHER, other))
        if isinstance(side, int)
    ]
    if isinstance(base, int) or isinstance(other, int):
        return _Judgement(
            reason=f"{' and '.join(few)}: an interval needs at least {FEWEST} a side",
            more_base=FEWEST - base if isinstance(base, int) else 0,
            more_other=FEWEST - other if isinstance(other, int) else 0,
        )
    interval = ratio_interval(ratio, base, other)
    times = None if interval.low > 1 or interval.high < 1 else times_as_many(ratio, base, other)
    if times is None:
        return _Judgement(interval=interval)
    more_base, more_other = (math.ceil((times - 1) * side.count) for side in (base, other))
    return _Judgement(interval=interval, more_base=more_base, more_other=more_other)


def _quotient(base_ns: int | None, other_ns: int | None) -> float | None:
    return other_ns / base_ns if base_ns and other_ns else None


def _side_traces(reports: Sequence[Report]) -> tuple[SideTrace, ...]:
    return tuple(
        SideTrace(
            report.source.path,
            report.answer.step_ns,
            tuple(step.time_ns or 0 for step in report.steps if step.timed),
        )
        for report in reports
    )


def _spread(traces: Sequence[SideTrace]) -> SideSpread | int:
    """The spread of a side's step time; the number of its steps, if there are too few."""
    times_ns = [trace.step_times_ns for trace in traces if trace.step_times_ns]
    return side_spread(times_ns) or len(times_ns[0])


def _steps(number: int) -> str:
    return "1 timed step" if number == 1 else f"{number} timed steps"
