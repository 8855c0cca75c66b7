"""Variants over numbers of ranks."""

import pytest

from benchmarks.steps.rank_scaling import cases_of, figures_of, ranks_table
from decodescope.analyzer.errors import InputError
from tests.helpers.rich_report import text_of


def run(tokens_per_s: float) -> dict:
    window = dict.fromkeys(("bytes_per_step", "answer", "health", "communication"))
    times = {"step_ns": {"p50": 5}, "bandwidth": {"mbu": None}}
    return {"tokens_per_s": tokens_per_s, **times, **window}


def test_a_variant_is_compared_with_itself_on_the_fewest_ranks_that_ran_it() -> None:
    cases = cases_of("fused,compiled", "1,2,4", "compiled:1")
    assert cases == [("fused", 1), ("fused", 2), ("fused", 4), ("compiled", 2), ("compiled", 4)]
    speeds = [(100.0, 50.0), (150.0, 100.0), (200.0, 200.0), (10.0, 20.0), (30.0, 30.0)]
    runs = {case: [run(each) for each in two] for case, two in zip(cases, speeds, strict=True)}
    figures = figures_of(runs)
    gains = [(one["variant"], one["ranks"], one["over_first"].rounds) for one in figures]
    assert gains == [
        ("fused", 1, (1.0, 1.0)),
        ("fused", 2, (1.5, 2.0)),
        ("fused", 4, (2.0, 4.0)),
        ("compiled", 2, (1.0, 1.0)),
        ("compiled", 4, (3.0, 1.5)),
    ]
    assert "125" in text_of(ranks_table("m", figures))


@pytest.mark.parametrize(("ranks", "but"), [("0,1", ""), ("two", ""), ("1,", ""), ("1", "fused:1")])
def test_what_cannot_be_run_is_refused(ranks: str, but: str) -> None:
    with pytest.raises(InputError, match=r"--ranks|--without"):
        cases_of("fused", ranks, but)
