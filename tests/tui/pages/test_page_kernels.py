"""The kernels page as it is used: figures, sorting, filtering, launches, and the way back."""

import gc
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.reports.kernel_launches import groupings, kernel_groups, kernel_launches
from decodescope.analyzer.text.formatting import duration
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.kernel_details import kernel_lines
from decodescope.tui.model.picks import KernelGroupPick, KernelPick, OpPick
from decodescope.tui.model.sources import TraceSource
from decodescope.tui.panels.kernels import KernelTablePanel, LaunchRows
from decodescope.tui.panels.messages import Narrow
from decodescope.tui.panels.table_rows import smart_pattern
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.app import recorded
from tests.helpers.kineto_events import Event, call, document, op, span, trace_of
from tests.helpers.scripted import StillClock, settle, text_of

SIZES = [(60, 16), (80, 24), (120, 40), (200, 50)]
PLAIN = TerminalTraits(unicode=False, color=False)
MUL = (
    "void at::native::vectorized_elementwise_kernel<{}, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)
MANGLED = "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4EEEEvT1_"
NAMES = ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", MUL.format(4), MUL.format(8), MANGLED)
LENGTHS = (11_000, 2_000, 1_500, 3_000)


def steps() -> list[Event]:
    """Two steps of two layers; each layer runs the four kernels, the first one twice."""
    events: list[Event] = []
    at, correlation = 0, 0
    for step in range(2):
        step_at = at
        for layer in range(2):
            layer_at = at
            for kind in (0, 1, 0, 2, 3):
                correlation += 1
                events.append(call(at, at + 4_000, correlation))
                events.append(
                    op(
                        at + 6_000,
                        at + 6_000 + LENGTHS[kind],
                        correlation,
                        name=NAMES[kind],
                        grid=[2, 64, 1 + layer * (kind == 1)],
                        block=[128, 1, 1],
                        **{"registers per thread": 40 + kind},
                    )
                )
                at += 20_000
            events.append(span(layer_at, at, f"layer.{layer}"))
        events.append(span(step_at, at, f"decode_step_{step}"))
        at += 5_000
    return events


@cache
def many() -> bytes:
    """27,809 launches of one kernel without steps, 1,620,607 µs in all, and one of another."""
    rest = 1_620_607_000 - 27_808 * 58_000
    lengths = [58_000] * 27_808 + [rest]
    events, at = [op(0, 10, name="once")], 100
    for length in lengths:
        events.append(op(at, at + length, name="void often<float>(float*)"))
        at += length + 50
    return document(events)


def app_of(
    folder: Path, events: list[Event] | bytes, traits: TerminalTraits | None = None
) -> DecodescopeApp:
    path = folder / "trace.json"
    path.write_bytes(events if isinstance(events, bytes) else document(events))
    return DecodescopeApp(TraceSource((path,)), traits, StillClock(), folder)


async def opened(pilot: Any, *keys: str) -> None:
    await settle(pilot)
    await pilot.press("3")
    await settle(pilot)
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


def table_of(app: DecodescopeApp) -> list[str]:
    """The lines of the table, its column titles first."""
    panel = app.screen.query_one("#kernels")
    place = panel.region
    lines = text_of(app).splitlines()[place.y + 1 : place.bottom - 1]
    return [line[place.x : place.right].strip("│| ") for line in lines]


@pytest.mark.parametrize("size", SIZES)
async def test_numbers_of_a_large_trace_never_run_together(
    size: tuple[int, int], tmp_path: Path
) -> None:
    app = app_of(tmp_path, many())
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        heads, row = table_of(app)[:2]
        assert "total µs" in heads
        numbers = [word for word in row.split() if word[0].isdigit()]
        assert "1,620,607" in numbers
        assert ("27,809" in numbers) == ("calls" in heads.split())
        for word in numbers:
            assert re.fullmatch(r"\d{1,3}(,\d{3})*(\.\d+)?|>99.9|\d+x\d+x\d+", word), row


@pytest.mark.parametrize("size", SIZES)
async def test_kernels_of_one_short_name_can_be_told_apart(
    size: tuple[int, int], tmp_path: Path
) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        rows = [line for line in table_of(app)[1:] if line]
        names = [re.split(" {2,}", row.split(maxsplit=1)[1])[0] for row in rows]
        assert len(names) == len(set(names)) == len(NAMES)


@pytest.mark.parametrize("width", [24, 30, 36, 38, 40, 58])
def test_a_figure_is_whole_on_the_narrowest_screens(width: int) -> None:
    view, brush = recorded.view_of(recorded.window("eager")), recorded.BRUSHES[0]
    lines = recorded.drawn(KernelTablePanel, view, brush, width, 20)
    whole = recorded.drawn(KernelTablePanel, view, brush, 200, 20)
    assert max(map(len, lines)) <= width
    for line, words in zip(lines, map(str.split, whole), strict=True):
        assert line.split()[-1] in words


async def test_figures_are_per_step_with_shapes(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(200, 50)) as pilot:
        await opened(pilot)
        text = text_of(app)
        assert "Kernels per step" in text
        assert "mean of 2 steps" in text
        matmul = table_of(app)[1].split()
        assert matmul[1:8] == ["nvjet", "tst", "64x8", "4", "0", "44.0", "11.0"]
        assert matmul[-2:] == ["2x64x1", "40"]
        assert any("2x64x1 +1" in line for line in table_of(app))


async def test_enter_goes_down_to_the_timeline_and_escape_comes_back(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(140, 40)) as pilot:
        await opened(pilot, "f", *"mul", "enter", "s", "s", "s", "r", "home")
        before = [line.split()[-4:] for line in table_of(app)]
        assert len([line for line in table_of(app) if "elementwise mul" in line]) == 2
        chosen = app._focus.selection.pick
        assert isinstance(chosen, KernelPick)
        await opened(pilot, "enter")
        assert "Launches of" in text_of(app)
        assert len([line for line in table_of(app)[1:] if "layer." in line]) == 4
        first = app._focus.selection.pick
        assert isinstance(first, OpPick)
        await opened(pilot, "down")
        second = app._focus.selection.pick
        assert isinstance(second, OpPick)
        assert second.row > first.row
        await opened(pilot, "escape")
        assert app._focus.selection.pick == chosen
        assert [line.split()[-4:] for line in table_of(app)] == before
        await opened(pilot, "enter", "down", "enter")
        assert app._focus.selection.pick == second
        assert app._focus.page == "timeline"


async def test_escape_on_the_kernels_clears_the_selection(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, "down")
        assert app._focus.selection.pick is not None
        await opened(pilot, "escape")
        assert app._focus.selection.pick is None


async def test_a_range_filters_kernels_and_launches(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(140, 40)) as pilot:
        await opened(pilot)
        panel = app.screen.query_one("#kernels")
        panel.post_message(Narrow("decode_step/layer.1"))
        await settle(pilot)
        assert table_of(app)[1].split()[4:7] == ["2", "0", "22.0"]
        assert "in decode_step/layer.1" in text_of(app)
        await opened(pilot, "end", "home")
        assert re.search(r"within +decode_step/layer.1", text_of(app))
        assert re.search(r"launches +4, 2 per step", text_of(app))
        await opened(pilot, "enter")
        assert len([line for line in table_of(app)[1:] if line]) == 4
        panel.post_message(Narrow("no/such/range"))
        await settle(pilot)
        assert "no kernels in this range" in text_of(app)
        await opened(pilot, "escape", "escape", "escape")
        assert table_of(app)[1].split()[4:7] == ["4", "0", "44.0"]


async def test_an_op_that_another_page_selected_marks_its_kernel(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(140, 40)) as pilot:
        await opened(pilot)
        await opened(pilot, "end", "home")
        app._focus.choose(OpPick(4), app._painter.shown())
        app._painter.paint()
        await settle(pilot)
        panel = app.screen.query_one("#kernels")
        assert panel._cursor_key == MANGLED


def test_details_of_a_kernel_of_another_file_say_that_it_did_not_run() -> None:
    shown = recorded.window("eager")
    lines = [line.text for line in kernel_lines(shown, "absent_kernel")]
    assert lines[0] == f"did not run ({shown.steps_words})"
    lines = [line.text for line in kernel_lines(shown, "absent_kernel", "decode_step")]
    assert lines[0] == f"did not run in range decode_step ({shown.steps_words})"


async def test_details_have_the_readable_and_the_exact_name(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(200, 50)) as pilot:
        await opened(pilot, "end", "home", "down")
        await opened(pilot, "f", *"reduce", "enter")
        app._focus.choose(KernelPick(MANGLED), app._painter.shown())
        app._painter.paint()
        await settle(pilot)
        details = app.screen.query_one("#details")
        copied = details.as_text(details._data)
        labels = [line.split()[0] for line in copied]
        assert labels[0] == "total"
        assert labels.index("shape") < labels.index("name") < labels.index("symbol")
        assert any("at::native::reduce_kernel<512, 1" in line for line in copied)
        assert copied[-1].split(maxsplit=1) == ["symbol", MANGLED]
        shown = " ".join(text_of(app).split())
        assert "median 3.00 µs" in shown
        assert "decode_step/layer.*: 4 launches" in shown


async def test_a_paint_between_a_key_and_its_answer_moves_nothing(tmp_path: Path) -> None:
    app = recorded.app_of(recorded.write_window(tmp_path, "compiled"))
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await opened(pilot, "z", "home", "enter")
        panel = app.screen.query_one("#kernels")
        panel.action_move(1)
        # The app has not heard of it: the selection is still the group above.
        app._painter.paint()
        await settle(pilot)
        assert panel._cursor == 1
        assert isinstance(app._focus.selection.pick, KernelPick)


async def test_kernels_are_grouped_in_turn_and_enter_unfolds(tmp_path: Path) -> None:
    app = recorded.app_of(recorded.write_window(tmp_path, "compiled"))
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        window = app._painter.shown().window
        panel = app.screen.query_one("#kernels")
        for size in ((60, 16), (80, 24)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            assert "s sort" in text_of(app)
            assert "z group" in text_of(app)
        for by in groupings(window.analysis):
            await opened(pilot, "z")
            groups = kernel_groups(window.analysis, by)
            assert f"Kernels by {by} per step" in text_of(app)
            assert [panel._shown.key(row).name for row in panel._order] == [
                group.report.name for group in groups
            ]
            total_ns = sum(row.total_ns for row in panel._shown.table.rows)
            assert total_ns == sum(kernel.total_ns for kernel in window.report.kernels)
        await opened(pilot, "z", "z", "end", "home", "enter")
        group = kernel_groups(window.analysis, "role")[0]
        assert app._focus.selection.pick == KernelGroupPick("role", group.report.name)
        rows = [panel._shown.table.rows[row] for row in panel._order]
        assert rows[1 : 1 + len(group.kernels)] == list(group.kernels)
        assert f" {duration(group.report.total_ns)}, " in text_of(app)
        while panel._branch().is_open is not None or panel._branch().above is None:
            await opened(pilot, "down")
        kernel = group.kernels[0]
        assert app._focus.selection.pick == KernelPick(kernel.name)
        await opened(pilot, "enter")
        steps = window.report.main_steps.steps
        assert isinstance(panel._shown, LaunchRows)
        assert len(panel._shown) == kernel.count
        assert steps > 1
        await opened(pilot, "z", "escape")
        assert panel._cursor_key == (group.number, kernel.name)
        await opened(pilot, "left", "left")
        assert app._focus.selection.pick == KernelGroupPick("role", group.report.name)
        assert len(panel._order) == len(kernel_groups(window.analysis, "role"))


async def test_without_groups_the_key_says_so(tmp_path: Path) -> None:
    app = app_of(tmp_path, many())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot, "z")
        assert "This trace has no roles" in str([toast.message for toast in app._notifications])
        assert "Kernels per trace" in text_of(app)


async def test_families_have_letters_without_colours(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps(), PLAIN)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(pilot)
        assert [line.split()[0] for line in table_of(app)[1:] if line] == ["M", "R", "E", "E"]


async def test_every_size_is_drawn(tmp_path: Path) -> None:
    app = app_of(tmp_path, steps())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        for keys in ((), ("enter",)):
            await opened(pilot, *keys)
            for size in ((1, 1), (9, 3), (20, 8), (45, 12), (300, 100)):
                await pilot.resize_terminal(*size)
                await settle(pilot)


async def test_a_copy_of_very_many_rows_says_how_many_are_left_out(tmp_path: Path) -> None:
    app = app_of(tmp_path, many())
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot, "enter")
        panel = app.screen.query_one("#kernels")
        assert isinstance(panel, KernelTablePanel)
        lines = panel.as_text(panel._shown)
        assert len(lines) == 1_003
        assert lines[-1] == "and 26,809 more rows"


