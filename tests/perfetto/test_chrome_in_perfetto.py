"""Perfetto's trace_processor takes an exported trace whole: nothing dropped or mis-nested."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decodescope.analyzer import Given, analyze, analyze_ranks, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.exporting import export_analysis
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.layered import layered
from tests.helpers.kineto_events import trace_of
from tests.helpers.planted.holds import held_before, launching_calls, with_pause
from tests.helpers.ranks.runs import a_run, rank_files
from tests.helpers.trace_processor import LoadedTrace, Loader, trace_processor

DATA = Path(__file__).resolve().parent.parent / "data"
RECORDINGS = bundled_recordings()
FOREIGN = (
    "v100_cuda_graph",
    "a100_eager",
    "h100_qwen1.5_0.5b_eager",
    "mi300x_vllm_decode_graph",
    "h200_llama1b_hf_eager",
    "a100_triton_small",
)

Slice = tuple[str, int, int, int]


def nanoseconds(microseconds: Decimal) -> int:
    return int(microseconds * 1000)


def written_slices(events: list[dict[str, Any]]) -> Counter[Slice]:
    """(name, start, length, depth) of every slice, nested as the file says.

    Perfetto nests slices of no length that start together in one another.
    """
    tracks: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            start, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            track = tracks.setdefault((event["pid"], event["tid"]), [])
            track.append((start, -length, event["name"]))
    found: Counter[Slice] = Counter()
    for track in tracks.values():
        around: list[tuple[int, int]] = []
        for start, minus_length, name in sorted(track, key=lambda one: one[:2]):
            while around and around[-1][1] <= start and around[-1] != (start, start):
                around.pop()
            found[(name, start, -minus_length, len(around))] += 1
            around.append((start, start - minus_length))
    return found


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loader]:
    with trace_processor() as load_into:
        yield load_into


Check = Callable[[Trace], None]


@pytest.fixture
def check(loaded: Loader, tmp_path: Path) -> Check:
    """Fails unless the export of a trace is taken whole."""
    return lambda trace: check_export(trace, loaded, tmp_path)


def check_export(trace: Trace, loaded: Loader, folder: Path) -> None:
    target = folder / "exported.json"
    export_chrome(analyze(trace), target)
    events = json.loads(target.read_bytes(), parse_float=Decimal)["traceEvents"]
    assert_taken_whole(loaded(target), events)


def assert_taken_whole(trace: LoadedTrace, events: list[dict[str, Any]]) -> None:
    lost = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
    assert trace.query(lost) == []
    phases = Counter(event["ph"] for event in events)
    assert trace.query("select count(*) as n from counter") == [(phases["C"],)]
    assert trace.query("select count(*) as n from flow") == [(phases["s"],)]
    slices = Counter(trace.query("select name, ts, dur, depth from slice"))
    origin = min((start for _, start, _, _ in slices), default=0)
    written = written_slices(events)
    first = min((start for _, start, _, _ in written), default=0)
    taken = Counter({(n, ts - origin + first, dur, d): k for (n, ts, dur, d), k in slices.items()})
    assert taken == written


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_exports_of_the_bundled_recordings(recording: Path, check: Check) -> None:
    check(load(recording))


@pytest.mark.parametrize("name", FOREIGN)
def test_exports_of_foreign_traces(name: str, foreign_traces: Path, check: Check) -> None:
    check(load(foreign_traces / f"{name}.json.gz"))


def test_the_reconstructed_ranges_of_a_graph_replay(check: Check) -> None:
    ungraphed = analyze(load(DATA / "h200_compiled_ungraphed.json.gz"))
    deeper = {op: f"decode_step/model/layer.{op // 19}/part.{op % 3}" for op in range(309)}
    reference = reference_from(ungraphed, 0, deeper)
    check(replace(load(DATA / "h200_compiled_replays.json.gz"), reference=reference))


def test_the_ranges_of_a_capture_profile_above_the_ops_of_its_replay(
    foreign_traces: Path, check: Check, tmp_path: Path
) -> None:
    replay, capture = (
        foreign_traces / f"mi300x_vllm_{name}.json.gz" for name in ("decode_graph", "graph_capture")
    )
    analysis = analyze(load(replay), Given((load(capture),)))
    check(analysis.trace)
    events = json.loads((tmp_path / "exported.json").read_bytes())["traceEvents"]
    ranges = Counter(one["name"] for one in events if one.get("cat") == "model_range")
    assert ranges["GptOssForCausalLM_0"] == 1
    assert {ranges[f"GraphModule_0[{n}]"] for n in range(24)} == {1}


def test_interruptions_and_pauses_of_the_profiler(check: Check) -> None:
    trace = trace_of(*layered(steps=6, graph=False))
    first, second = launching_calls(trace)[40:42]
    at = int(trace.calls.start_ns[second])
    waited = held_before(trace, first, 10**9, "cudaEventSynchronize")
    planted = held_before(waited, second, 10**9, None)
    paused = with_pause(planted, "Buffer Flush", at + 10**9, at + 2 * 10**9)
    assert {one.cause for one in analyze(paused).report.interruptions} == {"wait", "profiler"}
    check(paused)


def test_what_merged_ranks_waited(loaded: Loader, tmp_path: Path) -> None:
    run = a_run(3, 40, np.array([0, 20_000, 0]))
    files = rank_files(tmp_path, run, beside_ns=3_000)
    target = tmp_path / "exported.json"
    export_analysis(analyze_ranks(files), "chrome", target)
    events = json.loads(target.read_bytes(), parse_float=Decimal)["traceEvents"]
    taken = loaded(target)
    assert_taken_whole(taken, events)
    waits = "select count(*), sum(dur) from slice where name = 'waits for rank 1 GPU 0'"
    entered = run.start_ns.max(axis=0)
    waited = int((entered - run.start_ns[0]).sum() + (entered - run.start_ns[2]).sum())
    assert taken.query(waits) == [(80, waited)]


def test_a_slice_that_trace_processor_drops_is_noticed(loaded: Loader, tmp_path: Path) -> None:
    slices = [
        {"ph": "X", "pid": 1, "tid": 1, "name": n, "ts": ts, "dur": 10, "cat": "kernel"}
        for n, ts in (("a", 0), ("b", 5))
    ]
    target = tmp_path / "overlapping.json"
    target.write_text(json.dumps({"traceEvents": slices}))
    events = json.loads(target.read_text(), parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    trace = loaded(target)
    with pytest.raises(AssertionError):
        assert_taken_whole(trace, events)
