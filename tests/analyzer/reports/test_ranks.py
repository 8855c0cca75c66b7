"""Several ranks of one run: numbered, kept apart, and merged on one clock or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, analyze_ranks
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import GpuOps, HostEvents, Trace
from decodescope.analyzer.tracks.build import step_tracks
from tests.helpers.kineto_events import (
    RECORDED,
    Event,
    call,
    document,
    event,
    op,
    read,
    span,
    trace_of,
)

BASE = 1_790_857_026_000_000_000
SHAPES = {"Input Dims": [[3, 5], [5, 7]], "Input type": ["float", "float"]}


def rank_events(step: int = 1000, name: str = "kernel") -> list[Event]:
    return [
        span(0, step, "decode_step"),
        event("cpu_op", "aten::mm", 5, 30, 4242, 1, **{"External id": 3, **SHAPES}),
        call(10, 20, 5),
        op(40, 100, 5, name=name, **{"External id": 3}),
        call(50, 60, 6),
        op(150, step, 6, name="shared"),
    ]


def rank_trace(
    rank: int | None, *, base: int = BASE, events: list[Event] | None = None, gpu: str = "H100"
) -> Trace:
    keys: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": gpu}]}
    if rank is not None:
        keys["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    mine = rank_events(name=f"of {rank}") if events is None else events
    return trace_of(*mine, baseTimeNanoseconds=base, **keys)


def of(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_two_ranks_on_one_clock() -> None:
    ranks = merge_ranks([rank_trace(1, base=BASE + 25), rank_trace(0)])
    assert [rank for rank, _ in ranks.ranks] == [0, 1]
    merged = ranks.merged
    assert merged is not None
    assert merged.base_ns == BASE
    assert merged.ops.start_ns.tolist() == [40, 65, 150, 175]
    assert merged.ops.device.tolist() == [0, 1, 0, 1]
    assert merged.device_names == {0: "H100", 1: "H100"}
    assert merged.device_labels == {0: "rank 0 GPU 0", 1: "rank 1 GPU 0"}
    assert merged.calls.start_ns[merged.ops.launch].tolist() == [10, 35, 50, 75]
    assert len(set(merged.calls.pid.tolist())) == 2
    assert len(set(merged.ops.correlation.tolist())) == 4
    assert merged.work.external_id.tolist() == [3, 3 + (1 << 32)]
    assert merged.source.events == 12
    report = analyze(merged).report
    assert [device.window_ns for device in report.devices] == [960, 960]
    assert [step.gpu_ops for step in report.steps] == [2, 2]
    assert report.health.unlinked_gpu_ops == 0


@pytest.mark.parametrize(
    ("lengths_ms", "base_ms", "says"),
    [
        ((10, 30), (0, 0), "together, rank 1 alone 30.0 ms, rank 0 10.0 ms"),
        ((30, 30), (0, 15), "all ranks cover 15.0 ms together, rank 0 alone 30.0 ms"),
        ((30, 28), (0, 1), ""),
    ],
)
def test_windows_that_are_unlike_are_said(
    lengths_ms: tuple[int, int], base_ms: tuple[int, int], says: str
) -> None:
    traces = [
        rank_trace(
            rank,
            base=BASE + 10**6 * base_ms[rank],
            events=[op(0, 50, 5), op(10**6 * length - 50, 10**6 * length, 6)],
        )
        for rank, length in enumerate(lengths_ms)
    ]
    merged = merge_ranks(traces)
    assert merged.merged is not None
    found = [one for one in merged.merged.findings if one.code == "unlike_windows"]
    assert len(found) == bool(says)
    assert all(says in one.message for one in found)
    if says:
        assert analyze(merged.merged).report.health.status == "degraded"


def test_files_without_a_rank_are_numbered_in_their_order() -> None:
    ranks = merge_ranks([rank_trace(None), rank_trace(None, base=BASE + 1)])
    assert ([rank for rank, _ in ranks.ranks], of(ranks.findings)) == ([0, 1], [])


@pytest.mark.parametrize(
    ("named", "code"), [((3, 3), "duplicate_ranks"), ((3, None), "missing_ranks")]
)
def test_ranks_that_cannot_be_right(named: tuple[int | None, int | None], code: str) -> None:
    traces = [rank_trace(rank, base=BASE + index) for index, rank in enumerate(named)]
    ranks = merge_ranks(traces)
    assert ([rank for rank, _ in ranks.ranks], of(ranks.findings)) == ([0, 1], [code])
    assert ranks.merged is not None


@pytest.mark.parametrize(
    ("traces", "says"),
    [
        ([rank_trace(0, base=0), rank_trace(1)], "rank 0 has no time on the wall clock"),
        ([rank_trace(0), rank_trace(1, base=BASE + 1000)], "rank 1 begins 0.000 ms after rank 0"),
        ([rank_trace(0), rank_trace(1, base=BASE + 10**10)], "rank 1 begins 9999.999 ms after"),
        ([rank_trace(0), rank_trace(1, events=[])], "rank 1 has no time"),
        ([rank_trace(0), read(RECORDED)], "a capture without a GPU"),
    ],
)
def test_no_common_clock(traces: list[Trace], says: str) -> None:
    ranks = merge_ranks(traces)
    assert ranks.merged is None
    (finding,) = [one for one in ranks.findings if one.code == "no_common_clock"]
    assert says in finding.message
    assert len(ranks.ranks) == 2


def test_of_many_ranks_the_first_are_named() -> None:
    ranks = merge_ranks([rank_trace(rank, base=rank) for rank in range(500)])
    (finding,) = ranks.findings
    assert finding.message.endswith(
        "rank 0, 1, 2, 3, 4, 5, 6, 7 and 492 more has no time on the wall clock"
    )


def test_old_files_hold_wall_clock_times() -> None:
    at = 1_661_938_466_265_032_000
    moved = [call(at, at + 5, 1), op(at + 10, at + 50, 1)]
    later = [call(at + 7, at + 9, 1), op(at + 20, at + 50, 1)]
    ranks = merge_ranks([trace_of(*moved), trace_of(*later)])
    assert ranks.merged is not None
    assert ranks.merged.ops.start_ns.tolist() == [at + 10, at + 20]


def test_findings_of_a_rank_name_it() -> None:
    damaged = [*rank_events(), op(100, 90, 9)]
    ranks = merge_ranks([rank_trace(0), rank_trace(1, events=damaged, base=BASE + 1)])
    assert ranks.merged is not None
    (finding,) = ranks.merged.findings
    assert (finding.code, finding.message[:8]) == ("dropped_events", "rank 1: ")


def save(folder: Path, name: str, rank: int, base: int, step: int = 1000) -> Path:
    path = folder / name
    info = {"rank": rank, "world_size": 2}
    path.write_bytes(document(rank_events(step), baseTimeNanoseconds=base, distributedInfo=info))
    return path


def test_the_report_of_several_files(tmp_path: Path) -> None:
    paths = [save(tmp_path, "b.json", 1, BASE + 5), save(tmp_path, "a.json", 0, BASE, 900)]
    found = analyze_ranks(paths)
    text = json.loads(msgspec.json.encode(found.report))
    assert [one["rank"] for one in text["ranks"]] == [0, 1]
    assert text["schema_version"] == 3
    assert text["findings"] == []
    assert [one["report"]["devices"][0]["gpu_ops"] for one in text["ranks"]] == [2, 2]
    assert len(text["merged"]["devices"]) == 2
    assert found.merged is not None
    export_chrome(found.merged, tmp_path / "merged.json")
    again = analyze(load(tmp_path / "merged.json")).report
    assert [device.name for device in again.devices] == ["rank 0 GPU 0", "rank 1 GPU 0"]
    merged = found.merged.report.devices
    assert [device.device for device in merged] == ["rank 0 GPU 0", "rank 1 GPU 0"]
    alike = [
        msgspec.structs.replace(device, device=index, name=again.devices[index].name)
        for index, device in enumerate(merged)
    ]
    assert list(again.devices) == alike
    assert again.launches == found.merged.report.launches


def test_no_file_one_file_and_one_file_twice(tmp_path: Path) -> None:
    path = save(tmp_path, "a.json", 0, BASE)
    with pytest.raises(InputError, match="no trace files"):
        analyze_ranks([])
    alone = analyze_ranks([path])
    assert alone.merged is not None
    assert alone.merged.trace.device_labels == {0: "rank 0 GPU 0"}
    with pytest.raises(InputError, match="named twice"):
        analyze_ranks([path, tmp_path / "." / "a.json"])
    (tmp_path / "link.json").symlink_to(path)
    with pytest.raises(InputError, match="named twice"):
        analyze_ranks([path, tmp_path / "link.json"])
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="the same events as"):
        analyze_ranks([path, tmp_path / "copy.json"])


@st.composite
def some_traces(draw: st.DrawFn) -> list[Trace]:
    traces = []
    for rank in range(draw(st.integers(1, 4))):
        events: list[Event] = [span(0, 5000, "step")]
        for index in range(draw(st.integers(1, 12))):
            at = draw(st.integers(0, 4000))
            device, stream = draw(st.integers(0, 2)), draw(st.integers(7, 8))
            events.append(call(at, at + 3, index + 1, tid=draw(st.integers(1, 2))))
            events.append(
                op(
                    at + 5,
                    at + draw(st.integers(5, 90)),
                    index + 1,
                    device=device,
                    stream=stream,
                    name=draw(st.sampled_from("abc")),
                )
            )
        traces.append(rank_trace(rank, base=BASE + rank * draw(st.integers(1, 900)), events=events))
    return traces


@settings(max_examples=25)
@given(some_traces())
def test_nothing_is_lost_and_everything_is_sorted(traces: list[Trace]) -> None:
    ranks = merge_ranks(traces)
    merged = ranks.merged
    assert merged is not None
    expected = [
        (
            trace.base_ns + int(ops.start_ns[i]),
            trace.names[ops.name[i]],
            place,
            trace.base_ns + int(trace.calls.start_ns[ops.launch[i]]),
        )
        for place, trace in enumerate(traces)
        for ops in [trace.ops]
        for i in range(len(ops))
    ]
    found = [
        (
            merged.base_ns + int(merged.ops.start_ns[i]),
            merged.names[merged.ops.name[i]],
            int(merged.calls.pid[merged.ops.launch[i]]) >> 32,
            merged.base_ns + int(merged.calls.start_ns[merged.ops.launch[i]]),
        )
        for i in range(len(merged.ops))
    ]
    assert sorted(found) == sorted(expected)
    check_sorted(merged.ops, merged.ops.device)
    check_sorted(merged.calls, -merged.calls.end_ns)
    devices = {(p, int(d)) for p, t in enumerate(traces) for d in np.unique(t.ops.device)}
    assert len(analyze(merged).report.devices) == len(devices)


def check_sorted(columns: GpuOps | HostEvents, then: np.ndarray) -> None:
    keys = (columns.start_ns, columns.end_ns if isinstance(columns, GpuOps) else then)
    order = np.lexsort(tuple(reversed(keys)))
    assert all((key[order] == key).all() for key in keys)


def test_a_step_of_one_rank_lasts_until_the_next_of_that_rank() -> None:
    """Steps of several ranks interleave, so the next step to start may be of another rank."""
    events = [
        one
        for k, at in enumerate((0, 1000, 2000, 3000))
        for one in (
            span(at, at + 900, "decode_step"),
            call(at + 10, at + 20, k + 1),
            op(at + 100, at + 700, k + 1),
        )
    ]
    alone = analyze(rank_trace(0, events=events)).report
    merged = merge_ranks([rank_trace(r, base=BASE + 40 * r, events=events) for r in range(3)])
    assert merged.merged is not None
    together = analyze(merged.merged)
    assert alone.answer.step_ns == together.report.answer.step_ns == 1000
    assert together.report.answer.parts == alone.answer.parts
    assert step_tracks(together, 0).length_ns == 1000


def test_each_file_is_looked_up_a_constant_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"rank{i}.json" for i in range(60)]
    for path in paths:
        path.write_text("{}")
    looked_up: list[object] = []
    stat = os.stat

    def counted(path: str, **options: bool) -> os.stat_result:
        looked_up.append(path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", counted)
    with pytest.raises(TraceError, match="without a traceEvents list"):
        analyze_ranks(paths)
    assert len(paths) <= len(looked_up) < 4 * len(paths)
