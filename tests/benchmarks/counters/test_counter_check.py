"""Both sides are joined one by one, and differences are explained by figures only."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.counters.counted_step import WINDOW
from benchmarks.counters.counter_check import (
    NOT_EXPLAINED,
    SLOWER,
    WITHIN,
    Probes,
    counted_kernels,
    joined,
    traced_step,
    why_bytes,
    why_time,
)
from decodescope.analyzer.errors import InputError
from tests.benchmarks.counters.counter_sides import (
    KERNELS,
    counted,
    in_every_step,
    sides,
    traced,
    write_trace,
)


def test_a_traced_kernel_has_its_time_in_every_step(tmp_path: Path) -> None:
    steps = [[(name, ns + 100 * step) for name, ns in KERNELS] for step in range(WINDOW.steps)]
    found = traced_step(write_trace(tmp_path / "trace.json", *steps))
    assert found.copies == 1
    assert [one.name for one in found.kernels] == [name for name, _ in KERNELS]
    assert found.kernels[1].ns == (2_000, 2_100, 2_200)
    assert found.kernels[1].grid == (2, 2, 1)
    assert found.kernels[1].block == (64, 1, 1)
    assert found.kernels[1].bytes is None


def test_a_traced_kernel_knows_how_long_the_gpu_was_idle(tmp_path: Path) -> None:
    found = traced_step(write_trace(tmp_path / "trace.json", *[KERNELS] * WINDOW.steps))
    # The step's first operation starts 10,000 after the step does, its copy ends at 90,200.
    first, second, third = (one.idle_before_ns for one in found.kernels)
    assert (second, third) == (10_000 - KERNELS[0][1], 10_000 - KERNELS[1][1])
    assert first == 1_000_000 + 10_000 - 90_200


def test_steps_with_different_kernels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"different kernels \(3, 3, 2 of them\)"):
        traced_step(write_trace(tmp_path / "a.json", KERNELS, KERNELS, KERNELS[:2]))
    with pytest.raises(InputError, match="has 2 steps, not 3"):
        traced_step(write_trace(tmp_path / "b.json", KERNELS, KERNELS))


def test_kernels_are_joined_one_by_one() -> None:
    trace, counters = sides()
    found = joined(trace, in_every_step(counters), None)
    assert found.names == ("void ns::gemv<4>(int)", "add")
    gemv, add = found.rows
    assert (gemv.trace_ns, gemv.ncu_ns, gemv.why) == (50_000, 50_500, WITHIN)
    assert (gemv.claimed_bytes, gemv.dram_bytes, gemv.why_bytes) == (1_000, 1_010, WITHIN)
    assert (add.trace_over_ncu, add.why) == (2 / 3, "interval")
    assert (add.claimed_bytes, add.why_bytes) == (None, None)
    assert found.probes.offset_ns == 1_000
    assert found.probes.offset_spread_ns == 0
    assert found.probes.trace_sm_hz == 2e9
    assert found.probes.background_bytes == 500


def test_claims_of_the_step_go_before_those_of_the_trace() -> None:
    trace, counters = sides()
    kernels = in_every_step(counters)
    assert [row.claimed_bytes for row in joined(trace, kernels, [7, 8]).rows] == [7, 8]
    with pytest.raises(InputError, match="claims bytes of 3 kernels, but ran 2"):
        joined(trace, kernels, [7, 8, 9])


def test_a_counted_kernel_has_the_median_of_its_steps() -> None:
    trace, (gemv, add, *probes) = sides()
    slower = counted("gemv", 60_000, grid=3, busy=9_000, read=2_000)
    faster = counted("gemv", 50_100, grid=3, busy=100, read=950)
    first, second, third = ([one, add, *probes] for one in (slower, gemv, faster))
    row = joined(trace, counted_kernels([*first, *second, *third]), None).rows[0]
    assert (row.ncu_ns, row.ncu_min_ns, row.ncu_max_ns) == (50_500, 50_100, 60_000)
    assert (row.ncu_busy_ns, row.dram_read_bytes, row.dram_written_bytes) == (100, 950, 0)


def test_counted_steps_with_different_kernels_are_refused() -> None:
    one, other = counted("gemv", 1_000, grid=3), counted("add", 1_000)
    with pytest.raises(InputError, match=r"3 steps under ncu ran different kernels \(7 launches\)"):
        counted_kernels([one, other, one, other, one, other, one])
    with pytest.raises(InputError, match="different kernels"):
        counted_kernels([one, other, one, other, other, one])
    assert len(counted_kernels([one, other] * WINDOW.steps)) == 2


def test_a_counted_kernel_whose_grid_grows_has_that_of_the_middle_step() -> None:
    steps = [
        counted("cat", duration_ns, grid=grid) for grid, duration_ns in enumerate((3, 9, 4), 7)
    ]
    (kernel,) = counted_kernels(steps)
    assert (kernel.median.grid, kernel.median.duration_ns) == ((8, 1, 1), 4)


def test_sides_that_differ_are_refused_with_the_first_difference() -> None:
    trace, counters = sides()
    with pytest.raises(InputError, match=r"kernel 1 is 'void ns::gemv.* but 'add'"):
        joined(trace, in_every_step([counters[1], counters[0], *counters[2:]]), None)
    with pytest.raises(InputError, match=r"kernel 1 .*\(3, 1, 1\).* 'gemv' \(9, 1, 1\)"):
        joined(trace, in_every_step([counted("gemv", 50_500, grid=9), *counters[1:]]), None)
    with pytest.raises(InputError, match="the trace has 23 kernels a step, ncu counted 22"):
        joined(trace, in_every_step(counters[:-1]), None)
    with pytest.raises(InputError, match="does not end with 21 probes"):
        joined(trace[:-1], in_every_step(counters[:-1]), None)


PROBES = Probes((), (), 1_000, 40, 2e9, 1e9, 600)


@pytest.mark.parametrize(
    ("trace_ns", "ncu_ns", "why"),
    [
        ((50_000,), 51_000, WITHIN),
        ((50_000,), 49_000, WITHIN),
        ((49_000, 50_000, 54_000), 55_000, "steps"),
        ((5_000,), 6_000, "interval"),
        ((1_500,), 2_539, "interval"),
        ((1_500,), 2_541, "launch and wait"),
        ((5_000,), 11_000, "clock"),
        ((5_000,), 8_000, "launch and wait"),
        ((50_000,), 30_000, NOT_EXPLAINED),
    ],
)
def test_a_duration_is_explained_only_by_figures(
    trace_ns: tuple[int, ...], ncu_ns: float, why: str
) -> None:
    assert why_time(traced("k", *trace_ns), counted("k", ncu_ns), PROBES) == why


@pytest.mark.parametrize(
    ("busy_ns", "why"),
    [(4_900, "launch and wait"), (5_100, "launch and wait"), (5_110, SLOWER), (8_000, SLOWER)],
)
def test_a_kernel_that_keeps_an_sm_busy_for_longer_is_slower(busy_ns: float, why: str) -> None:
    found = counted("k", 8_000, busy=busy_ns)
    assert why_time(traced("k", 5_000), found, PROBES) == why
    assert why_time(traced("k", 7_000), found, PROBES) == "interval", "busy or not"


@given(
    st.lists(st.integers(1_000, 1_000_000), min_size=1, max_size=3),
    st.floats(1, 5e6, allow_nan=False),
)
def test_what_is_within_the_bound_never_needs_a_reason(ns: list[int], ncu_ns: float) -> None:
    one = traced("k", *ns)
    why = why_time(one, counted("k", ncu_ns), PROBES)
    assert (why == WITHIN) == (abs(ncu_ns - one.median_ns) <= 0.02 * one.median_ns)


@pytest.mark.parametrize(
    ("claimed", "read", "written", "l2", "why"),
    [
        (100_000, 99_000, 0, 0, WITHIN),
        (100_000, 103_000, 42_001, 106_000, NOT_EXPLAINED),
        (1_000, 1_500, 0, 0, "background"),
        (100_000, 40_000, 0, 98_000, "L2"),
        (100_000, 40_000, 0, 97_000, NOT_EXPLAINED),
        (100_000, 101_000, 9_000, 100_000, "written back"),
        (100_000, 120_000, 0, 118_000, NOT_EXPLAINED),
        (260, 30_208, 0, 288, "not data"),
        (260, 30_208, 0, 320, NOT_EXPLAINED),
    ],
)
def test_bytes_are_explained_only_by_counters(
    claimed: int, read: float, written: float, l2: float, why: str
) -> None:
    found = counted("k", 1_000, read=read, written=written, l2=l2)
    assert why_bytes(claimed, found, PROBES) == why
