"""The figures of a measured run that are not those of one trace."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.schema.report import Observer, Report
from decodescope.analyzer.schema.run_report import StepTimes


def step_times(step_ns: Sequence[int]) -> StepTimes:
    """Percentiles (nearest measured step, never interpolated) and mean of step times."""
    times = np.asarray(step_ns, dtype=np.int64)
    p50, p90, p99 = (int(np.percentile(times, q, method="inverted_cdf")) for q in (50, 90, 99))
    return StepTimes(p50=p50, p90=p90, p99=p99, mean=round(float(times.mean())))


def tokens_per_s(step_ns: Sequence[int], batch: int) -> float:
    """batch * steps / their total time; 0 where no time passed."""
    total_ns = sum(step_ns)
    return batch * len(step_ns) * 1e9 / total_ns if total_ns else 0.0


def observer_of(report: Report) -> Observer:
    """The report's observer effect, all null where it has none."""
    return report.observer or Observer(None, None, None)
