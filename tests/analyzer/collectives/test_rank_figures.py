"""Who waits for whom, on runs with known waits."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.trace import Trace
from tests.helpers.kineto_events import Event, call, op, trace_of
from tests.helpers.ranks.runs import BASE, PER_STEP, RankFigures, Run, a_run, figures, rank_trace

SPLIT = ("transfer", "wait", "unsplit")


def all_ranks(run: Run, **changes: int) -> list[Trace]:
    return [rank_trace(run, rank, **changes) for rank in range(len(run.start_ns))]


def assert_adds_up(found: RankFigures) -> None:
    """transfer + wait + unsplit = communication, also the exposed ones, none is negative."""
    for one, report in zip(found.ranks, found.reports, strict=True):
        devices = report.devices
        parts = [getattr(one, f"{part}_ns") for part in SPLIT]
        exposed = [getattr(one, f"exposed_{part}_ns") for part in SPLIT]
        assert sum(parts) == one.communication_ns == sum(d.communication_ns for d in devices)
        assert sum(exposed) == sum(d.exposed_communication_ns for d in devices)
        assert all(0 <= part <= whole for part, whole in zip(exposed, parts, strict=True))


def waited_by_hand(run: Run) -> list[int]:
    """Each rank's waiting: the time until the last rank enters, collective by collective."""
    return [
        sum(max(run.start_ns[:, k].tolist()) - mine for k, mine in enumerate(row.tolist()))
        for row in run.start_ns
    ]


def test_waiting_is_the_time_until_the_last_rank_enters() -> None:
    run = a_run(4, 80)
    found = figures(all_ranks(run))
    assert (found.clock, found.findings) == ("common", ())
    assert [one.wait_ns for one in found.ranks] == waited_by_hand(run)
    assert [one.transfer_ns for one in found.ranks] == [80 * 8_000] * 4
    assert [one.unsplit_ns for one in found.ranks] == [0] * 4
    assert sum(one.last_entries for one in found.ranks) == 80
    assert_adds_up(found)
    (row,) = found.collectives
    assert (row.operation, row.ranks, row.matched, row.unmatched) == (
        "all_reduce",
        (0, 1, 2, 3),
        80,
        0,
    )
    assert row.transfer_ns is not None
    assert (row.transfer_ns.min, row.transfer_ns.max) == (8_000, 8_000)


def test_a_collective_that_is_launched_early_has_not_entered_yet() -> None:
    run = a_run(3, 40)
    found = figures(all_ranks(run, early_ns=4_000))
    assert [one.wait_ns for one in found.ranks] == waited_by_hand(run)
    assert [one.transfer_ns for one in found.ranks] == [40 * 8_000] * 3
    assert [one.exposed_transfer_ns for one in found.ranks] == [40 * 8_000] * 3
    assert_adds_up(found)


def test_work_beside_a_collective_covers_its_waiting_first() -> None:
    """Of each collective the first 2 µs are covered: of the last rank's, transfer, else waiting."""
    run = a_run(3, 40)
    found = figures(all_ranks(run, beside_ns=2_000))
    assert_adds_up(found)
    for rank, one in enumerate(found.ranks):
        waits = run.start_ns.max(axis=0) - run.start_ns[rank]
        covered = np.minimum(waits, 2_000)
        assert one.wait_ns - one.exposed_wait_ns == covered.sum()
        assert one.transfer_ns - one.exposed_transfer_ns == (2_000 - covered).sum()


