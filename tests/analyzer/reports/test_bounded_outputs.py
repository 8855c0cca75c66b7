"""Deep nesting, many ranges and huge names: outputs stay in proportion to the file, and say so."""

import json
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.attribution import range_tree
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.exporting import html_page
from decodescope.analyzer.readers.trace_columns import MAX_NAME
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.views.csv_export import render_csv
from tests.helpers.kineto_events import call, op, span, trace_of

DEEP = 20_000


def finding(analysis: Analysis, code: str) -> str:
    (message,) = [one.message for one in analysis.report.health.findings if one.code == code]
    return message


@pytest.fixture(scope="module")
def nested() -> Analysis:
    """20,000 ranges, each inside the one before, and 30 kernels launched in the innermost."""
    ranges = [span(i, 10 * DEEP - i, f"range_{i}") for i in range(DEEP)]
    middle = 5 * DEEP
    calls = [call(middle + 20 * i, middle + 20 * i + 5, i + 1) for i in range(30)]
    ops = [op(middle + 20 * i + 7, middle + 20 * i + 12, i + 1) for i in range(30)]
    return analyze(trace_of(*ranges, *calls, *ops))


def test_deep_nesting_is_cut_and_said(nested: Analysis) -> None:
    paths = [one.path for one in nested.report.ranges]
    assert 1 < len(paths) < range_tree.MAX_PATH
    assert max(map(len, paths)) <= range_tree.MAX_PATH
    assert paths[-1].startswith("range_0/range_1/range_2/")
    assert {one.gpu_ops for one in nested.report.ranges} == {30}
    assert f"{DEEP - len(paths)} ranges" in finding(nested, "cut_ranges")


def test_outputs_of_deep_nesting_stay_small(nested: Analysis, tmp_path: Path) -> None:
    export_chrome(nested, tmp_path / "out.json")
    chrome = (tmp_path / "out.json").read_bytes()
    assert sum(event.get("ph") == "X" for event in json.loads(chrome)["traceEvents"]) > DEEP
    sizes = {
        "json": len(msgspec.json.encode(nested.report)),
        "csv": len(render_csv(nested.report, "range")),
        "html": len(html_page("deep", {"deep": nested})),
        "chrome": len(chrome),
    }
    assert max(sizes.values()) < 4_000_000, sizes


def test_all_paths_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_tree, "MAX_PATHS", 600)
    events = []
    for i in range(100):
        events += [
            span(100 * i, 100 * i + 50, f"range_{i:02}"),
            call(100 * i + 5, 100 * i + 9, i + 1),
        ]
        events.append(op(100 * i + 10, 100 * i + 20, i + 1))
    found = analyze(trace_of(*events))
    assert [one.path for one in found.report.ranges] == [f"range_{i:02}" for i in range(75)]
    assert "25 ranges" in finding(found, "cut_ranges")
    assert found.report.attribution is not None
    assert found.report.attribution.none == 25
    assert sum(kernel.count for kernel in found.report.kernels) == 100


def test_huge_names_lose_their_middle() -> None:
    size = 3_000_000
    names = ["x" * size + "a", "x" * size + "b", "y" + "x" * size, "x" * MAX_NAME]
    events = []
    for i, name in enumerate(names * 2):
        events += [
            call(100 * i, 100 * i + 5, i + 1),
            op(100 * i + 10, 100 * i + 20, i + 1, name=name),
        ]
    found = analyze(trace_of(*events))
    kernels = [kernel.name for kernel in found.report.kernels]
    assert len(kernels) == len(names)
    assert names[-1] in kernels
    assert max(map(len, kernels)) <= MAX_NAME
    assert "3,000,001 characters" in min(kernels)
    assert "characters (3) is left out" in finding(found, "long_names")
    assert len(msgspec.json.encode(found.report)) < 40 * MAX_NAME