ROWS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 5), st.booleans(), st.sampled_from([7, 8, 20])),
    min_size=1,
    max_size=40,
)


def launch_rows(rows: list[tuple[int, int, bool, int]]) -> LaunchRows:
    events, at = [span(0, 10_000, "decode_step"), span(0, 300, "a"), span(300, 9_000, "b")], 500
    for number, (length, gap, linked, stream) in enumerate(rows, 1):
        at += gap
        if linked:
            events.append(call(10 * number, 10 * number + 5, number))
        events.append(op(at, at + length, number, name="k", stream=stream, grid=[length, 2, 1]))
        at += length
    analysis = analyze(trace_of(*events))
    return LaunchRows(analysis, kernel_launches(analysis, "k"))


@given(ROWS, st.booleans())
def test_every_column_sorts_with_unknown_figures_last(
    rows: list[tuple[int, int, bool, int]], down: bool
) -> None:
    found = launch_rows(rows)
    for column in range(len(found.columns)):
        values = found._figures[found.columns[column].key].tolist()
        sorted_rows = found.order(column, down)
        assert not any(isinstance(one, int) for one in gc.get_referents(sorted_rows))
        order = list(sorted_rows)
        assert sorted(order) == list(range(len(rows)))
        known = [values[row] for row in order if values[row] >= 0]  # type: ignore[operator]
        assert known == sorted(known, reverse=down)  # type: ignore[type-var]
        assert [values[row] for row in order[len(known) :]] == [-1] * (len(rows) - len(known))
        assert order == sorted(
            order,
            key=lambda row: (
                order.index(row) if values[row] not in known else known.index(values[row]),
                row,
            ),
        )


@given(ROWS, st.sampled_from(["stream 7", "step 0", "a$", "^3x", "x2x", "none of these", "B"]))
def test_a_filter_finds_what_the_text_of_a_row_says(
    rows: list[tuple[int, int, bool, int]], text: str
) -> None:
    found, pattern = launch_rows(rows), smart_pattern(text)
    lines = [found.text(row).split("\n") for row in range(len(found))]
    assert found.matching(pattern) == {
        row for row, parts in enumerate(lines) if any(pattern.search(part) for part in parts)
    }
    assert [found.place(found.key(row)) for row in range(len(found))] == list(range(len(found)))
    assert found.place(10**6) is None
