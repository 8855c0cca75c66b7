"""A step is chosen from a table, or with < and >, and every page has the figures of that step."""

import asyncio
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from decodescope.analyzer import Analysis, load
from decodescope.analyzer.reports.analysis import analysis_of_step, analyze
from decodescope.analyzer.tables.steps_table import MEDIAN, steps_table
from decodescope.analyzer.text.formatting import count, duration, microseconds
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.picks import KernelPick, OpPick
from decodescope.tui.model.sources import ReplaySource
from decodescope.tui.screens.steps import StepsScreen, StepTablePanel
from tests.helpers.app.looks import DARK_ONLY, Looks, after
from tests.helpers.app.recorded import app_of, press
from tests.helpers.planted.situations import situation
from tests.helpers.scripted import Session, StillClock, ready, settle, text_of, write_trace

PREFILLS, DECODES = (0, 5), 7


@pytest.fixture
def prefills(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(situation("vllm_prefills", 0).traces[0])
    return path


def strip_of(app: DecodescopeApp) -> str:
    lines = iter(text_of(app).splitlines())
    return next(next(lines) for line in lines if "8 Files" in line or line.rstrip().endswith("9"))


def listed(app: DecodescopeApp) -> list[int]:
    panel = app.screen.query_one(StepTablePanel)
    return [panel._shown.key(row) for row in panel._order]


def shows(app: DecodescopeApp, whole: Analysis, step: int, place: int) -> None:
    """The page at `place` has the figures of one step."""
    report, text = analysis_of_step(whole, step).report, text_of(app)
    kind = report.steps[step].kind
    assert f"step {step}, {kind}" in strip_of(app)
    answer = report.answer
    if place == 1:
        assert f"step {step}, {kind} · {duration(answer.whole_ns)} in all" in text
        assert all(f" {duration(part.ns)} " in text for part in answer.parts[:5])
        assert (
            f"Step {step}  {duration(answer.step_ns)}, {answer_ops(report, step)} GPU ops" in text
        )
    else:
        assert f"step {step}, {kind} {duration(answer.step_ns)} " in strip_of(app)
    if place == 2:
        assert f"step {step}  {duration(answer.step_ns)}" in text
    if place == 3:
        for kernel in report.kernels[:5]:
            assert f" {count(kernel.count)} " in text
            assert f" {microseconds(kernel.total_ns)} " in text
    if place == 4:
        idle_ns = report.main_steps.all_gaps.total_ns
        assert f" {count(report.main_steps.all_gaps.count)}  {duration(idle_ns)}" in text
        assert f"Gaps {count(report.main_steps.all_gaps.count)}: step {step}, {kind}" in text
    if place == 5:
        (root, *_) = report.ranges
        assert f" {duration(root.gpu_ns)} " in text


def answer_ops(report, step: int) -> str:
    return f"{report.steps[step].gpu_ops:,}"


async def test_every_page_follows_the_chosen_step(prefills: Path) -> None:
    whole = analyze(load(prefills))
    median = f"median of {DECODES} decode steps"
    app = app_of(prefills)
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(pilot)
        for page in "123456789":
            await press(pilot, page)
            assert median in strip_of(app)
        await press(pilot, "number_sign", "down", "enter")
        assert not isinstance(app.screen, StepsScreen)
        for page in "123456":
            await press(pilot, page)
            shows(app, whole, 0, int(page))
        await press(pilot, "3", *["greater_than_sign"] * 3)
        shows(app, whole, 3, 3)
        await press(pilot, *["less_than_sign"] * 9)
        shows(app, whole, 0, 3)
        await press(pilot, *["greater_than_sign"] * 20)
        shows(app, whole, len(whole.steps) - 1, 3)
        # Only launches of the step are listed.
        kernel = whole.report.kernels[0]
        await press(pilot, "enter")
        assert "Launches of " in text_of(app)
        step = analysis_of_step(whole, len(whole.steps) - 1).report
        launches = next(one.count for one in step.kernels if one.name == kernel.name)
        assert len(app.focused._order) == launches < kernel.count
        await press(pilot, "escape", "escape", "escape")
        assert median in strip_of(app)
        await press(pilot, "greater_than_sign")
        after = sorted(whole.steps.span.start_ns.tolist())
        place = after.index(int(whole.steps.span.start_ns[whole.report.answer.step])) + 1
        shows(app, whole, place, 3)
        await press(pilot, "number_sign", "home", "enter")
        assert median in strip_of(app)


async def test_the_table_sorts_filters_and_keeps_the_median_on_top(prefills: Path) -> None:
    app = app_of(prefills)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "number_sign")
        steps = app._painter.shown().window.report.steps
        assert listed(app) == [MEDIAN, *range(len(steps))]
        assert f"of {DECODES} decode steps" in text_of(app)
        panel = app.screen.query_one(StepTablePanel)
        place = [column.key for column in panel._shown.columns].index("time_ns")
        panel.sort_by(place)
        by_time = sorted(steps, key=lambda step: -step.time_ns)
        assert listed(app) == [MEDIAN, *(step.index for step in by_time)]
        await press(pilot, "r", "f", *"prefill", "enter")
        assert listed(app) == [MEDIAN, *sorted(PREFILLS, key=lambda i: steps[i].time_ns)]
        await press(pilot, "down", "enter")
        await press(pilot, "number_sign")
        assert panel_step(app) == app._painter.shown().window.step in PREFILLS
        await press(pilot, "escape")
        assert not isinstance(app.screen, StepsScreen)


