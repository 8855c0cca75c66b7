"""Page 5: the tree has the figures of the report, folds, sorts and narrows."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.attribution.range_tree import OWN_OPS
from decodescope.analyzer.text.formatting import duration, number
from decodescope.tui.background import analyse_files
from decodescope.tui.model.describe import range_detail_lines
from decodescope.tui.model.picks import RangePick, Selection
from decodescope.tui.panels.range_tree import RangeRows, RangeTreePanel
from tests.helpers.app import recorded
from tests.helpers.app.recorded import BRUSHES, app_of, drawn, press, view_of, window
from tests.helpers.kineto_events import PID, call, document, event, op
from tests.helpers.scripted import settle, text_of


def selection(app) -> Selection:
    return app._painter.shown().selection


def labels(app) -> list[str]:
    """The ranges on the screen, from top to bottom, without what is around them."""
    panel = app.query_one(RangeTreePanel)
    return [panel._shown.lines[row].label for row in panel._order]


@pytest.fixture
def fused(tmp_path: Path) -> Path:
    return recorded.write_window(tmp_path, "fused+graph")


def rows_of(variant: str) -> RangeRows:
    panel = RangeTreePanel(BRUSHES[0], view_of(window(variant)))
    assert isinstance(panel._shown, RangeRows)
    return panel._shown


async def test_layers_are_one_row_until_they_are_asked_for(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "5")
        assert "layer.* \u00d716" in text_of(app)
        assert "layer.0" not in labels(app)
        folded = len(labels(app))
        await press(pilot, "z")
        assert {f"layer.{number}" for number in range(16)} <= set(labels(app))
        ranges = [label for label in labels(app) if label != OWN_OPS]
        assert len(ranges) == len(app._painter.shown().window.report.ranges)
        await press(pilot, "z")
        assert len(labels(app)) == folded


async def test_the_smallest_screen_shows_the_layers_and_what_is_in_them(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(60, 16)) as pilot:
        await settle(pilot)
        await press(pilot, "5")
        assert "layer.* \u00d716" in text_of(app)
        assert "attention" in text_of(app)


async def test_space_and_the_arrows_fold(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "5", "down", "down")
        everything = labels(app)
        assert everything[2] == "layer.*"
        await press(pilot, "space")
        assert "attention" not in labels(app)
        await press(pilot, "right")
        assert labels(app) == everything
        await press(pilot, "down", "left")
        assert selection(app).pick == RangePick("decode_step/model/layer.*")
        await press(pilot, "left", "home", "left")
        assert labels(app) == ["decode_step"]
        assert not app._painter.frozen


async def test_enter_narrows_every_page_and_escape_widens(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "5", "down", "enter")
        assert selection(app).within == "decode_step/model"
        assert "narrowed to decode_step/model" in text_of(app)
        await press(pilot, "enter")
        assert selection(app).within is None
        await press(pilot, "enter", "escape", "escape")
        assert selection(app) == Selection()


async def test_sorting_keeps_every_range_below_the_one_around_it(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(200, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "5", "z")
        panel = app.query_one(RangeTreePanel)
        for column in range(len(panel._shown.columns)):
            panel.sort_by(column)
            lines = [panel._shown.lines[row] for row in panel._order]
            sorted_by = panel._shown.columns[column].sorted_by
            values = [sorted_by(panel._shown.table.rows[row]) for row in panel._order]
            open_paths: list[str] = []
            last: dict[str | None, object] = {}
            for line, value in zip(lines, values, strict=True):
                del open_paths[line.depth :]
                assert line.above == (open_paths[-1] if open_paths else None)
                open_paths.append(line.range.path)
                if line.above in last:
                    before = last[line.above]
                    assert before >= value if panel._down else before <= value
                last[line.above] = value
            assert len(lines) == len(panel._shown)


def test_the_figures_are_those_of_the_report() -> None:
    shown = window("eager")
    plain = {one.path: one for one in shown.report.ranges}
    lines = drawn(RangeTreePanel, view_of(shown), BRUSHES[0], 140, 30)
    found = plain["decode_step/model/lm_head"]
    (line,) = (line for line in lines if " lm_head " in line)
    steps = shown.report.main_steps.steps
    times = (duration(found.gpu_ns / steps), duration(found.idle_ns / steps))
    for text in (*times, number(found.launch_calls / steps), found.confidence):
        assert f" {text} " in f"{line} "


def test_ranges_that_overlap_are_shown_by_attributed_time() -> None:
    rows = rows_of("fused+graph")
    assert rows.columns[1].heading == "attributed"
    whole = {line.range.path: line for line in rows.lines}
    busy_ns = window("fused+graph").report.devices[0].busy_ns
    assert whole["decode_step"].time_ns == busy_ns
    assert whole["decode_step"].share == 1
    assert rows_of("eager").columns[1].heading == "GPU time"


def test_operators_stand_where_the_host_opened_no_range(tmp_path: Path) -> None:
    path = tmp_path / "operators.json"
    path.write_bytes(
        document([event("cpu_op", "aten::mm", 0, 50, PID, 1), call(10, 20, 1), op(30, 100, 1)])
    )
    view = view_of(analyse_files([path], 0.0))
    panel = RangeTreePanel(BRUSHES[0], view)
    assert panel._title == "Operators (the host opened no range)"
    assert any("aten::mm" in line for line in drawn(RangeTreePanel, view, BRUSHES[0], 80, 9))
    stepped = RangeTreePanel(BRUSHES[0], view_of(window("eager")))
    assert stepped._title == "Ranges per step"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([event("cpu_op", "aten::mm", 0, 100, 1, 1)], "no GPU activity in this trace"),
        ([op(0, 100), op(200, 300)], "no range and no operator of the host"),
    ],
)
async def test_a_trace_without_ranges_has_one_clear_line(tmp_path: Path, events, said) -> None:
    path = tmp_path / "bare.json"
    path.write_bytes(document(events))
    app = app_of(path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "5", "space", "left", "right", "enter", "g", "5", "z", "s")
        assert said in text_of(app)


def test_details_of_a_folded_row_add_up_to_its_ranges() -> None:
    shown = window("eager")
    lines = list(range_detail_lines(shown, "decode_step/model/layer.*"))
    said = {line.label: line.text for line in lines}
    layers = [
        one
        for one in shown.report.ranges
        if one.path.startswith("decode_step/model/layer.") and one.path.count("/") == 2
    ]
    assert len(layers) == 16
    assert said["GPU time"].startswith(duration(sum(one.gpu_ns for one in layers)))
    assert said["ranges"].startswith("16, each ")
    assert said["idle"].startswith(duration(sum(one.idle_ns for one in layers)))
    assert said["confidence"].startswith("exact")
    assert any("nvjet" in line.text for line in lines)


def test_details_of_a_range_that_is_gone_say_so() -> None:
    lines = list(range_detail_lines(window("eager"), "decode_step/none"))
    assert [line.text for line in lines] == ["not in this window", "decode_step/none"]


@given(
    st.sampled_from(["eager", "fused+graph", "compiled"]),
    st.sampled_from(BRUSHES),
    st.integers(1, 300),
    st.integers(1, 60),
)
@settings(max_examples=60, deadline=None)
def test_every_size_is_drawn_and_nothing_is_wider(variant, brush, width, height) -> None:
    lines = drawn(RangeTreePanel, view_of(window(variant)), brush, width, height)
    assert lines
    if width >= 40:
        assert max(map(len, lines)) <= width
