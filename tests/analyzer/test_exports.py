"""Tables, CSV, Chrome traces and the benchmark's input: what comes out is what was analysed."""

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_events import DATA, PID, Event, call, event, op, span, trace_of

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.chrome_events import microseconds
from decodescope.analyzer.chrome_export import export_chrome
from decodescope.analyzer.chrome_tracks import nesting_tracks, separate_tracks
from decodescope.analyzer.csv_export import render_csv
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.kernel_names import cut_middle, shorten_kernel
from decodescope.analyzer.table import table_text

BASE = 1_661_938_466_265_032_123
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
    "at::native::BinaryFunctor<float, float, float>, std::array<char*, 3ul>)"
)
CAPTURE = {
    "device": "cuda", "device_name": "NVIDIA H200", "model": "llama@random", "weights": "random",
    "variant": "eager", "dtype": "bf16", "batch": 1, "context": 4, "position": 4, "steps": 2,
    "bytes_per_step": 48_000, "unprofiled_step_ns": 90, "decodescope_version": "0",
}  # fmt: skip


def rich_analysis() -> Analysis:
    return analyze(
        trace_of(
            span(BASE, BASE + 900, "decode_step_0"), span(BASE + 10, BASE + 400, "layer.0"),
            event("cpu_op", "aten::mul", BASE + 12, BASE + 90, PID, 1, **{"External id": 3}),
            call(BASE + 20, BASE + 60, 1), op(BASE + 100, BASE + 301, 1, name=ELEMENTWISE),
            call(BASE + 61, BASE + 70, 2), op(BASE + 250, BASE + 350, 2, name='we"ird\\ \x1b[31m'),
            call(BASE + 410, BASE + 480, 3, name="cudaGraphLaunch"),
            op(BASE + 500, BASE + 600, 3, **{"graph id": 1, "graph node id": 4294967298}),
            op(BASE + 610, BASE + 700, 3, **{"graph id": 1, "graph node id": 4294967299}),
            call(BASE + 500, BASE + 505, 4, name="cudaMemcpyAsync"),
            op(BASE + 800, BASE + 801, 4, name="Memcpy", cat="gpu_memcpy", stream=9),
            op(BASE + 820, BASE + 830, name="lost", device=1),
            deviceProperties=[{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
            baseTimeNanoseconds=77,
            decodescope=CAPTURE,
        )
    )  # fmt: skip


def figures(analysis: Analysis) -> bytes:
    report = analysis.report
    health = msgspec.structs.replace(report.health, findings=())
    return msgspec.json.encode(msgspec.structs.replace(report, source=None, health=health))


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_an_exported_trace_reads_back_the_same(tmp_path: Path, name: str) -> None:
    analysis = rich_analysis()
    export_chrome(analysis, tmp_path / name)
    again = load(tmp_path / name)
    assert figures(analyze(again)) == figures(analysis)
    assert again.base_ns == 77 + BASE
    assert (again.ops.start_ns + BASE).tolist() == analysis.trace.ops.start_ns.tolist()
    assert again.ops.graph_node_id.tolist() == analysis.trace.ops.graph_node_id.tolist()
    assert again.capture == analysis.trace.capture
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_cpu_capture_reads_back_the_same(tmp_path: Path) -> None:
    analysis = analyze(load(DATA / "cpu_two_blocks.json.gz"))
    export_chrome(analysis, tmp_path / "out.json")
    assert figures(analyze(load(tmp_path / "out.json"))) == figures(analysis)


def exported_events(tmp_path: Path) -> list[Event]:
    export_chrome(rich_analysis(), tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


def test_times_are_microseconds_with_three_decimals(tmp_path: Path) -> None:
    for item in exported_events(tmp_path):
        for key in ("ts", "dur"):
            if key in item:
                assert isinstance(item[key], Decimal)
                assert item[key].as_tuple().exponent == -3
                assert 0 <= item[key] < 1


def test_slices_of_one_track_never_overlap_in_part(tmp_path: Path) -> None:
    tracks: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = {}
    for item in exported_events(tmp_path):
        if item["ph"] == "X":
            end = item["ts"] + item["dur"]
            tracks.setdefault((item["pid"], item["tid"]), []).append((item["ts"], end))
    for slices in tracks.values():
        for start, end in slices:
            assert not any(start < s < end < e for s, e in slices)


def test_arrows_lead_from_calls_to_ops(tmp_path: Path) -> None:
    events = exported_events(tmp_path)
    slices = [item for item in events if item["ph"] == "X"]
    tails = {item["id"]: item for item in events if item["ph"] == "s"}
    heads = {item["id"]: item for item in events if item["ph"] == "f"}
    assert len(tails) == len(heads) == 5
    for number, tail in tails.items():
        (source,) = (s for s in slices if at(s, tail) and s["cat"] == "cuda_runtime")
        (target,) = (s for s in slices if at(s, heads[number]) and s["cat"] != "gap")
        assert source["args"]["correlation"] == target["args"]["correlation"]
        assert heads[number]["bp"] == "e"


def at(piece: Event, arrow: Event) -> bool:
    return all(piece[key] == arrow[key] for key in ("pid", "tid", "ts"))


def test_gaps_and_counters_have_tracks_of_their_own(tmp_path: Path) -> None:
    events = exported_events(tmp_path)
    analysis = rich_analysis()
    gaps = [item for item in events if item.get("cat") == "gap"]
    assert len(gaps) == len(analysis.gaps)
    assert sum(item["args"]["length_ns"] for item in gaps) == sum(
        device.idle_ns for device in analysis.report.devices
    )
    names = {item["args"]["name"] for item in events if item["name"] == "thread_name"}
    assert {"idle gaps", "stream 7", "stream 7 overlapping on it", "stream 9"} <= names
    depths = [item["args"]["queue depth"] for item in events if item["name"] == "queue depth"]
    assert max(depths) == 2
    assert depths[-1] == 0
    assert {item["args"]["busy"] for item in events if item["name"] == "busy"} == {0, 1}


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        export_chrome(rich_analysis(), tmp_path / "missing" / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000"), (1, "0.001"), (-1, "-0.001"), (-1500, "-1.500"), (10**18, f"{10**15}.000")],
)
def test_microseconds_text(ns: int, text: str) -> None:
    assert microseconds(ns) == text


slices = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=15)


@given(slices)
@settings(deadline=None)
def test_tracks_separate_and_nest(rows: list[tuple[int, int]]) -> None:
    rows = sorted(((start, start + length) for start, length in rows), key=lambda r: (r[0], -r[1]))
    start, end = (np.array([r[i] for r in rows], dtype=np.int64) for i in (0, 1))
    apart, nested = separate_tracks(start, end), nesting_tracks(start, end)
    for i, (a, b) in enumerate(rows):
        for j, (c, d) in enumerate(rows[:i]):
            if apart[i] == apart[j]:
                assert a >= d or b <= c
            if nested[i] == nested[j]:
                assert a >= d or b <= d
    if not any(a < d for i, (a, _) in enumerate(rows) for _, d in rows[:i]):
        assert not apart.any()


def test_csv_of_kernels_and_ranges_keeps_names_and_numbers() -> None:
    report = rich_analysis().report
    rows = list(csv.DictReader(io.StringIO(render_csv(report))))
    assert [row["name"] for row in rows] == [kernel.name for kernel in report.kernels]
    assert [int(row["total_ns"]) for row in rows] == [k.total_ns for k in report.kernels]
    assert [float(row["share"]) for row in rows] == [k.share for k in report.kernels]
    rows = list(csv.DictReader(io.StringIO(render_csv(report, "range"))))
    assert [row["path"] for row in rows] == [found.path for found in report.ranges]


@pytest.mark.parametrize("by", ["kernel", "range", "gap"])
def test_every_csv_row_says_where_it_comes_from(by: str) -> None:
    report = rich_analysis().report
    assert report.capture is not None
    rows = list(csv.DictReader(io.StringIO(render_csv(report, by))))
    assert rows
    devices = {str(device.device) for device in report.devices}
    for row in rows:
        assert (row["model"], row["weights"]) == (report.capture.model, report.capture.weights)
        assert set(row["device" if by == "gap" else "devices"].split()) <= devices


def test_csv_of_gaps_adds_up_to_idle() -> None:
    report = rich_analysis().report
    rows = list(csv.DictReader(io.StringIO(render_csv(report, "gap"))))
    for device in report.devices:
        mine = [row for row in rows if row["device"] == str(device.device)]
        assert sum(int(row["total_ns"]) for row in mine) == device.idle_ns
        assert {row["label"] for row in mine if row["class"] == "host_wait"} == set(
            device.host_wait
        )


@pytest.mark.parametrize("by", ["kernel", "range", "gap"])
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_table_fits_its_width_and_names_what_matters(by: str, width: int) -> None:
    text = table_text(rich_analysis().report, by, width)
    assert max(map(len, text.splitlines())) <= width
    assert "NVIDIA H200 (GPU 0)" in text
    assert "(random weights)" in text
    assert "\x1b" not in text
    assert "Trace health: degraded" in text
    assert ("Longest gaps" in text) == (by == "gap")
    assert "decode_step" in text


def test_the_table_shows_every_kernel_figure_it_has_room_for() -> None:
    lines = [f"{k.name}" for k in rich_analysis().report.kernels]
    text = table_text(rich_analysis().report, "kernel", 120)
    assert len(lines) == 4
    assert "vectorized_elementwise_kernel<…MulFunctor…>" in text
    assert "201 ns" in text
    assert "1 graph launches of 2 GPU ops each" in text


def test_a_cpu_report_says_so() -> None:
    text = table_text(analyze(load(DATA / "cpu_two_blocks.json.gz")).report)
    assert "device: cpu · test CPU" in text
    assert "Leaf operators" in text
    assert "GPU 0" not in text


def test_an_empty_trace_has_a_table() -> None:
    text = table_text(analyze(trace_of()).report)
    assert "nothing ran on a GPU" in text
    assert "Devices" not in text


@given(st.text(max_size=60), st.integers(0, 50))
def test_names_are_never_longer_than_asked(name: str, cells: int) -> None:
    assert len(shorten_kernel(name, cells)) <= cells
    assert len(cut_middle(name, cells)) <= cells


def test_short_names_stay_and_long_ones_keep_what_tells_them_apart() -> None:
    assert shorten_kernel("nvjet_tst_64x8", 14) == "nvjet_tst_64x8"
    assert shorten_kernel(ELEMENTWISE, 60) == "vectorized_elementwise_kernel<…MulFunctor…>"
    copy = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::X&)>"
    )
    assert "direct_copy_kernel_cuda" in shorten_kernel(copy, 64)
    assert shorten_kernel("void k(int, float const*, float const*)", 10) == "k"
