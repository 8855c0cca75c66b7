"""Page 1: the timeline of the answer's step, at any size."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from decodescope.analyzer.text.formatting import duration
from decodescope.tui.background import analyse_files
from decodescope.tui.model.view import Window
from decodescope.tui.panels.step_timeline import StepTimelinePanel
from tests.helpers.app.recorded import BRUSHES, view_of, window
from tests.helpers.kineto_events import DATA, document, op

VARIANTS = ["eager", "compiled", "fused+graph"]


def title_of(shown: Window, height: int = 5) -> str:
    panel = StepTimelinePanel(BRUSHES[0], view_of(shown))
    return panel.draw(panel._data, 100, height).title


@given(
    st.sampled_from(VARIANTS), st.sampled_from(BRUSHES), st.integers(0, 300), st.integers(0, 100)
)
@settings(max_examples=40, deadline=None)
def test_the_timeline_of_the_step_is_drawn_at_every_size(variant, brush, width, height) -> None:
    panel = StepTimelinePanel(brush, view_of(window(variant)))
    sheet = panel.draw(panel._data, width, height)
    assert len(sheet.rows) <= height
    assert bool(sheet.rows) == bool(height)
    if width >= 60:
        lines = ("".join(segment.text for segment in row.segments) for row in sheet.rows)
        assert all(cell_len(line.rstrip()) <= width for line in lines)
    wanted = panel.wanted_rows(width)
    assert len(panel.draw(panel._data, width, wanted).rows) == wanted


@pytest.mark.parametrize("name", ["eager", "h200_graph_replays"])
def test_the_timeline_is_of_the_step_of_the_answer(name: str) -> None:
    shown = window(name) if name == "eager" else analyse_files([DATA / f"{name}.json.gz"], 0.0)
    report, tracks = shown.report, shown.tracks
    step = report.steps[report.answer.step]
    assert int(tracks.step[tracks.home_step]) == report.answer.step
    assert title_of(shown, 8).startswith(
        f"Step {step.index}  {duration(report.answer.step_ns)}, {step.gpu_ops} GPU ops"
    )


def test_without_steps_it_is_of_all_ops_and_on_the_cpu_of_operators(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(document([op(0, 10, name="mystery"), op(20, 30, name="mystery")]))
    assert title_of(analyse_files([path], 0.0)) == "All ops  30 ns, 2 GPU ops"
    on_cpu = analyse_files([DATA / "cpu_two_blocks.json.gz"], 0.0)
    assert title_of(on_cpu).endswith(" operators")
