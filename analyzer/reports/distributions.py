"""How measured values are distributed: nearest-rank percentiles, histograms, step times."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.schema.kernel_report import Percentiles, StepTimes
from decodescope.analyzer.schema.report import GapTotal
from decodescope.analyzer.trace import Int64s

Buckets = Sequence[tuple[int, int]]
_BOUNDS = np.left_shift(np.int64(1), np.arange(63, dtype=np.int64))


def histogram(values_ns: Int64s) -> tuple[tuple[int, int], ...]:
    """(upper bound, count) of the occupied buckets 1, 2, 4, 8, …, in order: a value belongs to the
    first bucket whose bound it does not exceed, also one <= 0."""
    if not len(values_ns):
        return ()
    counts = np.bincount(np.searchsorted(_BOUNDS, values_ns)).tolist()
    return tuple((1 << power, count) for power, count in enumerate(counts) if count)


def total_of(lengths_ns: Int64s) -> GapTotal:
    """Count, sum, maximum and histogram of the lengths."""
    return GapTotal(
        count=len(lengths_ns),
        total_ns=int(lengths_ns.sum()),
        max_ns=int(lengths_ns.max(initial=0)),
        histogram=histogram(lengths_ns),
    )


def shared_bounds(histograms: Sequence[Buckets]) -> list[int]:
    """All powers of two from the smallest to the largest bound that occurs; empty without any."""
    occupied = [bound.bit_length() for buckets in histograms for bound, _ in buckets]
    return [1 << (bits - 1) for bits in range(min(occupied), max(occupied) + 1)] if occupied else []


def percentiles(values_ns: Int64s) -> Percentiles | None:
    """Nearest-rank percentiles (always a measured value), None without values."""
    if not len(values_ns):
        return None
    p50, p90, p99 = _ranked(values_ns)
    return Percentiles(
        p50=p50,
        p90=p90,
        p99=p99,
        min=int(values_ns.min()),
        max=int(values_ns.max()),
        histogram=histogram(values_ns),
    )


def step_times(step_ns: Sequence[int]) -> StepTimes:
    """Percentiles (nearest measured step, never interpolated) and mean of step times."""
    times = np.asarray(step_ns, dtype=np.int64)
    return StepTimes(*_ranked(times), mean=round(float(times.mean())))


def tokens_per_s(step_ns: Sequence[int], batch: int) -> float:
    """batch * steps / their total time; 0 if no time passed."""
    total_ns = sum(step_ns)
    return batch * len(step_ns) * 1e9 / total_ns if total_ns else 0.0


def _ranked(values: Int64s) -> tuple[int, int, int]:
    p50, p90, p99 = np.percentile(values, (50, 90, 99), method="inverted_cdf")
    return int(p50), int(p90), int(p99)