@pytest.mark.parametrize("ranks", [2, 5, 16])
def test_a_planted_straggler_is_named_with_what_it_costs(ranks: int) -> None:
    late = np.zeros(ranks, dtype=np.int64)
    late[ranks // 2] = 9_000
    run = a_run(ranks, 96, late)
    found = figures(all_ranks(run))
    assert found.straggler is not None
    assert found.straggler.rank == ranks // 2
    last = run.start_ns.argmax(axis=0) == ranks // 2
    caused = (run.start_ns.max(axis=0) - run.start_ns)[:, last].sum()
    assert found.straggler.last_entries == last.sum() > 48
    assert found.straggler.caused_wait_ns == caused
    assert found.straggler.cost_ns == caused // (ranks - 1)
    assert found.straggler.even_entries == pytest.approx(96 / ranks)
    window = np.median([d.window_ns for report in found.reports for d in report.devices])
    assert found.straggler.cost_share == pytest.approx(found.straggler.cost_ns / window, rel=1e-3)
    assert found.no_straggler == ""


@pytest.mark.parametrize("ranks", [2, 4, 16])
@pytest.mark.parametrize("seed", range(4))
def test_equal_ranks_have_no_straggler(ranks: int, seed: int) -> None:
    found = figures(all_ranks(a_run(ranks, 96, seed=seed)))
    assert found.straggler is None
    assert found.no_straggler.startswith("even:")


def test_ranks_that_do_the_same_at_the_same_time_have_none_either() -> None:
    run = a_run(3, 40)
    same = Run(np.repeat(run.start_ns[:1], 3, axis=0), run.end_ns)
    found = figures(all_ranks(same))
    assert found.straggler is None
    assert [one.last_entries for one in found.ranks] == [0, 0, 0]
    assert [one.wait_ns for one in found.ranks] == [0, 0, 0]


def test_a_late_rank_that_costs_nothing_is_no_straggler() -> None:
    run = a_run(3, 60, np.array([0, 0, 200]), transfer_ns=400_000)
    steady = Run(run.start_ns - run.start_ns % 20_000 + np.array([[0], [0], [200]]), run.end_ns)
    found = figures(all_ranks(steady))
    assert found.straggler is None
    assert found.no_straggler.startswith("small:")


@pytest.mark.parametrize(
    "clocks", [(0, 1_000_000, -77_000), (0, 10_000_000_000, 3), (40_000, 0, 0)]
)
def test_shifted_clocks_give_the_same_split_from_durations(clocks: tuple[int, ...]) -> None:
    run = a_run(3, 200)
    right = figures(all_ranks(run))
    shifted = figures([rank_trace(run, rank, clock_ns=clock) for rank, clock in enumerate(clocks)])
    assert (right.clock, shifted.clock) == ("common", "durations")
    for a, b in zip(right.ranks, shifted.ranks, strict=True):
        assert b.transfer_ns == pytest.approx(a.transfer_ns, rel=0.01)
        assert b.wait_ns == pytest.approx(a.wait_ns, rel=0.01)
        assert (a.last_entries, a.lateness_ns) == (b.last_entries, b.lateness_ns)
    assert [one.clock_offset_ns for one in shifted.ranks] == [
        clock - int(np.median(clocks)) for clock in clocks
    ]
    assert_adds_up(shifted)
    assert right.skew is not None
    assert shifted.skew is not None
    assert shifted.skew.start_spread_ns == right.skew.start_spread_ns


def test_clocks_that_overlap_and_disagree_are_a_finding() -> None:
    run = a_run(3, 200)
    traces = [rank_trace(run, rank, clock_ns=clock) for rank, clock in enumerate((0, 40_000, 0))]
    (finding,) = figures(traces).findings
    assert finding.code == "clocks_apart"
    assert "clock of rank 1 is 40.0 µs ahead of rank 0's" in finding.message


def test_a_clock_off_by_less_than_a_transfer_is_believed() -> None:
    run = a_run(2, 50)
    found = figures([rank_trace(run, 0), rank_trace(run, 1, clock_ns=6_000)])
    assert (found.clock, found.findings) == ("common", ())
    assert_adds_up(found)


@pytest.mark.parametrize("shift_ns", [0, 5_000_000])
@pytest.mark.parametrize(
    ("first", "until", "without"),
    [(3, None, ()), (0, 117, ()), (7, 101, ()), (2, 115, (40, 41, 77))],
)
def test_collectives_missing_on_one_rank(
    shift_ns: int, first: int, until: int | None, without: tuple[int, ...]
) -> None:
    """What one rank did not record is split on no rank; all else as if it had never been."""
    run = a_run(3, 120)
    cut = rank_trace(run, 1, clock_ns=shift_ns, first=first, until=until, without=without)
    found = figures([rank_trace(run, 0), cut, rank_trace(run, 2)])
    kept = [k for k in range(first, until or 120) if k not in without]
    (row,) = found.collectives
    assert (row.matched, row.unmatched) == (len(kept), 2 * (120 - len(kept)))
    waits = (run.start_ns.max(axis=0) - run.start_ns)[:, kept].sum(axis=1)
    assert [one.wait_ns for one in found.ranks] == waits.tolist()
    assert [one.collectives for one in found.ranks] == [len(kept)] * 3
    assert found.ranks[0].unsplit_ns > 0
    assert found.ranks[1].unsplit_ns == 0
    assert_adds_up(found)


def test_the_order_of_files_changes_nothing() -> None:
    run = a_run(3, 64, np.array([0, 7_000, 0]))
    traces = [rank_trace(run, 0), rank_trace(run, 1, first=2), rank_trace(run, 2, until=60)]
    expected = figures(traces)
    for order in permutations(traces):
        assert figures(order) == expected


def test_one_rank_alone_waits_for_nobody() -> None:
    found = figures([rank_trace(a_run(2, 20), 0)])
    (one,) = found.ranks
    assert one.unsplit_ns == one.communication_ns > 0
    assert (found.clock, found.straggler, found.skew) == (None, None, None)
    assert found.no_straggler == "no collectives were matched"
    assert [row.unmatched for row in found.collectives] == [20]


def test_ranks_without_communication_have_no_figures() -> None:
    found = figures([trace_of(call(0, 5, 1), op(10, 20 + r, 1)) for r in range(2)])
    assert (found.collectives, found.clock) == ((), None)
    assert [one.communication_ns for one in found.ranks] == [0, 0]


def test_ranks_of_different_models_are_not_matched() -> None:
    one, other = a_run(2, 60, seed=1), a_run(2, 47, transfer_ns=3_000, seed=2)
    found = figures([rank_trace(one, 0), rank_trace(other, 1)])
    assert [row.matched for row in found.collectives] == [0]
    assert found.clock is None
    assert_adds_up(found)


def test_two_groups_are_told_apart() -> None:
    """Two tensor-parallel groups of two ranks each, which never wait for each other."""
    groups = [a_run(2, 500, seed=3), a_run(2, 480, seed=4)]
    traces = [
        rank_trace(Run(np.vstack([run.start_ns] * 2), run.end_ns), 2 * place + member)
        for place, run in enumerate(groups)
        for member in range(2)
    ]
    found = figures(traces)
    assert [row.ranks for row in found.collectives] == [(0, 1), (2, 3)]
    waited = [one.wait_ns for one in found.ranks]
    assert waited == waited_by_hand(groups[0]) + waited_by_hand(groups[1])


@pytest.mark.parametrize(
    ("name", "operation", "mutual"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(int)", "all_reduce", True),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", "all_gather", True),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter", True),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast", False),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgs)", "send_recv", False),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce", False),
        ("void deep_ep::internode_ll::dispatch<true>(void*)", "all_to_all", True),
        ("ncclDevKernel_Generic_4", "other", False),
        ("Memcpy PtoP (Device -> Device)", "send_recv", False),
    ],
)
def test_only_operations_that_wait_for_every_rank_are_split(
    name: str, operation: str, mutual: bool
) -> None:
    run = a_run(2, 30)
    found = figures([rank_trace(run, rank, name=name) for rank in range(2)])
    assert [row.operation for row in found.collectives] == [operation]
    split = [one.transfer_ns > 0 for one in found.ranks]
    assert split == [mutual, mutual]
    assert [row.transfer_ns is not None for row in found.collectives] == [mutual]
    assert_adds_up(found)


