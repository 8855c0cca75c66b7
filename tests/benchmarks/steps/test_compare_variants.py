"""What the benchmark of variants keeps of a comparison's windows."""

from typing import Any

import msgspec
import pytest

from benchmarks.steps.compare_variants import (
    Compared,
    idle_share_of_graph_span,
    recorded_command,
    token_table,
    window_summary,
)
from decodescope.analyzer import analyze, load
from decodescope.analyzer.text.formatting import UNKNOWN
from tests.helpers.rich_report import text_of


@pytest.fixture(scope="module")
def window(repository: Any) -> dict[str, Any]:
    """The report of a real window of graph replays."""
    analysis = analyze(load(repository / "tests/data/h200_compiled_replays.json.gz"))
    report: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(analysis.report))
    return report


def test_a_window_keeps_launches_overlap_and_idle_time_in_graphs(window: dict[str, Any]) -> None:
    summary = window_summary(window)
    device = window["devices"][0]
    in_graphs = summary["idle_ns_by_class"]["graph_internal"]
    share = summary["idle_share_of_graph_span"]
    assert in_graphs > 0
    assert share == pytest.approx(in_graphs / (in_graphs + device["busy_ns"]))
    assert summary["overlap_share_of_busy"] == device["overlap_ns"] / device["busy_ns"]
    launches = summary["launches"]
    assert launches["graph_launches"] == len(launches["gpu_ops_per_graph_launch"]) > 0
    assert sum(launches["by_api"].values()) == launches["calls"]


def test_without_graphs_there_is_no_graph_span(window: dict[str, Any]) -> None:
    launches = window["launches"] | {"graph_launches": 0}
    assert idle_share_of_graph_span(window | {"launches": launches}) is None


def test_the_table_has_a_row_for_each_variant() -> None:
    def run(variant: str, speed: float, launches: float, ops: float) -> dict[str, Any]:
        return {
            "variant": variant,
            "tokens_per_s": speed,
            "step_ns": {"p50": 2e6},
            "launch_calls_per_step": launches,
            "gpu_ops_per_step": ops,
        }

    record = {
        "model": "m",
        "variants": [
            {"variant": "fused", "mean": 100.0},
            {"variant": "fused+graph", "mean": 200.0},
        ],
        "runs": [
            run("fused", 90.0, 82, 82),
            run("fused", 110.0, 82, 82),
            run("fused+graph", 200.0, 1, 82),
        ],
        "windows": {
            "fused": {"idle_share_of_graph_span": None, "overlap_share_of_busy": 0.25},
            "fused+graph": {"idle_share_of_graph_span": 0.03, "overlap_share_of_busy": 0.0},
        },
    }
    rows = [line.split() for line in text_of(token_table(record)).splitlines()[-3:-1]]
    assert rows == [
        ["fused", "100", "90.0", "to", "110", "2.00", "82", "82", UNKNOWN, "25.0", "%"],
        ["fused+graph", "200", "200", "to", "200", "2.00", "1", "82", "3.0", "%", "0.0", "%"],
    ]


def test_the_record_names_the_options_that_measure_it_again() -> None:
    options = Compared("m@random", "fused,fp8", 3, batch=16, tokens=128)
    assert recorded_command(options) == (
        "python -m benchmarks compare-variants --model m@random --variants fused,fp8 "
        "--repeats 3 --batch 16 --tokens 128"
    )
