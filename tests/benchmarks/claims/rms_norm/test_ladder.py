"""`rmsnorm`: every rung and candidate is right, the fastest ones meet the copy, and each row's
reason follows from the figures."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from benchmarks.claims import racing
from benchmarks.claims.claim import Measured, Setup
from benchmarks.claims.racing import Racing
from benchmarks.claims.report import EntrantFigures, Race, Row
from benchmarks.claims.rms_norm import ladder
from benchmarks.claims.rms_norm.ladder import (
    FEATURES,
    ROWS,
    SETS,
    Operands,
    measure_ladder,
    what_fits,
)
from benchmarks.claims.rms_norm.rows import (
    COPY,
    LOOPED,
    PERSISTENT,
    SINGLE,
    VECTORISED,
    beside_the_copy,
    ladder_rows,
)
from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import Launch
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.fake_clock import FakeClock
from tests.helpers.triton_mode import launch_in_one_thread

RUNGS = [LOOPED, SINGLE, VECTORISED, PERSISTENT]
H200 = 4800e9


def setup_of(clock: FakeClock, l2_bytes: int = 1) -> Setup:
    measured = Racing(clock, l2_bytes, 4600e9, {}, rounds=2)  # type: ignore[arg-type]
    return Setup(measured, lambda _: None, datasheet_bytes_per_s=H200)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch a measurement, and results in several parts."""
    launch_in_one_thread(monkeypatch)
    monkeypatch.setattr(racing, "REPLAY_BYTES", 1)
    monkeypatch.setattr(ladder, "CHECKED_ROWS", 2)
    monkeypatch.setattr(ladder, "CHOICE_ROUNDS", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("rows", "features"), [(5, 100), (4, 64)])
def test_every_rung_and_candidate_is_right(rows: int, features: int) -> None:
    measured: Measured = measure_ladder(setup_of(FakeClock(1e3)), rows, features)
    race, *choices = measured.races
    assert [one.error for each in measured.races for one in each.entrants if one.error] == []
    assert [one.name for one in race.entrants] == [
        COPY,
        LOOPED,
        SINGLE,
        VECTORISED,
        f"{VECTORISED} copy",
        PERSISTENT,
        f"{PERSISTENT} copy",
    ]
    assert len(choices) == len(RUNGS)
    # Copies are exact, and so is what they may differ by.
    copies = [one for one in race.entrants if "copy" in one.name]
    assert [(one.relative_error, one.tolerance) for one in copies] == [(0.0, 0.0)] * 3
    # x and out, as the source counts; two passes ask for x twice.
    assert {one.bytes_moved for one in race.entrants} == {2 * rows * features * 4}
    assert race.entrant(LOOPED).traffic_bytes == 3 * rows * features * 4
    assert [row.error for row in measured.rows] == [None] * 6


@pytest.mark.usefixtures("small")
def test_the_fastest_candidate_of_a_rung_meets_the_others() -> None:
    # Of the first rung's two candidates the second is faster: 5 replays and a launched mean each.
    times = [[ns] * 5 + [1.0] for ns in (3e3, 2e3)]
    clock = FakeClock(*[ns for each in times for ns in each], *[1e3] * 10_000)
    race, choice, *_ = measure_ladder(setup_of(clock), 4, 64).races
    assert race.entrant(LOOPED).what == choice.entrants[1].name


@pytest.mark.usefixtures("small")
def test_a_rung_that_leaves_the_last_row_out_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RmsNorm.launch

    def all_but_the_last(self: RmsNorm, pdl: bool = False) -> object:
        return whole(replace(self, x=self.x[:-1], out=self.out[:-1]), pdl)

    monkeypatch.setattr(RmsNorm, "launch", all_but_the_last)
    with pytest.raises(MissingRequirement, match="single pass: no candidate"):
        measure_ladder(setup_of(FakeClock(1e3)), 5, 64)