def message(name: str, given: object, got: object, ranks: object = "[0, 1]") -> dict[str, object]:
    return {
        "Collective name": name,
        "In msg nelems": given,
        "Out msg nelems": got,
        "dtype": "BFloat16",
        "Group size": 2,
        "Process Group Ranks": ranks,
    }


@pytest.mark.parametrize(
    ("kernel", "said", "operation", "size", "factor"),
    [
        ("AllReduce_Sum_bf16", message("allreduce", 4096, 4096), "all_reduce", 8192, 1.0),
        ("AllGather", message("_allgather_base", 4096, 8192), "all_gather", 16384, 0.5),
        (
            "ReduceScatter_Sum",
            message("_reduce_scatter_base", 8192, 4096),
            "reduce_scatter",
            16384,
            0.5,
        ),
        ("SendRecv", message("all_to_allv", 4096, 4096), "all_to_all", 8192, 0.5),
    ],
)
def test_the_bus_bandwidth_is_that_of_nccl_tests(
    kernel: str, said: dict[str, object], operation: str, size: int, factor: float
) -> None:
    """Two ranks, transfers of 8 µs: rate = size / 8 µs x factor."""
    run = a_run(2, 30)
    name = f"ncclDevKernel_{kernel}_RING_LL(ncclDevKernelArgs)"
    found = figures([rank_trace(run, rank, name=name, said=said) for rank in range(2)])
    (row,) = found.collectives
    assert (row.operation, row.group, row.message_bytes) == (operation, "[0, 1]", size)
    assert row.bus_bytes_per_s == pytest.approx(size / 8e-6 * factor)


