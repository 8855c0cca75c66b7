"""The folded tree keeps every figure, and folded paths find the ops of what they stand for."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.attribution.range_tree import OWN_OPS, folded_name, paths_at
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.report import RangeReport, Report
from decodescope.analyzer.tables.ranges_table import RangeLine, range_lines
from tests.helpers.read_once import analysed_once


def report_of(path: str, ns: int = 1, **more: object) -> RangeReport:
    return RangeReport(path, ns, 1, 1, "exact", **more)  # type: ignore[arg-type]


@cache
def recorded() -> Report:
    return analysed_once(bundled_recordings()[0]).report


def lines_of(ranges: Sequence[RangeReport], by_layer: bool = True) -> tuple[RangeLine, ...]:
    main = msgspec.structs.replace(
        recorded().main_steps,
        kernels_attributed_ns=90,
        copies_attributed_ns=7,
        graphs_attributed_ns=3,
    )
    report = msgspec.structs.replace(
        recorded(), ranges=tuple(ranges), main_steps=main, kernels_ranked_by="total_ns"
    )
    return range_lines(report, by_layer=by_layer)


LAYERS = (
    report_of("step", 100),
    report_of("step/layer.0", 30, idle_ns=5, gaps={"host_wait": 5}),
    report_of("step/layer.0/attention", 20),
    report_of("step/layer.1", 20, idle_ns=2, gaps={"kernel_floor": 2}),
    report_of("step/layer.1/attention", 10),
    report_of("step/layer.1/mlp", 5),
    report_of("step/head", 9),
)


def test_ranges_become_a_tree() -> None:
    paths = ("step", "step/a", "step/a/x/y", "step/b", "st")
    lines = lines_of([report_of(path) for path in paths], by_layer=False)
    assert [(line.depth, line.label, line.children) for line in lines] == [
        (0, "step", True),
        (1, "a", True),
        (2, "x/y", False),
        (1, "b", False),
        (0, "st", False),
    ]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), max_size=12))
def test_labels_along_a_branch_are_the_path(parts: list[list[str]]) -> None:
    paths = sorted({"/".join(names) for names in parts}, key=lambda path: path.split("/"))
    lines = lines_of([report_of(path) for path in paths], by_layer=False)
    branch: list[str] = []
    for line, path in zip(lines, paths, strict=True):
        branch[line.depth :] = [line.label]
        assert "/".join(branch) == path


def test_layers_are_one_row_with_mean_and_spread() -> None:
    lines = lines_of(LAYERS)
    assert [(line.depth, line.label, len(line.each_ns)) for line in lines] == [
        (0, "step", 1),
        (1, "layer.*", 2),
        (2, "attention", 2),
        (2, "mlp", 1),
        (1, "head", 1),
    ]
    layers = lines[1]
    assert layers.range.path == "step/layer.*"
    assert lines[2].range.path == "step/layer.*/attention"
    assert lines[3].above == "step/layer.*"
    assert (layers.range.gpu_ns, layers.mean_ns, layers.spread) == (50, 25, pytest.approx(0.4))
    assert layers.share == pytest.approx(0.5)
    assert layers.range.gaps == {"host_wait": 5, "kernel_floor": 2}
    assert (lines[0].spread, lines[3].spread) == (None, None)
    assert [line.children for line in lines] == [True, True, False, False, False]


def test_unfolded_rows_are_the_ranges_themselves() -> None:
    lines = lines_of(LAYERS, by_layer=False)
    assert tuple(line.range for line in lines) == LAYERS
    assert [line.above for line in lines] == [
        None,
        "step",
        "step/layer.0",
        "step",
        "step/layer.1",
        "step/layer.1",
        "step",
    ]


def test_a_folded_row_is_as_certain_as_its_least_certain_range() -> None:
    ranges = (
        RangeReport("l.0", 1, 3, 1, "partial", matched=0.5),
        RangeReport("l.1", 1, 1, 1, "partial", matched=1.0),
        RangeReport("l.2", 1, 1, 1, "none"),
    )
    (line,) = lines_of(ranges)
    assert (line.range.confidence, line.range.matched) == ("none", pytest.approx(0.625))


def test_a_deep_tree_is_folded_without_recursion() -> None:
    paths = ["/".join(["a"] * depth) for depth in range(1, 1500)]
    lines = lines_of([report_of(path) for path in paths])
    assert [line.range.path for line in lines] == paths


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("layer.0", "layer.*"),
        ("layers/12/mlp_3", "layers/*/mlp_*"),
        ("conv2d", "conv2d"),
        ("fp8_e4m3", "fp*_e4m*"),
        ("head", "head"),
    ],
)
def test_numbers_are_folded_but_not_digits_before_a_letter(name: str, folded: str) -> None:
    assert folded_name(name) == folded


@given(st.lists(st.from_regex(r"[ab]{1,2}[.*]?\d{0,2}[x/]?", fullmatch=True), unique=True))
def test_a_folded_path_stands_for_exactly_the_names_that_fold_to_it(names: list[str]) -> None:
    for path, count in Counter(map(folded_name, names)).items():
        found = paths_at(names, path)
        if path in names:
            assert found == [names.index(path)]
        else:
            assert len(found) == count
            assert all(folded_name(names[index]) == path for index in found)
    for place, name in enumerate(names):
        assert paths_at(names, name) == [place]


@pytest.mark.parametrize(
    "path",
    [path for path in bundled_recordings() if path.stem.startswith("h200-llama-3.2-1b")],
    ids=lambda path: path.stem,
)
def test_rows_of_real_recordings_add_up(path) -> None:
    analysis = analysed_once(path)
    ranges, report = analysis.ranges, analysis.report
    plain = {one.path: one for one in report.ranges}
    lines = range_lines(report, by_layer=True)
    own = [line for line in lines if line.label == OWN_OPS]
    assert sum(len(line.each_ns) for line in lines) == len(plain) + len(own)
    for line in lines:
        inside = ranges.ops_within(line.range.path)
        assert int(inside.sum()) == line.range.gpu_ops
        assert int(analysis.attributed_ns[inside].sum()) == line.range.attributed_ns
        times = [one.time_ns for one in lines if one.above == line.range.path]
        assert times == sorted(times, reverse=True)
        below = [one.range for one in lines if one.above == line.range.path]
        for figure in ("attributed_ns", "gpu_ops", "idle_ns") if below else ():
            assert sum(getattr(one, figure) for one in below) == getattr(line.range, figure)
        assert sum(one.launch_calls for one in below) <= line.range.launch_calls
    assert any(line.label == "layer.*" and len(line.each_ns) == 16 for line in lines) or (
        "compiled" in path.stem
    )
    assert not np.any(ranges.ops_within("no/such/range"))
