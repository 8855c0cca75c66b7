"""Launch shapes in each format of trace, in merged ranks, in reports and in exports."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchShape
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.views.csv_export import render_csv
from tests.helpers.foreign import rocprof_files
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.kineto_events import Event, op, read, trace_of

SHAPES = st.sampled_from([(1, 1, 1), (132, 1, 1), (2, 64, 1), (30, 4, 2)])


def kernel(start: int, name: str = "k", **args: Any) -> Event:
    named = {"registers": "registers per thread", "shared": "shared memory"}
    return op(start, start + 5, name=name, **{named.get(key, key): v for key, v in args.items()})


def shapes_of(trace: Trace) -> list[LaunchShape | None]:
    return [trace.shapes[shape] if shape >= 0 else None for shape in trace.ops.shape.tolist()]


def reports_of(*events: Event) -> dict[str, KernelReport]:
    return {one.name: one for one in analyze(trace_of(*events)).report.kernels}


def test_kinetos_arguments() -> None:
    trace = trace_of(
        kernel(0, grid=[2, 64, 1], block=[384, 1, 1], registers=168, shared=164308),
        op(10, 15, name="Memcpy", cat="gpu_memcpy"),
        kernel(20, grid=[2, 64, 1], block=[384, 1, 1], registers=168, shared=164308),
        kernel(30, grid=[1, 1, 1], block=[256, 1, 1]),
    )
    first = LaunchShape((2, 64, 1), (384, 1, 1), 168, 164308)
    assert shapes_of(trace) == [first, None, first, LaunchShape((1, 1, 1), (256, 1, 1))]
    assert len(trace.shapes) == 2


@pytest.mark.parametrize(
    "grid",
    [
        None,
        [],
        [1, 2],
        [1, 2, 3, 4],
        [0, 0, 0],
        [1, -2, 3],
        [1, 2.5, 3],
        "no",
        {},
        [1, "x", 3],
        [1 << 70, 1, 1],
        [True, None, 1],
        "x" * 10_000,
    ],
)
def test_what_is_no_grid_is_not_given(grid: object) -> None:
    trace = trace_of(kernel(0, grid=grid, registers=-1, shared="?"), kernel(9, registers=32))
    assert shapes_of(trace) == [None, LaunchShape(registers_per_thread=32)]


def test_a_damaged_file_keeps_the_shapes_before_the_damage() -> None:
    events = [kernel(at, grid=[at + 1, 1, 1], block=[32, 1, 1]) for at in range(0, 100, 10)]
    whole = json.dumps({"traceEvents": events}).replace('"@', "").replace('@"', "")
    trace = read(whole[: whole.rindex('"ts"')])
    assert shapes_of(trace) == [LaunchShape((at + 1, 1, 1), (32, 1, 1)) for at in range(0, 90, 10)]


def test_nsights_columns(tmp_path: Path) -> None:
    export = Export()
    sizes = {"gridX": 4, "gridY": 24, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1}
    more = {"registersPerThread": 90, "staticSharedMemory": 1024, "dynamicSharedMemory": 4096}
    export.kernel(10, 20, 5, **sizes, **more)
    export.kernel(30, 40, 6, **sizes, **more | {"dynamicSharedMemory": 0})
    export.kernel(50, 60, 7)
    trace = load(export.write(tmp_path / "a.sqlite"))
    assert shapes_of(trace) == [
        LaunchShape((4, 24, 1), (128, 1, 1), 90, 5120),
        LaunchShape((4, 24, 1), (128, 1, 1), 90, 1024),
        None,
    ]


def test_rocprofs_work_items_become_blocks(tmp_path: Path) -> None:
    process = rocprof_files.Process()
    process.kernel(10, 20, 1, threads=(1000, 2, 1), block=(256, 1, 1), lds=64)
    process.kernel(30, 40, 2, kernel=8)
    trace = load(rocprof_files.write(tmp_path / "a.json", process))
    assert shapes_of(trace) == [LaunchShape((4, 2, 1), (256, 1, 1), 40, 64), None]


def test_ranks_share_one_table() -> None:
    base = 1_790_857_026_000_000_000
    one = trace_of(kernel(0, grid=[1, 1, 1]), kernel(25), baseTimeNanoseconds=base)
    other = trace_of(
        kernel(20, grid=[2, 1, 1]), kernel(30, grid=[1, 1, 1]), baseTimeNanoseconds=base
    )
    merged = merge_ranks([one, other]).merged
    assert merged is not None
    first, second = LaunchShape(grid=(1, 1, 1)), LaunchShape(grid=(2, 1, 1))
    assert shapes_of(merged) == [first, second, None, first]
    assert merged.shapes == (first, second)


@given(st.lists(st.tuples(st.sampled_from("ab"), SHAPES | st.none()), max_size=30))
def test_a_report_has_the_most_common_shape(calls: list[tuple[str, Any]]) -> None:
    events = [
        kernel(10 * row, name, **({"grid": list(grid)} if grid else {}))
        for row, (name, grid) in enumerate(calls)
    ]
    for name, found in reports_of(*events).items():
        grids = Counter(grid for of, grid in calls if of == name and grid)
        assert found.shapes == len(grids)
        assert (found.shape is None) == (not grids)
        if found.shape is not None:
            assert found.shape.grid is not None
            assert grids[found.shape.grid] == max(grids.values())


def test_exports_keep_shapes(tmp_path: Path) -> None:
    trace = trace_of(
        kernel(0, "a", grid=[2, 64, 1], block=[384, 1, 1], registers=168, shared=9),
        kernel(10, "b"),
        kernel(20, "a", grid=[2, 64, 1]),
        kernel(30, "c", shared=0),
    )
    analysis = analyze(trace)
    export_chrome(analysis, tmp_path / "out.json")
    again = load(tmp_path / "out.json")
    assert shapes_of(again) == shapes_of(trace)
    assert msgspec.json.encode(analyze(again).report.kernels) == msgspec.json.encode(
        analysis.report.kernels
    )
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(render_csv(analysis.report)))}
    assert (rows["a"]["grid"], rows["a"]["block"]) == ("2x64x1", "384x1x1")
    assert (rows["a"]["registers_per_thread"], rows["a"]["shapes"]) == ("168", "2")
    assert (rows["b"]["grid"], rows["b"]["shapes"]) == ("", "0")
    assert (rows["c"]["grid"], rows["c"]["shared_memory_bytes"]) == ("", "0")
