"""Rates and latencies of a server between two moments."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from msgspec import Struct

from decodescope.attach.servers.metrics import Histogram, ServerMetrics


class ServerRates(Struct, frozen=True):
    """What a server did in `elapsed_s`; None where its metrics do not say it.

    `restarted` says that a counter went back, so the server is not the one of before, and nothing
    is known of the time between.
    """

    elapsed_s: float
    restarted: bool = False
    generated_per_s: float | None = None
    prompt_per_s: float | None = None
    inter_token_p50_s: float | None = None
    inter_token_p99_s: float | None = None


def rates(before: ServerMetrics, after: ServerMetrics) -> ServerRates:
    """The rates between two moments of one server."""
    elapsed_s = after.time_s - before.time_s
    if elapsed_s <= 0:
        return ServerRates(elapsed_s)
    if _has_restarted(before, after):
        return ServerRates(elapsed_s, restarted=True)
    generated = _rate(before.generated_tokens, after.generated_tokens, elapsed_s)
    latencies = latencies_between(before, after)
    return ServerRates(
        elapsed_s,
        generated_per_s=after.generated_per_s if generated is None else generated,
        prompt_per_s=_rate(before.prompt_tokens, after.prompt_tokens, elapsed_s),
        inter_token_p50_s=None if latencies is None else histogram_quantile(0.5, latencies),
        inter_token_p99_s=None if latencies is None else histogram_quantile(0.99, latencies),
    )


def latencies_between(before: ServerMetrics, after: ServerMetrics) -> Histogram | None:
    """The inter-token latencies between two moments of one server; None if it has none, or not the
    same buckets."""
    was, now = before.inter_token_latency, after.inter_token_latency
    if was is None or now is None or was.upper_bounds_s != now.upper_bounds_s:
        return None
    new = (count - old for old, count in zip(was.counts, now.counts, strict=True))
    return Histogram(now.upper_bounds_s, _ascending(tuple(new)))


def histogram_quantile(q: float, histogram: Histogram) -> float | None:
    """The `q`-quantile of a histogram, 0 < q <= 1, as PromQL's `histogram_quantile` estimates it.

    Observations are taken to spread evenly over their bucket, whose lower bound is the one of the
    bucket before, and 0 of the first. In the bucket without an upper bound the estimate is its
    lower bound. None if there is no observation.
    """
    bounds, counts = histogram.upper_bounds_s, histogram.counts
    rank = q * counts[-1]
    if counts[-1] <= 0:
        return None
    bucket = bisect_left(counts, rank, hi=len(counts) - 1)
    if bucket == len(counts) - 1:
        return bounds[-2]
    lower, below = (bounds[bucket - 1], counts[bucket - 1]) if bucket else (0.0, 0.0)
    share = (rank - below) / (counts[bucket] - below)
    return lower + (bounds[bucket] - lower) * share


def _has_restarted(before: ServerMetrics, after: ServerMetrics) -> bool:
    histograms = (before.inter_token_latency, after.inter_token_latency)
    pairs = [
        (before.generated_tokens, after.generated_tokens),
        (before.prompt_tokens, after.prompt_tokens),
        (before.iterations, after.iterations),
        (_total(histograms[0]), _total(histograms[1])),
    ]
    return any(was is not None and is_now is not None and is_now < was for was, is_now in pairs)


def _total(histogram: Histogram | None) -> float | None:
    return None if histogram is None else histogram.counts[-1]


def _rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    return None if before is None or after is None else (after - before) / elapsed_s


def _ascending(counts: Sequence[float]) -> tuple[float, ...]:
    """Counts that never go down: a server may write its buckets while they are read."""
    return tuple(accumulate(counts, max, initial=-math.inf))[1:]
