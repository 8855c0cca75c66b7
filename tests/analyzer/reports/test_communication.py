"""Who waits for whom among the GPUs of one trace, against what the same ranks in files of their own
say, and against what each of them did."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from decodescope.analyzer import analyze, analyze_ranks
from decodescope.analyzer.exporting import html_page
from decodescope.analyzer.schema.communication_report import RankCommunication
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.vocabulary.words import straggler_text
from tests.helpers.kineto_events import call, op, read, trace_of
from tests.helpers.ranks.runs import (
    BASE,
    PER_STEP,
    Run,
    a_run,
    gpus_document,
    rank_document,
    rank_events,
    rank_files,
    rank_trace,
)
from tests.helpers.rich_report import text_of

LATE = 1


@pytest.fixture
def run() -> Run:
    late = np.zeros(3, dtype=np.int64)
    late[LATE] = 9_000
    return a_run(3, 64, late)


def figures_of(one: RankCommunication) -> dict[str, object]:
    return {name: getattr(one, name) for name in RankCommunication.__struct_fields__}


@pytest.mark.parametrize("beside_ns", [0, 3_000])
def test_each_gpu_waits_as_the_rank_that_it_is(tmp_path: Path, run: Run, beside_ns: int) -> None:
    ranks = analyze_ranks(rank_files(tmp_path, run, beside_ns=beside_ns)).report.communication
    found = analyze(read(gpus_document(run, beside_ns=beside_ns))).report.communication
    assert found is not None
    assert [figures_of(one) for one in found.ranks] == [figures_of(one) for one in ranks.ranks]
    assert found.straggler is not None
    assert found.straggler.rank == LATE
    assert (found.straggler, found.clock) == (ranks.straggler, "common")
    assert found.collectives == ranks.collectives
    assert found.skew == ranks.skew
    assert [one.wait_ns for one in found.ranks] == [
        int((run.start_ns.max(axis=0) - mine).sum()) for mine in run.start_ns
    ]


def later(trace: Trace, device: int, by_ns: int) -> Trace:
    """The trace with all ops of one device that much later."""
    ops, moved = trace.ops, np.where(trace.ops.device == device, by_ns, 0)
    ops = replace(ops, start_ns=ops.start_ns + moved, end_ns=ops.end_ns + moved)
    order = np.lexsort((ops.stream, ops.device, ops.end_ns, ops.start_ns))
    return replace(trace, ops=ops.take(order))


def test_times_of_gpus_that_disagree_are_split_by_durations(run: Run) -> None:
    """The profiler's clocks of two GPUs are 60 µs apart, a transfer takes 8."""
    found = analyze(later(read(gpus_document(run)), 2, 60_000)).report.communication
    assert found is not None
    assert found.clock == "durations"
    assert [one.wait_ns for one in found.ranks] == [
        int((run.start_ns.max(axis=0) - mine).sum()) for mine in run.start_ns
    ]


def test_the_skew_of_gpus_is_that_of_ranks(tmp_path: Path, run: Run) -> None:
    """GPU 2 is 3 µs late in all; its first step is missing."""
    paths = rank_files(tmp_path, run)
    paths[2].write_bytes(rank_document(run, 2, clock_ns=3_000, first=PER_STEP))
    ranks = analyze_ranks(paths).report.communication
    events = [
        *rank_events(run, 0),
        *rank_events(run, 1, device=1),
        *rank_events(run, 2, device=2, first=PER_STEP),
    ]
    trace = later(trace_of(*events, baseTimeNanoseconds=BASE), 2, 3_000)
    found = analyze(trace).report.communication
    assert found is not None
    assert found.skew is not None
    assert found.skew.steps == 7
    assert found.skew.last_to_start == {2: 7}
    assert [one.start_spread_ns for one in found.skew.worst] == [3_000] * 7
    assert found.skew == ranks.skew


def nothing_waits() -> list[Trace]:
    run = a_run(2, 20)
    both = [
        one
        for device in (0, 1)
        for one in (call(10, 20, 5 + device), op(30, 90, 5 + device, device=device))
    ]
    one_of_two = [*both, op(100, 200, 5, name="ncclDevKernel_AllReduce")]
    return [rank_trace(run, 0), trace_of(*both), trace_of(*one_of_two), trace_of()]


@pytest.mark.parametrize("place", range(4))
def test_without_two_gpus_that_communicate_there_is_nothing_to_say(place: int) -> None:
    analysis = analyze(nothing_waits()[place])
    assert analysis.report.communication is None
    assert analysis.op_waits() is None
    assert "Who waits for whom" not in text_of(report_table(analysis.report, ["communication"]))


def test_merged_ranks_say_it_once(tmp_path: Path, run: Run) -> None:
    across = analyze_ranks(rank_files(tmp_path, run))
    assert across.merged is not None
    assert across.merged.report.communication is None
    waits = across.merged.op_waits()
    assert waits is not None
    assert len(waits) == run.start_ns.size


def test_groups_that_kernels_name_stay_apart_when_ranks_are_merged(tmp_path: Path) -> None:
    """The same rhythm in both groups: only the lists of ranks tell them apart."""
    run = a_run(4, 40)
    said = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 8}
    paths = []
    for rank in range(4):
        group = "[0, 1]" if rank < 2 else "[2, 3]"
        (tmp_path / f"{rank}").mkdir()
        changes = {"said": {**said, "Process Group Ranks": group}}
        paths.append(rank_files(tmp_path / f"{rank}", run, **changes)[rank])
    merged = analyze_ranks(paths).merged
    assert merged is not None
    waits = merged.op_waits()
    assert waits is not None
    assert set(waits.members.tolist()) == {2}
    device = merged.trace.ops.device[waits.op]
    for pair in ((0, 1), (2, 3)):
        entered = run.start_ns[list(pair)].max(axis=0)
        for rank in pair:
            assert waits.transfer_start_ns[device == rank].tolist() == entered.tolist()


def test_table_and_page_say_it(run: Run) -> None:
    analysis = analyze(read(gpus_document(run)))
    waiting = analysis.report.communication
    assert waiting is not None
    said = straggler_text(waiting)
    assert said.startswith(f"straggler: GPU {LATE} entered 64 of 64 collectives last")
    for width in (60, 80, 160):
        assert said in " ".join(text_of(report_table(analysis.report), width).split())
        shown = text_of(report_table(analysis.report, ["communication"]), width)
        shown = " ".join(shown.split())
        assert said in shown
        assert "Who waits for whom" in shown
        assert "8 steps that 3 GPUs recorded" in shown
    page = html_page("a trace", {"a trace": analysis})
    assert said in page
    assert ">GPU<" in page
    assert "Skew of the 8 steps" in page
    again = msgspec.json.decode(msgspec.json.encode(analysis.report), type=type(analysis.report))
    assert again.communication == waiting
