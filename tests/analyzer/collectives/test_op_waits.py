"""How long each op of the merged trace waited, against what each rank of a made run did."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, analyze_ranks
from decodescope.analyzer.collectives.waits import OpWaits
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.tracks.build import find_tracks
from tests.helpers.ranks.runs import ALL_REDUCE, Run, a_run, rank_files, rank_trace

_Op = tuple[int, int]


def waits_in(traces: list[Trace]) -> tuple[Trace, OpWaits]:
    """The merged trace and what is found of its ops."""
    merged = merge_ranks(traces).merged
    assert merged is not None
    found = analyze(merged).op_waits()
    assert found is not None
    return merged, found


def by_hand(run: Run) -> dict[_Op, tuple[int, int, int]]:
    """Of each (rank, start): when the last rank entered that collective, which it was (-1: several)
    and what all ranks together waited for it."""
    found = {}
    for starts in run.start_ns.T.tolist():
        last_ns = max(starts)
        last = starts.index(last_ns) if starts.count(last_ns) == 1 else -1
        caused = sum(last_ns - one for one in starts)
        found |= dict.fromkeys(enumerate(starts), (last_ns, last, caused))
    return found


@settings(max_examples=25, deadline=None)
@given(
    ranks=st.integers(2, 5),
    collectives=st.integers(1, 30),
    seed=st.integers(0, 10**6),
    beside_ns=st.sampled_from([0, 3_000]),
)
def test_every_op_waits_until_the_last_rank_enters(
    ranks: int, collectives: int, seed: int, beside_ns: int
) -> None:
    run = a_run(ranks, collectives, seed=seed)
    # Files need not be in the order of ranks.
    order = np.random.default_rng(seed).permutation(ranks).tolist()
    merged, waits = waits_in([rank_trace(run, rank, beside_ns=beside_ns) for rank in order])
    assert len(waits) == ranks * collectives
    assert (np.diff(waits.op) > 0).all()
    ops = merged.ops.take(waits.op)
    assert {merged.names[name] for name in ops.name.tolist()} == {ALL_REDUCE}
    # Each rank has one GPU, so the devices of the merged trace are the ranks.
    assert set(waits.members.tolist()) == {ranks}
    columns = zip(
        ops.device.tolist(),
        ops.start_ns.tolist(),
        waits.transfer_start_ns.tolist(),
        waits.last.tolist(),
        waits.caused_ns.tolist(),
        strict=True,
    )
    assert {(rank, start): rest for rank, start, *rest in columns} == {
        op: list(expected) for op, expected in by_hand(run).items()
    }


def test_of_clocks_that_disagree_the_shortest_op_is_all_transfer() -> None:
    run = a_run(3, 40, np.array([0, 0, 9_000]))
    clocks = (0, 60_000, -45_000)
    merged, waits = waits_in(
        [rank_trace(run, rank, clock_ns=clock) for rank, clock in enumerate(clocks)]
    )
    ops = merged.ops.take(waits.op)
    # All ranks leave together, so the transfer ends with the op on the rank's own clock.
    transfer = (run.end_ns - run.start_ns.max(axis=0)).tolist()
    assert (ops.end_ns - waits.transfer_start_ns).tolist() == [8_000] * 120 == transfer * 3
    assert (waits.transfer_start_ns >= ops.start_ns).all()


def test_what_is_no_matched_collective_waits_for_nobody() -> None:
    run = a_run(2, 20)
    merged, waits = waits_in([rank_trace(run, 0, without=(3, 7)), rank_trace(run, 1)])
    assert len(waits) == 2 * 18
    for row in range(len(merged.ops)):
        place = waits.of_op(row)
        assert (place is not None) == (row in waits.op.tolist())
        assert place is None or int(waits.op[place]) == row
    alone = analyze(rank_trace(run, 0))
    assert alone.op_waits() is None
    assert not [one for one in find_tracks(alone).tracks if one.key.kind == "wait"]


@pytest.mark.parametrize("tied", [False, True])
def test_the_track_of_each_gpu_shows_when_it_waited(tmp_path: Path, tied: bool) -> None:
    run = a_run(3, 24, np.array([0, 40_000, 40_000 if tied else 0]))
    if tied:
        run.start_ns[2] = run.start_ns[1]
    across = analyze_ranks(rank_files(tmp_path, run))
    assert across.merged is not None
    tracks = find_tracks(across.merged)
    shown = {one.title: one for one in tracks.tracks if one.key.kind == "wait"}
    assert list(shown) == (["r0g0 wait"] if tied else ["r0g0 wait", "r2g0 wait"])
    (track, *_) = shown.values()
    entered = run.start_ns.max(axis=0).tolist()
    assert track.slices.start_ns.tolist() == run.start_ns[0].tolist()
    assert track.slices.end_ns.tolist() == entered
    whom = "several" if tied else "r1g0"
    assert {tracks.names[label] for label in track.slices.label.tolist()} == {whom}
    ops = across.merged.trace.ops
    assert ops.start_ns[track.slices.row].tolist() == track.slices.start_ns.tolist()
