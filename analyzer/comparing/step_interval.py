"""The ratio of two sides' step times with its interval: over traces, or over the steps of one each.

The step time of a trace is the lower median of its steps, that of several traces the lower median
of theirs; the ratio is median ÷ median.

Over traces, the interval is Welch's t interval of the difference of the means of the logarithms of
the traces' step times (B. L. Welch, The generalization of "Student's" problem when several
different population variances are involved, Biometrika 34, 1947). Of the methods in
docs/experiments.md that held their level, it found most. One run that is far off would widen it
until nothing is decided, so it leaves out an `outlier` (F. E. Grubbs, Procedures for detecting
outlying observations in samples, Technometrics 11, 1969). It is widened to contain the ratio of the
medians, so that a verdict needs both. A side of one trace does not show how far one run is from the
next; it is taken to vary as the traces of the other side do: s² (1/n + 1), and what its own steps
show.

Over the steps of one trace a side, the interval is around the ratio of the medians and must not
depend on one slow step: the variance of a bootstrap is one of squares, in which a step ten times as
slow, drawn often enough in a few resamples, decides. The spread of the resampled medians is
therefore taken from their central 80 % and 68 %, as the standard deviation of a normal distribution
with the same range; the larger of both, because the median of few steps has few distinct values. As
in `bootstrap`, a side's variance has the factor n / (n - 1), and t Welch's degrees of freedom. The
median of a resample of n steps is their order statistic at n * Beta(k, n - k + 1), where k is the
median's rank (B. Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 7,
1979, section 3), so the steps themselves need not be drawn. The table shows the simulated coverage
of a nominal 95 % in 2,000 comparisons, the lowest and the highest of four cases: 1 % normal noise;
one-sided slow-downs; one step in ten slower by 8 %; one step in ten ten times as slow.

    steps             2          3          4          5          10         20         50
    one trace a side  0.98-1.00  1.00       0.98-0.99  0.96-0.97  0.97-0.98  0.96-0.97  0.95-0.96

Steps of one trace count as independent, which they are not: only several traces show how far one
run is from the next. `python -m benchmarks gate-accuracy` measures how often verdicts are right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

import numpy as np

from decodescope.analyzer.comparing.bootstrap import (
    CONFIDENCE,
    RESAMPLES,
    Floats,
    SideSpread,
    half_width,
    ratio_interval,
    two_sided_t,
)
from decodescope.analyzer.schema.run_report import Interval

FEWEST = 2

_SEED = 20_261_124
# Central ranges of a normal distribution: the share below each, and the deviations to its end.
_RANGES = ((0.1, 1.2816), (0.16, 0.9945))
# More steps or traces than this many times those there are count as impossible.
_MOST_TIMES = 10_000
_FEWEST_WITH_OUTLIER, _OUTLIER_LEVEL, _OUTLIER_LOG = 4, 0.01, math.log(1.1)

StepTimes = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class StepRatio:
    """The ratio of two sides' step times: `ratio` of the medians, `center` of the geometric means
    over traces (the same, of one trace a side), and what each side adds to the interval's width.
    `counts` are the traces of each side, or the steps of two single ones."""

    ratio: float
    center: float
    base: SideSpread
    other: SideSpread
    counts: tuple[int, int]

    def interval(self) -> Interval:
        """The 95 % interval around `center`, with `ratio` in it."""
        around = ratio_interval(self.center, self.base, self.other)
        return Interval(min(around.low, self.ratio), max(around.high, self.ratio), CONFIDENCE)

    def more(self, limit: float = 1.0) -> int | None:
        """How many more traces (or steps) a side would be enough for an interval that does not
        contain `limit`, if they vary as these do, on both sides alike. None if no practical number
        is, or if medians and means lie on different sides of the limit."""
        by_median, by_mean = math.log(self.ratio / limit), math.log(self.center / limit)
        if by_median * by_mean <= 0:
            return None
        low, high = 1.0, float(_MOST_TIMES)
        if half_width(self.base, self.other, high) >= abs(by_mean):
            return None
        while high - low > 0.01 * low:
            between = (low + high) / 2
            if half_width(self.base, self.other, between) < abs(by_mean):
                high = between
            else:
                low = between
        # The m for which 1 / (base + m) + 1 / (other + m) is 1 / `high` of 1 / base + 1 / other.
        base, other = self.counts
        wanted = (1 / base + 1 / other) / high
        middle = (1 + math.hypot(1, wanted * (base - other) / 2)) / wanted
        return max(math.ceil(middle - (base + other) / 2), 1)


def step_ratio(ratio: float, base: StepTimes, other: StepTimes) -> StepRatio | None:
    """The `ratio` (> 0) of two sides of at least one trace, each of at least one step, with what
    its interval needs. None for two single traces if one has fewer than two steps."""
    if len(base) > 1 or len(other) > 1:
        spreads = _over_traces(base, other), _over_traces(other, base)
        center = ratio * math.exp(_mean_over_median(other) - _mean_over_median(base))
        return StepRatio(ratio, center, *spreads, (len(base), len(other)))
    base_spread, other_spread = _over_steps(base[0]), _over_steps(other[0])
    if base_spread is None or other_spread is None:
        return None
    return StepRatio(ratio, ratio, base_spread, other_spread, (len(base[0]), len(other[0])))


def outlier(traces: StepTimes) -> int | None:
    """The trace of a side that its interval leaves out: of at least four, the one furthest from the
    median, if Grubbs's test refuses it at 1 % and it is over 10 % from the mean of the others."""
    return _outlier(_logs(traces))