@pytest.mark.usefixtures("small")
def test_operands_that_the_cache_holds_are_refused() -> None:
    with pytest.raises(MissingRequirement, match="would stay in the L2 cache"):
        measure_ladder(setup_of(FakeClock(1e3), l2_bytes=1 << 20), 4, 64)


@given(st.integers(0, 1 << 38))
def test_two_sets_where_they_fit_or_as_many_rows_as_fit(free_bytes: int) -> None:
    sets, fitting = what_fits(ROWS, FEATURES, free_bytes)
    one_set = 2 * fitting * FEATURES * 4
    reserved = 2 << 30
    assert ROWS % fitting == 0
    assert sets * one_set + reserved <= free_bytes or (sets, fitting) == (1, 1)
    if sets == 1:
        assert SETS * 2 * ROWS * FEATURES * 4 + reserved > free_bytes
    assert fitting == ROWS or 2 * one_set + reserved > free_bytes


def test_a_gpu_of_80_gb_has_two_sets_of_all_rows() -> None:
    assert what_fits(ROWS, FEATURES, 78 << 30) == (2, ROWS)


@pytest.mark.usefixtures("small")
def test_calls_alternate_between_the_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = RmsNorm.launch

    def seen(self: RmsNorm, pdl: bool = False) -> Launch:
        replay = whole(self, pdl)
        return lambda: (read.append(self.x.data_ptr()), replay())[-1]  # type: ignore[return-value]

    monkeypatch.setattr(RmsNorm, "launch", seen)
    measure_ladder(setup_of(FakeClock(1e3)), 4, 64)
    assert len(set(read)) == SETS
    timed = read[1:]
    assert sum(one != other for one, other in pairwise(timed)) > len(timed) // 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("sets", "said"), [(2, "alternate between 2 sets"), (1, "a second set does not fit")]
)
def test_a_note_bounds_what_the_cache_saves(
    sets: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "what_fits", lambda rows, *_: (sets, rows))
    # x and out have 2,048 bytes in a set.
    notes = measure_ladder(setup_of(FakeClock(1e3), l2_bytes=64), 4, 64).notes
    share = {1: "3.1 %", 2: "1.6 %"}[sets]
    assert [share in note for note in notes if said in note] == [True]


def figures(
    name: str, ns: float, launched_ns: float | None = None, **more: object
) -> EntrantFigures:
    moved = 2 * ROWS * FEATURES * 4
    return EntrantFigures(
        name=name,
        what="1 row",
        ours=name != COPY,
        bytes_moved=moved,
        traffic_bytes=moved * 3 // 2 if name == LOOPED else moved,
        bound_ns=moved / 4600,
        device_ns=RoundSpread.of([ns, ns]),
        launched_ns=RoundSpread.of([launched_ns or ns] * 2),
        share_of_bound=moved / 4600 / ns,
        **more,  # type: ignore[arg-type]
    )


def race_of(looped: float = 2.1e6, copy: float = 2e6, copy_launched: float = 2e6) -> Race:
    times = {LOOPED: looped, SINGLE: 2.05e6, VECTORISED: 2e6, PERSISTENT: 1.96e6}
    copies = [figures(f"{name} copy", 1.95e6) for name in (VECTORISED, PERSISTENT)]
    rungs = [figures(name, ns) for name, ns in times.items()]
    return Race("2^18 x 2^12", (figures(COPY, copy, copy_launched), *rungs, *copies))


def rows_of(race: Race, datasheet: float | None = H200) -> list[Row]:
    return list(ladder_rows(race, datasheet))


