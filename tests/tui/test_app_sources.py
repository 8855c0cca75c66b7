"""Recordings and trace files on the same screen as a live worker."""

import json
from contextlib import closing

import pytest

from decodescope.analyzer.protocol.messages import Bye, State
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import ReplaySource, TraceSource, source_for
from tests.helpers.kineto_events import document, op, prelaunched
from tests.helpers.scripted import StillClock, hello, ready, settle, stats, text_of, write_trace


def test_a_recording_of_any_name_is_replayed(tmp_path, trace_file):
    for number, path in enumerate(bundled_recordings()):
        named = tmp_path / f"recorded-{number}"
        named.write_bytes(path.read_bytes())
        assert isinstance(source_for(named), ReplaySource)
    assert isinstance(source_for(trace_file), TraceSource)
    assert isinstance(source_for(tmp_path / "gone"), TraceSource)


async def test_a_recording_plays_pauses_ends_and_starts_over(tmp_path, trace_file):
    path = tmp_path / "run.dsrec"
    with closing(RecordingWriter(path, clock_ns=iter(range(10**6)).__next__)) as recording:
        for message in (hello(), State("running", "eager"), stats(1), ready(trace_file)):
            recording.write(message)
    app = DecodescopeApp(ReplaySource(path), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause(0.3)
        await settle(pilot)
        ended = text_of(app)
        await pilot.press("2")
        await pilot.press("t")
        await settle(pilot)
        await pilot.press("1", "R")
        await pilot.pause(0.3)
        await settle(pilot)
        again = text_of(app)
    for shown in (ended, again):
        assert "replay" in shown.splitlines()[0]
        assert "ended" in shown.splitlines()[0]
        assert "run.dsrec" in shown.splitlines()[0]
        assert "host-bound" in shown
    assert (tmp_path / "decodescope-eager-20260102-030405.json.gz").exists()


async def test_traces_are_opened_and_v_and_a_number_switch_between_them(tmp_path):
    first = write_trace(tmp_path / "a.json", "eager")
    broken = tmp_path / "b.json"
    broken.write_text("{")
    app = DecodescopeApp(TraceSource((first, broken)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        opened = text_of(app)
        await pilot.press("v", "2")
        await settle(pilot)
        unreadable = text_of(app)
        await pilot.press("v", "1")
        await settle(pilot)
        back = text_of(app)
    assert "host-bound" in opened
    assert "a.json" in opened
    assert "unreadable" in unreadable.splitlines()[0]
    assert "b.json" in unreadable.splitlines()[1]
    assert "host-bound" not in unreadable
    assert "host-bound" in back


def write_rank(path, rank, base_ns):
    events = [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 1,
            "dur": 2,
            "args": {"correlation": 5},
        },
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"of_rank_{rank}",
            "pid": 0,
            "tid": 7,
            "ts": 10,
            "dur": 50,
            "args": {"correlation": 5, "device": 0, "stream": 7},
        },
    ]
    trace = {
        "deviceProperties": [{"id": 0, "name": "H100"}],
        "distributedInfo": {"rank": rank, "world_size": 2},
        "baseTimeNanoseconds": base_ns,
        "traceEvents": events,
    }
    path.write_text(json.dumps(trace))
    return path


async def test_a_trace_with_communication_shows_its_share_of_the_window(tmp_path):
    path = tmp_path / "rank0.json"
    shared = op(100, 400, name="ncclDevKernel_AllReduce", stream=8)
    path.write_bytes(document([op(0, 100), shared]))
    for size in ((80, 24), (140, 45)):
        app = DecodescopeApp(TraceSource((path,)), clock=StillClock(), folder=tmp_path)
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            shown = text_of(app)
        assert "comm 75.0 %" in shown


async def test_the_files_of_several_ranks_are_first_shown_merged(tmp_path):
    files = [write_rank(tmp_path / f"r{rank}.json", rank, 10**18 + 5000 * rank) for rank in (0, 1)]
    app = DecodescopeApp(TraceSource(tuple(files)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("3")
        await settle(pilot)
        merged = text_of(app)
        await pilot.press("v", "1")
        await settle(pilot)
        alone = text_of(app)
    assert "of_rank_0" in alone
    assert "of_rank_1" not in alone
    assert "all ranks" in merged
    assert "of_rank_0" in merged
    assert "of_rank_1" in merged


async def test_ranks_that_cannot_be_merged_say_why_and_the_files_stay_open(tmp_path):
    files = [write_rank(tmp_path / f"r{rank}.json", rank, 10**18 * (1 + rank)) for rank in (0, 1)]
    app = DecodescopeApp(TraceSource(tuple(files)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        first = text_of(app)
        await pilot.press("9")
        await settle(pilot)
        assert "all ranks: the ranks are not merged: rank 1 begins" in text_of(app)
        await pilot.press("1", "v", "3")
        await settle(pilot)
        refused = text_of(app)
        await pilot.press("v", "2")
        await settle(pilot)
        second = text_of(app)
    assert "of_rank_0" in first
    assert "the ranks are not merged" in refused
    assert "of_rank_1" in second


async def test_the_end_of_a_run_is_shown(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, Bye("end of recording"))
        assert "ended: end of recording" in text_of(session.app).splitlines()[0]


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_overlapping_ops_are_visible_and_ranked_by_attributed_time(tmp_path, size):
    path = tmp_path / "fused.json"
    path.write_bytes(document(prelaunched(3)))
    app = DecodescopeApp(TraceSource((path,)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        shown = text_of(app)
        await pilot.press("3")
        await settle(pilot)
        kernels = text_of(app)
        await pilot.press("y")
        await settle(pilot)
        copied = app.clipboard
    assert "Step 0  1.00 µs, 4 GPU ops, overlapping for 57.0 % of it" in shown
    over = [line for line in shown.splitlines() if "over " in line and set(line) & set("█▓")]
    assert len(over) == 1
    assert "Kernels per step by attributed time" in kernels
    lines = [line.split("\t") for line in copied.splitlines()]
    heads = next(line for line in lines if "kernel" in line)
    assert heads[1:4] == ["kernel", "calls", "attributed µs"]
    rows = [line[1:4] for line in lines if line[1:2] in (["gemv"], ["norm"])]
    assert rows == [["gemv", "2", "0.55"], ["norm", "1", "0.02"]]


async def test_without_overlap_durations_are_shown(tmp_path):
    app = DecodescopeApp(TraceSource((write_trace(tmp_path / "a.json"),)), clock=StillClock())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        shown = text_of(app)
        await pilot.press("3")
        await settle(pilot)
        shown += text_of(app)
    assert "overlapping" not in shown
    assert "by attributed time" not in shown