def _outlier(logs: Floats) -> int | None:
    count = len(logs)
    if count < _FEWEST_WITH_OUTLIER:
        return None
    furthest = int(np.abs(logs - np.median(logs)).argmax())
    others = np.delete(logs, furthest)
    deviations = two_sided_t(1 - _OUTLIER_LEVEL / count, count - 2) * math.sqrt(count / (count - 1))
    least = max(deviations * float(others.std(ddof=1)), _OUTLIER_LOG)
    return furthest if abs(logs[furthest] - others.mean()) > least else None


def _over_traces(traces: StepTimes, against: StepTimes) -> SideSpread:
    """The spread of a side's mean logarithm. Of a single trace only what its steps show: how runs
    vary is then counted twice on the other side, so that the degrees of freedom are its."""
    if len(traces) == 1:
        return _over_steps(traces[0]) or SideSpread(0.0, FEWEST)
    logs = _kept(_logs(traces))
    share = 1 / len(logs) + (len(against) == 1)
    return SideSpread(float(logs.var(ddof=1)) * share, len(logs))


def _mean_over_median(traces: StepTimes) -> float:
    """The mean of the logarithms of the traces' step times, less that of their lower median."""
    logs = _logs(traces)
    return float((_kept(logs) - np.sort(logs)[(len(logs) - 1) // 2]).mean())


def _kept(logs: Floats) -> Floats:
    outlier_index = _outlier(logs)
    return logs if outlier_index is None else np.delete(logs, outlier_index)


def _logs(traces: StepTimes) -> Floats:
    """The logarithm of the step time of each trace."""
    return np.log([max(median_low(times_ns), 1) for times_ns in traces])


def _over_steps(times_ns: Sequence[int]) -> SideSpread | None:
    """The spread of the lower median of the steps of one trace; None for fewer than two."""
    count = len(times_ns)
    if count < FEWEST:
        return None
    rank = (count - 1) // 2 + 1
    drawn = np.random.default_rng(_SEED).beta(rank, count - rank + 1, RESAMPLES)
    places = np.minimum((drawn * count).astype(np.int64), count - 1)
    medians = np.log(np.maximum(np.sort(times_ns), 1))[np.sort(places)]
    last = RESAMPLES - 1
    spread = max(
        float(medians[round(last * (1 - below))] - medians[round(last * below)]) / (2 * deviations)
        for below, deviations in _RANGES
    )
    return SideSpread(spread * spread * count / (count - 1), count)
