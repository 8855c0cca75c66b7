"""Figures of servers between two moments, from their metrics: of one, or of several as a group."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from msgspec.structs import replace

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.attach.servers.metrics import Histogram, ServerMetrics


def figures(before: ServerMetrics | None, after: ServerMetrics) -> ServerFigures:
    """The figures of a server, or of a group, at `after`; its rates are those since `before`."""
    if after.servers:
        return _of_group(() if before is None else before.servers, after.servers)
    if after.problem:
        return ServerFigures(after.name, after.problem)
    now = ServerFigures(
        after.name, running=after.running, waiting=after.waiting, kv_fill=after.kv_fill
    )
    if before is None:
        return now
    elapsed_s = after.time_s - before.time_s
    now = replace(now, elapsed_s=elapsed_s)
    if elapsed_s <= 0:
        return now
    if _has_restarted(before, after):
        return replace(now, restarted=True)
    generated = _rate(before.generated_tokens, after.generated_tokens, elapsed_s)
    latencies = _latencies_between(before, after)
    return replace(
        now,
        generated_per_s=after.generated_per_s if generated is None else generated,
        prompt_per_s=_rate(before.prompt_tokens, after.prompt_tokens, elapsed_s),
        inter_token_p50_s=histogram_quantile(0.5, latencies),
        inter_token_p99_s=histogram_quantile(0.99, latencies),
    )


def histogram_quantile(q: float, histogram: Histogram | None) -> float | None:
    """The `q`-quantile of a histogram, 0 < q <= 1, as PromQL's `histogram_quantile` estimates it.

    Observations are taken to spread evenly over their bucket, whose lower bound is the one of the
    bucket before, and 0 of the first. In the bucket without an upper bound the estimate is its
    lower bound. None if there is no observation.
    """
    if histogram is None or histogram.counts[-1] <= 0:
        return None
    bounds, counts = histogram.upper_bounds_s, histogram.counts
    rank = q * counts[-1]
    bucket = bisect_left(counts, rank, hi=len(counts) - 1)
    if bucket == len(counts) - 1:
        return bounds[-2]
    lower, below = (bounds[bucket - 1], counts[bucket - 1]) if bucket else (0.0, 0.0)
    share = (rank - below) / (counts[bucket] - below)
    return lower + (bounds[bucket] - lower) * share


def _of_group(before: Sequence[ServerMetrics], after: Sequence[ServerMetrics]) -> ServerFigures:
    was = {one.name: one for one in before}
    servers = tuple(figures(was.get(one.name), one) for one in after)
    answering = [
        (was[now.name], now, shown)
        for now, shown in zip(after, servers, strict=True)
        if now.name in was and not shown.problem and not shown.restarted
    ]
    latencies = _together(_latencies_between(then, now) for then, now, _ in answering)

    def total(figure: Callable[[ServerFigures], float | None]) -> float | None:
        known = [value for one in servers if (value := figure(one)) is not None]
        return sum(known) if known else None

    fills = [one.kv_fill for one in servers if one.kv_fill is not None]
    return ServerFigures(
        f"{len(servers)} servers",
        problem="" if any(not one.problem for one in servers) else servers[0].problem,
        elapsed_s=max((one.elapsed_s or 0 for _, _, one in answering), default=None),
        generated_per_s=total(lambda one: one.generated_per_s),
        prompt_per_s=total(lambda one: one.prompt_per_s),
        running=total(lambda one: one.running),
        waiting=total(lambda one: one.waiting),
        kv_fill=sum(fills) / len(fills) if fills else None,
        inter_token_p50_s=histogram_quantile(0.5, latencies),
        inter_token_p99_s=histogram_quantile(0.99, latencies),
        servers=servers,
    )


def _latencies_between(before: ServerMetrics, after: ServerMetrics) -> Histogram | None:
    """The inter-token latencies between two moments of one server; None if it has none, or not the
    same buckets."""
    was, now = before.inter_token_latency, after.inter_token_latency
    if was is None or now is None or was.upper_bounds_s != now.upper_bounds_s:
        return None
    new = (count - old for old, count in zip(was.counts, now.counts, strict=True))
    # A server may write its buckets while they are read; cumulative counts never go down.
    return Histogram(now.upper_bounds_s, tuple(accumulate(new, max)))


def _together(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """The observations of all; None if there are none, or their buckets are different."""
    known = [histogram for histogram in histograms if histogram is not None]
    if len({histogram.upper_bounds_s for histogram in known}) != 1:
        return None
    counts = zip(*(histogram.counts for histogram in known), strict=True)
    return Histogram(known[0].upper_bounds_s, tuple(map(sum, counts)))


def _has_restarted(before: ServerMetrics, after: ServerMetrics) -> bool:
    """Whether a counter went back, so that the server is not the one of before."""
    pairs = zip(_counters(before), _counters(after), strict=True)
    return any(was is not None and now is not None and now < was for was, now in pairs)


def _counters(metrics: ServerMetrics) -> tuple[float | None, ...]:
    latencies = metrics.inter_token_latency
    observed = None if latencies is None else latencies.counts[-1]
    return (metrics.generated_tokens, metrics.prompt_tokens, metrics.iterations, observed)


def _rate(before: float | None, after: float | None, elapsed_s: float) -> float | None:
    return None if before is None or after is None else (after - before) / elapsed_s
