"""Figures of servers, from their metrics: of one, or of several as a group."""

from collections.abc import Callable, Iterable, Sequence

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.attach.servers.metrics import Histogram, ServerMetrics
from decodescope.attach.servers.rates import (
    ServerRates,
    histogram_quantile,
    latencies_between,
    rates,
)


def figures(before: ServerMetrics | None, after: ServerMetrics) -> ServerFigures:
    """The figures of a server, or of a group, at `after`; its rates are those since `before`."""
    if after.servers:
        return _of_group(() if before is None else before.servers, after.servers)
    if after.problem:
        return ServerFigures(after.name, after.problem)
    between = ServerRates(0.0) if before is None else rates(before, after)
    return ServerFigures(
        after.name,
        restarted=between.restarted,
        elapsed_s=None if before is None else between.elapsed_s,
        generated_per_s=between.generated_per_s,
        prompt_per_s=between.prompt_per_s,
        running=after.running,
        waiting=after.waiting,
        kv_fill=after.kv_fill,
        inter_token_p50_s=between.inter_token_p50_s,
        inter_token_p99_s=between.inter_token_p99_s,
    )


def _of_group(before: Sequence[ServerMetrics], after: Sequence[ServerMetrics]) -> ServerFigures:
    was = {one.name: one for one in before}
    servers = tuple(figures(was.get(one.name), one) for one in after)
    answering = [
        (was[now.name], now, shown)
        for now, shown in zip(after, servers, strict=True)
        if now.name in was and not shown.problem and not shown.restarted
    ]
    latencies = _together(latencies_between(then, now) for then, now, _ in answering)

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
        inter_token_p50_s=None if latencies is None else histogram_quantile(0.5, latencies),
        inter_token_p99_s=None if latencies is None else histogram_quantile(0.99, latencies),
        servers=servers,
    )


def _together(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """The observations of all; None if there are none, or their buckets are different."""
    known = [histogram for histogram in histograms if histogram is not None]
    if len({histogram.upper_bounds_s for histogram in known}) != 1:
        return None
    counts = zip(*(histogram.counts for histogram in known), strict=True)
    return Histogram(known[0].upper_bounds_s, tuple(map(sum, counts)))