def test_shares_are_of_the_datasheet_and_of_the_copy() -> None:
    looped, single, warp, vectorised, persistent = rows_of(race_of())
    moved = 2 * ROWS * FEATURES * 4
    assert looped.measured is not None
    assert looped.measured.median == pytest.approx(moved / 2.1e6 / 4800)
    assert looped.limit == pytest.approx(moved / 2e6 / 4800)
    assert looped.measured_share == pytest.approx(2 / 2.1)
    published = [row.published for row in (looped, single, warp, vectorised)]
    assert published == pytest.approx([0.9001, 0.9090, 0.9084, 0.9143], abs=1e-4)
    assert persistent.published is None
    assert warp.measured == single.measured


def test_the_copy_counts_as_fast_as_it_ever_is() -> None:
    graphed, launched = rows_of(race_of())[0], rows_of(race_of(copy=2.2e6))[0]
    assert graphed.measured_share == launched.measured_share
    best = beside_the_copy(race_of())
    assert best.measured is not None
    assert best.measured.rounds == pytest.approx((2 / 1.96,) * 2)
    assert best.limit == pytest.approx(2e6 / (2 * ROWS * FEATURES * 4 / 4600))
    assert best.explanation.startswith(f"{PERSISTENT}, 1 row: ")


@pytest.mark.parametrize(
    ("looped", "share"), [(2.1e6, "10.0 %"), (1.9e6, "0.0 %"), (9e6, "100.0 %")]
)
def test_the_second_pass_is_explained_by_its_time(looped: float, share: str) -> None:
    # The second reads are half as many bytes as the copy moves.
    assert f": {share} of its second reads" in rows_of(race_of(looped))[0].explanation


@pytest.mark.parametrize(
    ("datasheet", "beyond"),
    # The copy's share is 89.5 % of 4,800 GB/s, and 92.4 % of 4,650 GB/s.
    [(4800e9, [True, True, True, True, False]), (4650e9, [False] * 5)],
)
def test_a_published_share_beyond_the_copys_is_said_to_be(
    datasheet: float, beyond: list[bool]
) -> None:
    rows = rows_of(race_of(), datasheet)
    assert [row.explanation.startswith("theirs would be ") for row in rows] == beyond
    for row in (row for row, said in zip(rows, beyond, strict=True) if said):
        assert row.published is not None
        assert row.limit is not None
        found = re.match(r"theirs would be ([\d.]+) % of this GPU's", row.explanation)
        assert found is not None
        assert float(found[1]) == pytest.approx(100 * row.published / row.limit, abs=0.06)


def test_a_rung_is_beside_the_one_before_and_the_copy_of_its_kind() -> None:
    _, single, warp, vectorised, persistent = (row.explanation for row in rows_of(race_of()))
    assert f"x{2.1 / 2.05:.3f} of {LOOPED}" in single
    # The same kernel, beside two published shares.
    assert single.partition("copy; ")[2] == warp.partition("copy; ")[2] != ""
    assert "without the norm" not in single
    assert f"x{2.05 / 2.0:.3f} of {SINGLE}" in vectorised
    assert f"takes x{1.96 / 1.95:.3f} the time of the same kernel without the norm" in persistent


def test_without_a_datasheet_only_the_copy_compares() -> None:
    rows = rows_of(race_of(), datasheet=None)
    assert {row.error for row in rows} == {"the peak is not known"}
    assert beside_the_copy(race_of()).measured is not None


def test_a_copy_that_fails_leaves_the_shares_of_the_datasheet() -> None:
    race = race_of()
    broken = changed(race.entrants[0], error="wrong", device_ns=None, launched_ns=None)
    race = Race(race.size, (broken, *race.entrants[1:]))
    assert rows_of(race)[0].measured is not None
    assert beside_the_copy(race).error == "wrong"


def test_operands_differ_from_row_to_row_and_the_weight_from_ones() -> None:
    operands = Operands.drawn(2, 3, 64, "cpu")
    (x, out), (other, other_out) = operands.sets
    assert len(x.unique()) > 64
    assert not torch.equal(x, other)
    assert len({one.data_ptr() for one in (x, out, other, other_out)}) == 4
    assert not torch.equal(operands.norm.weight, torch.ones(64))