def panel_step(app: DecodescopeApp) -> int:
    """The step at the cursor of the table."""
    return app.screen.query_one(StepTablePanel)._cursor_key


@pytest.mark.parametrize("name", ["vllm_prefills", "interrupted", "no_steps"])
def test_the_row_of_the_median_has_the_figures_of_the_answer(name: str) -> None:
    analysis = analyze(load_bytes(name))
    report, limits_ns = analysis.report, {index: 1000 * index for index in range(20)}
    table = steps_table(report, limits_ns=limits_ns, with_median=True)
    over = next(column for column in table.columns if column.key == "over_ns")
    if report.answer.step is None:
        assert not table.rows
        return
    first, *rest = table.rows
    assert tuple(rest) == report.steps
    assert (first.index, first.time_ns) == (MEDIAN, report.answer.step_ns)
    for row in rest:
        assert over.cell(row) == duration(row.time_ns - limits_ns[row.index])
    assert over.figure(first) == report.answer.step_ns - limits_ns[report.answer.step]
    assert "over_ns" not in {column.key for column in steps_table(report).shown()}
    held = {row.index: row.interrupted_ns for row in report.steps if row.interrupted_ns}
    assert sum(held.values()) <= report.answer.interruptions_ns
    assert bool(held) == (name == "interrupted")


def load_bytes(name: str):
    from tests.helpers.kineto_events import read

    return read(situation(name, 0).traces[0])


async def test_a_chosen_step_holds_its_window(tmp_path: Path) -> None:
    session = Session(tmp_path)
    async with session.app.run_test(size=(140, 45)) as pilot:
        await session.run(pilot, ready(write_trace(tmp_path / "first.json")))
        first = session.app._painter.shown().window
        await press(pilot, "3", "greater_than_sign")
        assert session.app._painter.shown().window.whole is first
        session.link.say(ready(write_trace(tmp_path / "second.json")))
        await settle(pilot)
        view = session.app._painter.shown()
        assert (view.window.whole, view.held) == (first, True)
        await press(pilot, "2")
        assert "held for what is chosen: esc" in text_of(session.app)
        await press(pilot, "escape")
        view = session.app._painter.shown()
        assert view.window is not first
        assert (view.window.step, view.held) == (None, False)


async def test_a_pick_of_a_row_is_dropped_with_its_step_and_a_name_is_kept(prefills: Path) -> None:
    app = app_of(prefills)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await press(pilot, "3", "down")
        assert isinstance(app._focus.selection.pick, KernelPick)
        await press(pilot, "greater_than_sign")
        assert isinstance(app._focus.selection.pick, KernelPick)
        await press(pilot, "enter")
        assert isinstance(app._focus.selection.pick, OpPick)
        await press(pilot, "greater_than_sign")
        assert not isinstance(app._focus.selection.pick, OpPick)


async def test_the_last_of_many_keys_decides(prefills: Path) -> None:
    app = app_of(prefills)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for key in (*["greater_than_sign"] * 5, "less_than_sign"):
            await pilot.press(key)
        await settle(pilot)
        start = app._painter.shown().window.report.answer.step
        window = app._painter.shown().window
        first = window.whole.report.answer.step
        assert window.step == min(first + 5, len(window.report.steps) - 1) - 1 == start


async def test_a_replay_runs_no_step(tmp_path: Path) -> None:
    from decodescope.analyzer.recordings.bundled import bundled_recordings

    app = DecodescopeApp(ReplaySource(bundled_recordings()[0]), None, StillClock(), tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await asyncio.sleep(0.1)
        await settle(pilot)
        assert app.view().playback.state == "paused"
        await press(pilot, "x")
        assert [n.message for n in app._notifications] == ["Only a live worker runs a step."]
        await press(pilot, "3")
        assert "median of 3 decode steps" in strip_of(app)


async def test_how_it_looks(snapshot: SnapshotAssertion, prefills: Path) -> None:
    await Looks(snapshot, DARK_ONLY).walk(
        lambda traits: app_of(prefills, traits),
        {"1 step": after("greater_than_sign"), "steps": after("number_sign")},
    )
