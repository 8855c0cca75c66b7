"""Page 1: the answer with its bar, parts and reasons, at any size."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from decodescope.analyzer.answer.parts import lost_by_group
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.text.formatting import UNKNOWN, duration
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from decodescope.analyzer.vocabulary.words import part_words
from decodescope.tui.background import analyse_files
from decodescope.tui.model.view import View, Window
from decodescope.tui.panels.answer import AnswerPanel
from decodescope.tui.panels.sheet import Brush, Empty, Sheet
from tests.helpers.answers import answer_of, part_of
from tests.helpers.app.recorded import BRUSHES, SIZES, app_of, drawn, press, view_of, window
from tests.helpers.hostile import HOSTILE, unsafe
from tests.helpers.kineto_events import DATA, call, document, op, span
from tests.helpers.scripted import settle, text_of

VARIANTS = ["eager", "compiled", "fused+graph"]
widths, heights = st.integers(0, 300), st.integers(0, 100)


def answered(answer: Answer, *findings: Finding) -> Window:
    """The window of a run with another answer, and findings beside it."""
    shown = window("eager")
    health = msgspec.structs.replace(shown.report.health, findings=findings)
    report = msgspec.structs.replace(shown.report, answer=answer, health=health, structure=None)
    return dataclasses.replace(shown, analysis=dataclasses.replace(shown.analysis, report=report))


def panel_of(shown: Window | None, brush: Brush = BRUSHES[0], unfolded: bool = False):
    panel = AnswerPanel(brush, view_of(shown))
    panel._unfolded = unfolded
    return panel


def sheet_of(shown: Window, width: int, height: int, brush: Brush = BRUSHES[0]) -> Sheet:
    panel = panel_of(shown, brush)
    return panel.draw(panel._data, width, height)


def lines_of(sheet: Sheet) -> list[str]:
    return ["".join(segment.text for segment in row.segments) for row in sheet.rows]


def squeezed(text: str) -> str:
    return "".join(text.split())


# Parts


@pytest.mark.parametrize("variant", VARIANTS)
def test_parts_are_in_order_of_what_is_lost_and_add_up_to_the_step(variant: str) -> None:
    shown = window(variant)
    answer = shown.report.answer
    lines = drawn(AnswerPanel, view_of(shown), BRUSHES[2], 140, 40)
    assert f"{duration(answer.step_ns)} a step" in lines[0]
    head = next(place for place, line in enumerate(lines) if "over the limit" in line)
    assert lines[head].split() == [
        *("over", "the", "limit", "time", "limit", "over", "of", "step", "%", "of", "step"),
        *("of", "limit", "%", "GB/s", "ops", "known", "by"),
    ]
    lines = lines[head + 1 :][: len(answer.parts)]
    assert sum(part.ns for part in answer.parts) == answer.step_ns
    for line, part in zip(lines, answer.parts, strict=True):
        assert line[2:].startswith(f"{part_words(part.part)} ")
        assert f" {duration(part.ns)} " in line
    lost = [part.ns - (part.limit_ns or 0) for part in answer.parts if part.group != "profiler"]
    assert lost == sorted(lost, reverse=True)
    bars = [line.count("=") for line in lines if not line.startswith("p ")]
    assert bars == sorted(bars, reverse=True)


def test_a_part_has_its_time_limit_and_the_time_over_it() -> None:
    parts = (
        part_of("down", 60_000, 1, 48_000),
        part_of("host_wait", 30_000),
        part_of("norm", 8_000, 1),
        part_of("qkv", 2_000, 1, 2_500),
    )
    answer = msgspec.structs.replace(
        answer_of({}), parts=parts, step_ns=100_000, whole_ns=100_000, limit_ns=50_500
    )
    lines = drawn(AnswerPanel, view_of(answered(answer)), BRUSHES[2], 120, 20)
    head = next(place for place, line in enumerate(lines) if "over the limit" in line)
    down, late, norm, qkv = (" ".join(line.split()) for line in lines[head + 1 :][:4])
    assert down.startswith("D down 60.0 µs 48.0 µs 12.0 µs 12.0 ==")
    assert late.startswith(f"h waiting for the host 30.0 µs {UNKNOWN} 30.0 µs 30.0 ==")
    assert norm.startswith(f"N norm 8.00 µs {UNKNOWN} {UNKNOWN} 8.0 =")
    assert qkv.startswith("Q qkv 2.00 µs 2.50 µs -500 ns -0.5")


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (80, 40), (200, 50)])
async def test_every_screen_has_the_step_and_the_first_parts(eager: Path, size) -> None:
    app = app_of(eager)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        text = text_of(app)
        answer = app._painter.shown().window.report.answer
        assert f"{duration(answer.step_ns)} a step" in text
        assert "Step 1 " in text
        _, _, panel = text.partition("Where the step goes")
        for part in answer.parts[: 1 if size[1] < 24 else 5]:
            assert part_words(part.part) in panel
        await press(pilot, "y")
        assert all(part_words(part.part) in app.clipboard for part in answer.parts)
        assert answer_lines(app._painter.shown().window.report).headline in app.clipboard
        assert all(words in app.clipboard for words in (*answer.because, *answer.next))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "limit not known"),
        ({"limit_ns": 42_000}, "limit 42.0 µs (shapes in the trace) · x2.14 over"),
        ({"limit_ns": 42_000, "limit_is_lower_bound": True}, "limit ≥ 42.0 µs"),
        ({"limit_ns": 42_000, "model": "m", "model_source": "guessed"}, "limit 42.0 µs (m?)"),
    ],
)
def test_the_headline_is_the_step_and_its_limit(changes: dict[str, Any], words: str) -> None:
    shown = answered(answer_of({"down": 60_000, "host_wait": 30_000}, **changes))
    first, *rest = lines_of(sheet_of(shown, 120, 20))
    assert "decode · 1 step · 90.0 µs a step · " in first
    assert words in first
    columns = next(line for line in rest if " time " in line).split()
    assert ("over" in columns) == bool(changes)


def test_a_model_that_is_not_used_comes_first_of_the_reasons() -> None:
    finding = Finding("model_not_used", "the model qwen3-0.6b is not used: 16 layers")
    answer = answer_of({"down": 60_000}, because=("it waits",))
    sheet = sheet_of(answered(answer, finding), 100, 20)
    assert finding.message in "\n".join(lines_of(sheet))
    last = lines_of(sheet)[-1]
    assert last.endswith("+1 w")
    assert "it waits" not in "\n".join(lines_of(sheet))
    panel = panel_of(answered(answer, finding), unfolded=True)
    assert "kernel-bound; it waits" in "\n".join(lines_of(panel.draw(panel._data, 100, 20)))


# The bar


nanoseconds = st.integers(0, 10**9)


@given(
    nanoseconds,
    nanoseconds,
    nanoseconds,
    nanoseconds,
    nanoseconds,
    st.integers(1, 300),
)
@example(1, 10**9, 0, 0, 0, 100)
@example(10**6, 10**9, 0, 0, 0, 300)
@settings(max_examples=60, deadline=None)
def test_the_bar_is_the_limit_and_the_time_over_it_in_proportion(
    limit_ns: int, host: int, kernels: int, shared: int, copied: int, width: int
) -> None:
    parts = (
        part_of("host_wait", host),
        part_of("down", kernels + limit_ns, 1, limit_ns),
        part_of("communication", shared, 1, 0),
        part_of("memcpy", copied, 1, 0),
    )
    whole_ns = sum(part.ns for part in parts)
    answer = msgspec.structs.replace(
        answer_of({}), parts=parts, step_ns=whole_ns, whole_ns=whole_ns, limit_ns=limit_ns
    )
    panel = panel_of(answered(answer))
    lost = {group: ns for group, ns in lost_by_group(parts).items() if ns * 100 >= whole_ns > 0}
    expected = {"limit": limit_ns} if limit_ns else {}
    for group in sorted(lost, key=lost.__getitem__, reverse=True):
        over = " over" if group == "kernels" and limit_ns else ""
        expected[f"{group}{over}"] = lost[group]
    row = panel._bar(panel._data, width)
    if len(expected) < 2:
        assert row is None
        return
    names_cells = sum(len(name) + 3 for name in expected)
    assert (row is not None) == (width - names_cells >= 24)
    if row is None:
        return
    assert row.cells == width
    bars, names = row.segments[::2], row.segments[1::2]
    assert [segment.text.strip() for segment in names] == list(expected)
    assert len({segment.style.color for segment in bars}) == len(expected)
    total_ns, cells = sum(expected.values()), width - names_cells
    rounded = [max(round(cells * ns / total_ns), 1) for ns in expected.values()]
    off = [len(bar.text) - wide for bar, wide in zip(bars, rounded, strict=True)]
    # Only the longest one takes up what rounding leaves.
    assert {rounded[place] for place, cells in enumerate(off) if cells} <= {max(rounded)}
    assert sum(map(bool, off)) <= 1
    assert max(map(abs, off)) < len(expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", SIZES)
def test_a_panel_of_nine_rows_has_a_whole_bar(variant: str, size: tuple[int, int]) -> None:
    for height in (8, 9, 30):
        lines = lines_of(sheet_of(window(variant), size[0] - 4, height, BRUSHES[2]))
        bars = [line for line in lines if " limit  =" in line]
        assert len(bars) == (height >= 9)
        assert all(cell_len(line) == size[0] - 4 for line in bars)


# Every size


@given(st.sampled_from(VARIANTS), st.sampled_from(BRUSHES), widths, heights, st.booleans())
@example("eager", BRUSHES[0], 0, 0, False)
@example("eager", BRUSHES[0], 1, 1, False)
@example("eager", BRUSHES[2], 300, 100, True)
@settings(max_examples=150, deadline=None)
def test_every_size_is_drawn_with_the_headline(variant, brush, width, height, unfolded) -> None:
    shown = window(variant)
    panel = panel_of(shown, brush, unfolded)
    sheet = panel.draw(panel._data, width, height)
    lines = lines_of(sheet)
    assert 1 <= len(lines) <= max(height, 1)
    headline = panel._headline(panel._data, width)
    assert all(row.cells <= max(width, 1) for row in headline)
    whole = "".join(segment.text for row in headline for segment in row.segments)
    words = squeezed(answer_lines(shown.report).headline)
    assert squeezed(whole).replace("·", "") == words.replace("·", "")
    kept = headline[: max(height - 1, 1)]
    for row, line in zip(kept, lines, strict=False):
        assert "".join(segment.text for segment in row.segments) == line
    if width >= 60:
        assert max(map(cell_len, lines)) <= width


@given(st.sampled_from(VARIANTS), st.sampled_from(BRUSHES), st.integers(5, 300), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_wanted_rows_suffice_for_everything(variant, brush, width, unfolded) -> None:
    panel = panel_of(window(variant), brush, unfolded)
    wanted = panel.wanted_rows(width)
    sheet = panel.draw(panel._data, max(width - 2 * panel.inset, 1), wanted)
    assert len(sheet.rows) == wanted
    assert "more part" not in sheet.note
    assert not any("w shows all" in line for line in lines_of(sheet))


@given(st.sampled_from(VARIANTS), st.integers(30, 150), st.integers(2, 30))
@settings(max_examples=40, deadline=None)
def test_reasons_that_go_on_say_so_in_full_and_parts_are_counted(variant, width, height) -> None:
    shown = window(variant)
    panel = panel_of(shown)
    sheet = panel.draw(panel._data, width, height)
    lines = lines_of(sheet)
    whole = lines_of(panel.draw(panel._data, width, 100))
    assert ("w shows all" in lines[-1]) == (lines[-1].rstrip() != whole[-1].rstrip())
    assert cell_len(lines[-1]) <= width
    parts = [part_words(part.part) for part in shown.report.answer.parts]
    seen = sum(line[2:].startswith(f"{name} ") for line in lines for name in parts)
    hidden = len(parts) - seen
    if hidden:
        assert sheet.note == f"{hidden} more part{'s' * (hidden > 1)}"
    else:
        assert "more part" not in sheet.note


@pytest.mark.parametrize(("width", "height"), [(60, 16), (60, 50), (120, 24)])
async def test_every_reason_can_be_read(eager: Path, width: int, height: int) -> None:
    app = app_of(eager)
    async with app.run_test(size=(width, height)) as pilot:
        await settle(pilot)
        folded = text_of(app)
        answer = app._painter.shown().window.report.answer
        await press(pilot, "w")
        seen = text_of(app)
        while "w goes on" in text_of(app):
            await press(pilot, "w")
            seen += "\n" + text_of(app)
        flat = squeezed(seen)
        for words in (*answer.because, *answer.next):
            for word in words.split():
                assert word in flat
        await press(pilot, "w")
        assert text_of(app) == folded


@given(widths, heights)
@settings(max_examples=60, deadline=None)
def test_hostile_words_are_shown_as_text(width: int, height: int) -> None:
    hostile = (HOSTILE, HOSTILE)
    answer = answer_of(
        {"down": 60_000, "host_wait": 30_000},
        because=hostile,
        next=hostile,
        limit_ns=40_000,
        model=HOSTILE,
    )
    panel = panel_of(answered(answer), BRUSHES[2], unfolded=True)
    sheet = panel.draw(panel._data, width, height)
    assert len(sheet.rows) <= max(height, 1)
    assert not any(unsafe(line) for line in lines_of(sheet))
    assert all(row.cells <= max(width, 2) for row in panel._headline(panel._data, width))


# Other traces


def test_without_a_window_or_gpu_work_the_panel_says_why(tmp_path: Path) -> None:
    view = View("live", "starting")
    empty = AnswerPanel(BRUSHES[0], view)._data
    assert empty == Empty("Where the step goes", view.waiting)
    path = tmp_path / "host.json"
    path.write_bytes(document([call(0, 5)]))
    panel = panel_of(analyse_files([path], 0.0))
    assert isinstance(panel._data, Empty)
    assert panel._data.title == "No GPU activity"
    assert panel._data.hint
    path.write_bytes(document([span(0, 60, "step_0"), span(100, 160, "step_1")]))
    timed = panel_of(analyse_files([path], 0.0))._data
    assert isinstance(timed, Empty)
    assert timed.hint.startswith("2 steps · 100 ns a step on the host · no timed GPU ops; no ")
    for width in (1, 20, 300):
        drawn_rows = panel._sheet(max(width - 2 * panel.inset, 1), 1).rows
        assert panel.wanted_rows(width) == len(drawn_rows)


def test_without_steps_it_is_about_all_time(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(document([op(0, 10, name="mystery"), op(20, 30, name="mystery")]))
    sheet = sheet_of(analyse_files([path], 0.0), 100, 12)
    lines = lines_of(sheet)
    assert sheet.title == "Where the time goes"
    assert lines[0].startswith("no steps · 30 ns in all · limit not known")
    assert any("of window %" in line for line in lines)


def test_a_cpu_trace_has_operators_in_place_of_gpu_ops() -> None:
    shown = analyse_files([DATA / "cpu_two_blocks.json.gz"], 0.0)
    answer = shown.report.answer
    lines = lines_of(sheet_of(shown, 120, 30))
    assert f"{duration(answer.step_ns)} a step" in lines[0]
    assert all(any(part_words(part.part) in line for line in lines) for part in answer.parts)


async def test_help_begins_with_the_columns_of_the_parts(eager: Path) -> None:
    app = app_of(eager)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await press(pilot, "question_mark")
        shown = " ".join(re.sub("[│▇]", " ", text_of(app)).split())
    assert "over Time minus limit." in shown
    assert "of limit % The limit ÷ the time." in shown
