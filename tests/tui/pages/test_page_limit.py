"""Page 6: the bandwidth of a step is named, points can be chosen."""

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.names.fitted_names import WHOLE_CELLS, short_kernels
from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.reports.roofline_model import roofline_model
from decodescope.analyzer.text.formatting import percent, significant
from decodescope.tui.model.picks import KernelPick, Selection
from decodescope.tui.panels.roofline import LogAxis, RooflinePanel, decade_text
from tests.helpers import scripted
from tests.helpers.app.recorded import BRUSHES, app_of, drawn, press, view_of, window
from tests.helpers.kineto_events import document, event, op
from tests.helpers.scripted import settle, text_of

PANELS = (RooflinePanel,)


def chosen(app):
    return app._painter.shown().selection.pick


def test_the_bandwidth_of_the_unprofiled_step_is_beside_the_peaks() -> None:
    shown = window("eager")
    panel = RooflinePanel(BRUSHES[0], view_of(shown))
    note = panel.draw(panel._data, 140, 20).note
    capture, step_ns = shown.report.capture, shown.report.answer.unprofiled_step_ns
    mbu = capture.bytes_per_step * 1e9 / step_ns / capture.measured_peak_bytes_per_s
    assert f"MBU {percent(mbu)} %" in note


async def test_the_live_figure_is_in_the_strip(tmp_path: Path) -> None:
    session = scripted.Session(tmp_path)
    trace = scripted.write_trace(tmp_path / "window.json")
    async with session.app.run_test(size=(170, 44)) as pilot:
        await session.run(pilot, State("running", "eager"), scripted.ready(trace))
        await press(pilot, "6")
        assert "MBU now 2.8 %" in text_of(session.app).splitlines()[2]
        await press(pilot, "1", "w")
        assert "% of 1.50 ms: below 60%" in text_of(session.app)


async def test_arrows_go_from_kernel_to_kernel_and_enter_opens_one(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(120, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "6", "right")
        model = roofline_model(app._painter.shown().window.report)
        longest = max(model.points, key=lambda point: point.ns)
        assert chosen(app) == KernelPick(longest.name)
        assert "[M]" in text_of(app)
        seen = {longest.name}
        for key in ("left",) * len(model.points) + ("right",) * len(model.points):
            await press(pilot, key)
            seen.add(chosen(app).name)
        assert seen == {point.name for point in model.points}
        fastest = max(model.points, key=lambda point: point.flops_per_s)
        await press(pilot, *["up"] * len(model.points))
        assert chosen(app) == KernelPick(fastest.name)
        await press(pilot, "enter")
        assert app._painter.shown().page == "kernels"


async def test_alike_kernels_are_told_apart_as_in_the_table_of_kernels(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "6", "right")
        kernels = [kernel.name for kernel in app._painter.shown().window.report.kernels]
        told_apart = short_kernels(kernels, WHOLE_CELLS)[chosen(app).name]
        assert "·" in told_apart
        assert f"{told_apart}: " in text_of(app)
        assert f"Kernel {told_apart} " in text_of(app)
        await press(pilot, "enter")
        assert f" {told_apart} " in text_of(app)
        await press(pilot, "enter")
        assert f"Launches of {told_apart} " in text_of(app)


def test_points_are_under_the_roof_where_their_share_says_so() -> None:
    lines = drawn(RooflinePanel, view_of(window("eager")), BRUSHES[2], 100, 20)
    model = roofline_model(window("eager").report)
    near = max(model.points, key=lambda point: point.share_of_limit or 0)
    assert near.share_of_limit > 0.8
    selected = view_of(window("eager"), Selection(KernelPick(near.name)))
    lines = drawn(RooflinePanel, selected, BRUSHES[2], 100, 20)
    (row,) = (number for number, line in enumerate(lines) if "[M]" in line)
    column = lines[row].index("[M]") + 1
    above = [number for number in range(row) if lines[number][column] in "•─"]
    assert len(above) <= 1
    assert f" {near.share_of_limit * 100:.1f} % of limit" in lines[-1]


@given(
    st.lists(st.floats(1e-6, 1e18), min_size=1, max_size=20),
    st.integers(1, 300),
)
def test_an_axis_keeps_the_order_of_its_values(values: list[float], cells: int) -> None:
    axis = LogAxis.around(values, cells)
    found = [axis.cell(value) for value in sorted(values)]
    assert found == sorted(found)
    assert 0 <= found[0] <= found[-1] < cells
    for cell in range(0, cells, max(cells // 7, 1)):
        assert axis.cell(axis.value(cell)) == cell
    for value, cell in axis.decades():
        assert math.isclose(math.log10(value), round(math.log10(value)), abs_tol=1e-9)
        assert 0 <= cell < cells
        assert len(decade_text(value)) <= 7


@pytest.mark.parametrize(
    ("page", "events", "said"),
    [
        ("1", [event("cpu_op", "aten::mm", 0, 100, 1, 1)], "no kernel, copy or fill in this trace"),
        ("1", [op(0, 100), op(200, 300)], "no steps · 300 ns in all · limit not known"),
        ("6", [op(0, 100), op(200, 300)], "of no kernel how many bytes and FLOPs"),
    ],
)
async def test_what_is_unknown_is_said_in_one_line(tmp_path: Path, page, events, said) -> None:
    path = tmp_path / "bare.json"
    path.write_bytes(document(events))
    app = app_of(path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, page, "left", "tab", "down")
        assert said in text_of(app)


@given(
    st.sampled_from(["eager", "fused+graph", "compiled"]),
    st.sampled_from(BRUSHES),
    st.integers(1, 300),
    st.integers(1, 60),
)
@settings(max_examples=80, deadline=None)
def test_every_size_is_drawn_and_nothing_is_wider(variant, brush, width, height) -> None:
    for kind in PANELS:
        lines = drawn(kind, view_of(window(variant)), brush, width, height)
        assert lines
        if width >= 60 and len(lines) > 1:
            assert max(map(len, lines)) <= width


@given(st.sampled_from(["eager", "fused+graph"]), st.sampled_from(BRUSHES), st.integers(60, 300))
@settings(max_examples=40, deadline=None)
def test_peaks_that_do_not_fit_above_the_roofline_are_left_out_whole(variant, brush, width) -> None:
    view = view_of(window(variant))
    panel = RooflinePanel(brush, view)
    sheet = panel.draw(panel.pick(view), width, 12)
    peak = window(variant).report.capture.measured_peak_bytes_per_s
    assert sheet.note.startswith(f"{significant(peak / 1e12)} TB/s measured")
    # A space on each side of both, and a line of two cells between them.
    assert len(f" {sheet.title} ── {sheet.note} ") <= width
