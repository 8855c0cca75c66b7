"""The figures of several servers, together and apart."""

import pytest

from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.metrics import Histogram, ServerMetrics

BOUNDS_S = (0.01, 0.02, float("inf"))


def one(
    name: str, second: float, tokens: float, slow: float = 0.0, problem: str = ""
) -> ServerMetrics:
    """A server after so many tokens, of which the share `slow` came after 10 ms or more."""
    counts = (tokens * (1 - slow), tokens, tokens)
    return ServerMetrics(
        second,
        generated_tokens=tokens,
        running=2.0,
        waiting=1.0,
        kv_fill=0.5,
        inter_token_latency=Histogram(BOUNDS_S, counts),
        name=name,
        problem=problem,
    )


def group(*members: ServerMetrics) -> ServerMetrics:
    return ServerMetrics(0.0, servers=members)


def test_figures_of_a_group_are_sums_and_quantiles_of_all() -> None:
    before = group(one("a", 1, 100), one("b", 1, 0))
    after = group(one("a", 2, 400), one("b", 3, 200, slow=1.0))
    found = figures(before, after)
    assert [server.generated_per_s for server in found.servers] == [300.0, 100.0]
    assert found.generated_per_s == 400.0
    assert (found.running, found.waiting, found.kv_fill) == (4.0, 2.0, 0.5)
    # Of 500 tokens, 300 came within 10 ms: the median is the 250th.
    assert found.inter_token_p50_s == pytest.approx(0.01 * 250 / 300)
    assert found.servers[1].inter_token_p50_s == pytest.approx(0.015)
    assert figures(None, after).elapsed_s is None


def test_one_that_vanished_and_restarted_is_no_part_of_the_sums() -> None:
    before = group(one("a", 1, 100), one("b", 1, 900))
    gone = group(one("a", 2, 400), one("b", 1, 900, problem="nothing listens"))
    found = figures(before, gone)
    assert (found.generated_per_s, found.running, found.problem) == (300.0, 2.0, "")
    assert found.servers[1].problem == "nothing listens"
    assert found.servers[1].running is None
    back = figures(gone, group(one("a", 3, 700), one("b", 3, 10)))
    assert [server.restarted for server in back.servers] == [False, True]
    assert (back.generated_per_s, back.restarted, back.running) == (300.0, False, 4.0)


def test_buckets_that_differ_have_no_quantile_together() -> None:
    other = ServerMetrics(2, name="b", inter_token_latency=Histogram((0.5, float("inf")), (4, 4)))
    was = ServerMetrics(1, name="b", inter_token_latency=Histogram((0.5, float("inf")), (0, 0)))
    found = figures(group(one("a", 1, 0), was), group(one("a", 2, 10), other))
    assert found.inter_token_p50_s is None
    assert found.servers[1].inter_token_p50_s == 0.25
