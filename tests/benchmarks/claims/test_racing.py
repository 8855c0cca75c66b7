"""Entrants are checked before they are timed, take turns, and a wrong one gets no speed-up."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.claims.racing import REPLAY_BYTES, Entrant, Racing, Work
from benchmarks.claims.report import Race
from benchmarks.claims.rows import share_of_peak, speed_up
from benchmarks.harness.cold_graphs import launches_per_replay
from tests.helpers.fake_clock import FakeClock

WORK = Work(bytes_moved=1_000_000)
REFERENCE = torch.arange(1.0, 9.0, dtype=torch.float64)


def racing(*times: float, rounds: int = 3) -> Racing:
    return Racing(FakeClock(*times), 1 << 20, 1e12, {"bf16": 1e12}, rounds)  # type: ignore[arg-type]


def entrant(name: str, error: float = 0.0, ours: bool = True, **changes: object) -> Entrant:
    def result() -> tuple[torch.Tensor, ...]:
        return (REFERENCE * (1 + error),)

    fields: dict[str, object] = {
        "name": name,
        "what": name,
        "calls": [lambda: None, lambda: None],
        "result": result,
        "reference": lambda: (REFERENCE,),
        "tolerance": 1e-3,
        "ours": ours,
    }
    return Entrant(**fields | changes)  # type: ignore[arg-type]


def raced(entrants: Sequence[Entrant], *times: float) -> Race:
    return racing(*times).race("any size", WORK, entrants)


def test_the_ratio_is_taken_within_each_round() -> None:
    # Five replays of a graph and one launched mean for each of the two, round by round.
    per_round = [*[256e3] * 5, 9e3, *[128e3] * 5, 4e3]
    slow_round = [3 * ns for ns in per_round]
    race = raced([entrant("base"), entrant("ours")], *per_round, *slow_round, *per_round)
    row = speed_up("x", race, "base", "ours", 1.5)
    assert row.measured is not None
    assert row.measured.rounds == (2.0, 2.0, 2.0)
    assert row.reached
    # 128 launches of two copies: 2 and 1 µs a call, and 1 MB takes 1 µs at 1 TB/s.
    assert row.limit == pytest.approx(2.0)
    assert row.measured_share == pytest.approx(1.0)
    launched = speed_up("x", race, "base", "ours", 3.0, launched=True)
    assert launched.measured is not None
    assert launched.measured.median == pytest.approx(2.25)
    assert launched.reached is False


@pytest.mark.parametrize("wrong", ["base", "ours"])
@pytest.mark.parametrize("error", [2e-3, float("nan"), float("inf")])
def test_a_wrong_result_gets_no_speed_up(wrong: str, error: float) -> None:
    entrants = [entrant(name, error if name == wrong else 0.0) for name in ("base", "ours")]
    race = raced(entrants, 1e3)
    row = speed_up("x", race, "base", "ours", 2.0)
    assert row.measured is None
    assert row.reached is None
    assert row.error is not None
    assert row.error.startswith(f"{wrong}: ")
    assert race.entrant(wrong).device_ns is None


def test_what_works_in_place_is_compared_with_what_it_started_from() -> None:
    x = torch.ones(4, dtype=torch.float64)
    in_place = entrant("ours", result=lambda: (x.mul_(2),), reference=lambda: (2 * x,))
    assert raced([in_place], 1e3).entrant("ours").error is None


def test_a_peer_that_cannot_run_is_left_out_and_ours_must_run() -> None:
    def refuses() -> tuple[torch.Tensor, ...]:
        raise RuntimeError("no such GPU\nat line 3")

    peer = entrant("peer", ours=False, result=refuses)
    race = raced([entrant("ours"), peer], 1e3)
    assert race.entrant("peer").error == "not available: no such GPU"
    assert race.entrant("ours").device_ns is not None
    with pytest.raises(RuntimeError):
        raced([entrant("ours", result=refuses)], 1e3)


def test_a_result_may_replace_what_it_is_computed_from() -> None:
    x = torch.ones(4, dtype=torch.float64)
    adds = entrant("ours", result=lambda: (x.add_(1),), reference=lambda: (x + 1,))
    assert raced([adds], 1e3).entrant("ours").error is None


def test_what_a_graph_cannot_hold_has_no_device_time() -> None:
    race = raced([entrant("base", graphed=False), entrant("ours")], 1e3)
    assert race.entrant("base").device_ns is None
    assert race.entrant("base").launched_ns is not None
    assert speed_up("x", race, "base", "ours", 2.0).error is not None
    assert speed_up("x", race, "base", "ours", 2.0, launched=True).error is None


def test_the_larger_of_bytes_and_flops_is_the_bound() -> None:
    measured = racing(1e3)
    assert measured.bound_ns(Work(1_000_000)) == pytest.approx(1e3)
    assert measured.bound_ns(Work(1_000_000, 4_000_000, "bf16")) == pytest.approx(4e3)
    assert measured.bound_ns(Work(1_000_000, 4_000_000, "fp8")) is None


def test_a_claim_beyond_the_bound_says_that_it_is() -> None:
    race = raced([entrant("base"), entrant("ours")], 128 * 1.2e3, *[128 * 1.2e3] * 4, 1.0)
    row = speed_up("x", race, "base", "ours", 8.1)
    assert row.limit == pytest.approx(1.2)
    assert "no kernel can be 8.10 x as fast" in row.explanation


def test_a_share_of_a_peak_is_by_the_bytes_that_a_source_counts() -> None:
    race = raced([entrant("ours")], *[128 * 2e3] * 5, 1.0)
    row = share_of_peak("x", race, "ours", 0.88, 3_000_000, 1.25e12)
    assert row.measured is not None
    assert row.measured.rounds == pytest.approx((1.2, 1.2, 1.2))
    # 1 MB takes 1 µs, in which 2.4 times the bytes of the datasheet's bandwidth would count.
    assert row.limit == pytest.approx(2.4)
    assert row.measured_share == pytest.approx(0.5)
    assert row.explanation == "3.00 MB by this count in 2.00 µs; the work needs 1.00 MB"
    exact = share_of_peak("x", race, "ours", 0.88, 1_010_000, 1.25e12)
    assert exact.explanation == "1.01 MB by this count in 2.00 µs"
    eager = raced([entrant("ours", traffic_bytes=9_000_000)], *[128 * 2e3] * 5, 1.0)
    more = share_of_peak("x", eager, "ours", 0.11, 1_000_000, 1.25e12)
    assert more.explanation == "1.00 MB by this count in 2.00 µs; ours moves 9.00 MB"
    assert share_of_peak("x", race, "ours", 0.88, 1, None).error == "the peak is not known"


def test_a_slow_baseline_is_explained_by_its_launches_and_bytes() -> None:
    base = entrant("base", launches=6, traffic_bytes=3_440_000)
    per_round = [*[128 * 8e3] * 5, 1e3, *[128 * 2e3] * 5, 1e3]
    race = raced([base, entrant("ours", launches=1)], *per_round)
    assert race.entrant("base").launches == 6
    text = speed_up("x", race, "base", "ours", 2.3).explanation
    assert text == (
        "base takes 8.00 x 1.00 µs, the bound (6 launches, 3.44 x the bytes); "
        "ours takes 2.00 x that"
    )


@given(st.integers(0, 10**11), st.integers(1, 200))
def test_calls_of_a_measurement_are_whole_cycles_and_enough(moved: int, copies: int) -> None:
    most = launches_per_replay(copies)
    calls = racing(1e3).launches(Work(moved), copies)
    assert calls % copies == 0
    assert copies <= calls <= most
    # Fewer than short calls need only where they move enough, and then no cycle too many.
    assert calls == most or (calls - copies) * moved < REPLAY_BYTES <= calls * moved


def test_rounds_can_be_fewer_and_results_come_in_parts() -> None:
    parts = entrant(
        "parts",
        result=lambda: (*REFERENCE.split(3),),
        reference=lambda: (part.clone() for part in REFERENCE.split(3)),
    )
    wrong = replace(parts, name="wrong", result=lambda: (*REFERENCE.roll(1).split(3),))
    race = racing(1e3, rounds=5).race("any size", WORK, [parts, wrong], rounds=2)
    times = race.entrant("parts").device_ns
    assert times is not None
    assert len(times.rounds) == 2
    assert race.entrant("wrong").error is not None
    short = entrant("short", ours=False, result=lambda: (*REFERENCE.split(3),))
    assert "not available" in (raced([short], 1e3).entrant("short").error or "")


def test_the_launch_floor_is_the_shortest_and_measured_once() -> None:
    # 128 launches in a replay.
    measured = racing(*[256e3, 192e3, 320e3] * 4, 1.0)
    assert measured.launch_floor_ns == pytest.approx(1_500)
    assert measured.launch_floor_ns == pytest.approx(1_500)
