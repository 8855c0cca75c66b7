"""How measured values are spread: nearest-rank percentiles and buckets of powers of two."""

import numpy as np

from decodescope.analyzer.schema.report import Percentiles
from decodescope.analyzer.trace import Int64s

_BOUNDS = np.left_shift(np.int64(1), np.arange(63, dtype=np.int64))


def histogram(values_ns: Int64s) -> tuple[tuple[int, int], ...]:
    """(upper bound, count) of the occupied buckets 1, 2, 4, 8, …, in order.

    A value falls into the first bucket whose bound it does not exceed, so the first one also holds
    what is not positive.
    """
    if not len(values_ns):
        return ()
    counts = np.bincount(np.searchsorted(_BOUNDS, values_ns)).tolist()
    return tuple((1 << power, count) for power, count in enumerate(counts) if count)


def percentiles(values_ns: Int64s) -> Percentiles | None:
    """Nearest-rank percentiles (always a measured value), None of nothing."""
    if not len(values_ns):
        return None
    p50, p90, p99 = np.percentile(values_ns, (50, 90, 99), method="inverted_cdf")
    return Percentiles(
        p50=int(p50),
        p90=int(p90),
        p99=int(p99),
        min=int(values_ns.min()),
        max=int(values_ns.max()),
        histogram=histogram(values_ns),
    )