def test_groups_that_kernels_name_are_kept_apart() -> None:
    """The same rhythm in both groups: only the lists of ranks tell them apart."""
    run = a_run(4, 40)
    traces = [
        rank_trace(run, rank, said=message("allreduce", 8, 8, "[0, 1]" if rank < 2 else "[2, 3]"))
        for rank in range(4)
    ]
    found = figures(traces)
    assert [(row.group, row.ranks) for row in found.collectives] == [
        ("[0, 1]", (0, 1)),
        ("[2, 3]", (2, 3)),
    ]
    waited = run.start_ns[:2].max(axis=0) - run.start_ns[:2]
    assert [one.wait_ns for one in found.ranks[:2]] == waited.sum(axis=1).tolist()


@pytest.mark.parametrize(
    "said",
    [
        {"Collective name": "allreduce"},
        message("allreduce", -5, 10**40),
        message("allreduce", None, [1], {"a": 1}),
        message("allreduce", "many", 1.5, "x" * 100_000),
        {"Collective name": 7, "dtype": ["BFloat16"], "In msg nelems": 3},
        {**message("allreduce", 4, 4), "dtype": "Quaternion"},
    ],
)
def test_messages_that_make_no_sense_have_no_size(said: dict[str, object]) -> None:
    run = a_run(2, 30)
    found = figures([rank_trace(run, rank, said=said) for rank in range(2)])
    (row,) = found.collectives
    assert (row.matched, row.message_bytes, row.bus_bytes_per_s) == (30, None, None)
    assert len(row.group) < 1000


def test_the_skew_of_steps() -> None:
    """Each rank's step begins with its first op after the common end of the step before."""
    run = a_run(3, 6 * PER_STEP)
    traces = []
    for rank, late_ns in enumerate((0, 300, 120)):
        start = run.start_ns.copy()
        trace = rank_trace(Run(start, run.end_ns), rank)
        trace.ops.start_ns[:: 2 * PER_STEP] += late_ns
        traces.append(trace)
    skew = figures(traces).skew
    assert skew is not None
    assert (skew.ranks, skew.steps) == ((0, 1, 2), 6)
    assert skew.start_spread_ns is not None
    assert (skew.start_spread_ns.min, skew.start_spread_ns.max) == (300, 300)
    assert skew.duration_spread_ns == skew.start_spread_ns
    assert skew.end_spread_ns is not None
    assert skew.end_spread_ns.max == 0
    assert skew.last_to_start == {1: 6}
    assert {one.last_to_start for one in skew.worst} == {1}
    assert {one.last_to_end for one in skew.worst} == {None}


def test_a_rank_that_began_a_step_later_is_matched_by_its_collectives() -> None:
    run = a_run(2, 6 * PER_STEP)
    skew = figures([rank_trace(run, 0, first=PER_STEP), rank_trace(run, 1)]).skew
    assert skew is not None
    assert [one.index for one in skew.worst] == [0, 1, 2, 3, 4]
    assert skew.start_spread_ns is not None
    assert skew.start_spread_ns.max == 0


def test_the_list_of_steps_is_bounded() -> None:
    skew = figures(all_ranks(a_run(2, 50 * PER_STEP))).skew
    assert skew is not None
    assert (skew.steps, len(skew.worst)) == (50, 20)
    assert [one.index for one in skew.worst] == sorted(one.index for one in skew.worst)


NAMES = (
    "ncclDevKernel_AllReduce_Sum",
    "ncclDevKernel_AllGather",
    "ncclDevKernel_Broadcast",
    "gemm",
)


@st.composite
def any_ranks(draw: st.DrawFn) -> list[Trace]:
    traces = []
    for rank in range(draw(st.integers(1, 4))):
        events: list[Event] = []
        for index in range(draw(st.integers(1, 12))):
            at = draw(st.integers(0, 4000))
            end = at + draw(st.integers(0, 900))
            stream, device = draw(st.integers(7, 9)), draw(st.integers(0, 1))
            name = draw(st.sampled_from(NAMES))
            events.append(op(at, end, index + 1, name=name, stream=stream, device=device))
        base = draw(st.sampled_from((0, BASE, BASE + 50)))
        info = {"rank": rank, "world_size": 4}
        traces.append(trace_of(*events, baseTimeNanoseconds=base + rank, distributedInfo=info))
    return traces


@settings(max_examples=20)
@given(any_ranks())
def test_parts_add_up_whatever_runs(traces: list[Trace]) -> None:
    found = figures(traces)
    assert_adds_up(found)
    for row in found.collectives:
        assert row.matched >= 0
        assert row.unmatched >= 0
