"""Page 9: the log of the app and of the worker, and the findings of trace health."""

import json
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import Log, Progress
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.process import MOST_BYTES, LogTail
from decodescope.tui.model.notices import LOG_LINES
from decodescope.tui.model.sources import TraceSource
from tests.helpers.scripted import DIED, StillClock, ready, settle, text_of, write_trace


def truncated_trace(path: Path) -> Path:
    """A trace whose last events are missing, so its tail is cut."""
    write_trace(path)
    text = path.read_text()
    path.write_text(text[: text.rindex('{"ph"')])
    return path


def lines_of(app: DecodescopeApp) -> list[str]:
    return [line.strip(" │") for line in text_of(app).splitlines()]


async def test_lines_have_time_level_and_source_and_the_end_is_followed(session):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, Progress("loading weights"), Log("warning", "slow disk"))
        await pilot.press("9")
        await settle(pilot)
        first = text_of(session.app)
        session.link.say(*(Log("info", f"line {number} of many") for number in range(100)))
        await settle(pilot)
        followed = text_of(session.app)
        await pilot.press("pageup", "pageup")
        await settle(pilot)
        scrolled = text_of(session.app)
        session.link.say(Log("error", "the latest"))
        await settle(pilot)
        still = text_of(session.app)
        await pilot.press("end")
        await settle(pilot)
        ended = text_of(session.app)
    assert "03:04:05 info    worker loading weights" in first
    assert "03:04:05 warning worker slow disk" in first
    assert "line 99 of many" in followed
    assert "line 99 of many" not in scrolled
    assert "the latest" not in still
    assert "end follows" in still
    assert "the latest" in ended


async def test_the_level_leaves_out_what_is_below(session):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, Log("info", "one"), Log("warning", "two"), Log("error", "three"))
        await pilot.press("9")
        shown = []
        for _ in range(4):
            await settle(pilot)
            text = text_of(session.app)
            shown.append([word in text for word in (" one", " two", " three")])
            await pilot.press("l")
    assert shown == [[True] * 3, [False, True, True], [False, False, True], [True] * 3]


async def test_search_and_filter_work_on_every_field(session):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(
            pilot,
            *(Log("info", f"line {number}") for number in range(30)),
            Log("warning", "odd one"),
        )
        await pilot.press("9", "f", *"warning", "enter")
        await settle(pilot)
        filtered = text_of(session.app)
    assert "odd one" in filtered
    assert "line 3" not in filtered


async def test_a_long_line_is_shown_whole_below_and_copied_whole(session):
    message = "cause " * 60 + "the very end"
    async with session.app.run_test(size=(80, 30)) as pilot:
        await session.run(pilot, Log("error", message))
        await pilot.press("9")
        await settle(pilot)
        shown = text_of(session.app)
        await pilot.press("c")
        await settle(pilot)
        copied = session.app.clipboard
    assert "the very end" in shown
    assert copied == f"03:04:05 worker {message}"


async def test_unseen_warnings_are_counted_in_the_title_until_the_page_is_opened(session):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, Log("warning", "a"), Log("info", "b"), Log("error", "c"))
        counted = text_of(session.app).splitlines()[0]
        await pilot.press("9")
        await settle(pilot)
        opened = text_of(session.app).splitlines()[0]
        session.link.say(Log("warning", "seen as it comes"))
        await settle(pilot)
        await pilot.press("1")
        await settle(pilot)
        left = text_of(session.app).splitlines()[0]
        session.link.say(Log("warning", "new"))
        await settle(pilot)
        again = text_of(session.app).splitlines()[0]
    assert "⚠2" in counted
    assert "⚠" not in opened
    assert "⚠" not in left
    assert "⚠1" in again


async def test_findings_of_every_file_have_their_code_and_a_degraded_file_a_banner(tmp_path):
    bad = truncated_trace(tmp_path / "cut.json")
    good = write_trace(tmp_path / "good.json")
    app = DecodescopeApp(TraceSource((good, bad)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        before = text_of(app)
        await pilot.press("v", "2")
        await settle(pilot)
        banner = text_of(app)
        await pilot.press("9")
        await settle(pilot)
        log = text_of(app)
        findings = app.view().window.report.health.findings
    assert "degraded" not in before
    assert "cut.json is degraded" in banner
    assert findings
    for finding in findings:
        assert finding.code in log
    assert "cut.json: " in log


async def test_an_error_of_the_app_and_the_death_of_the_worker_are_logged(session, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text("this is no trace")
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(broken), DIED)
        await pilot.press("9")
        await settle(pilot)
        shown = text_of(session.app)
    assert "app    " in shown
    assert "SIGKILL" in shown
    assert "broken.json" in shown


async def test_what_the_worker_prints_is_logged_without_what_could_steer_the_terminal(session):
    printed = [["\x1b]0;title\x07 from a library"]]
    session.link.printed = lambda: printed.pop() if printed else []
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        session.app._feeds._read_log()
        session.app._feeds._read_log()
        await pilot.press("9")
        await settle(pilot)
        shown = text_of(session.app)
    assert r"printed \x1b]0;title\x07 from a library" in shown


async def test_the_log_is_bounded_and_says_so_nowhere_wrong(session):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot)
        for start in range(0, 3 * LOG_LINES, 500):
            session.link.say(*(Log("info", f"line {start + n}") for n in range(500)))
            await settle(pilot)
        await pilot.press("9")
        await settle(pilot)
        lines = session.app.view().log
        shown = text_of(session.app)
    assert len(lines) == LOG_LINES
    assert f"line {3 * LOG_LINES - 1}" in shown
    assert f"{LOG_LINES:,}/{LOG_LINES:,}" in shown


@pytest.mark.parametrize("size", [(1, 1), (8, 3), (40, 8), (60, 16), (200, 50), (300, 100)])
async def test_the_page_fits_every_size(session, size):
    async with session.app.run_test(size=size) as pilot:
        await session.run(pilot, *(Log("info", "word " * number) for number in range(60)))
        await pilot.press("9", "up", "l", "l", "l", "slash", "w", "enter", "n")
        await settle(pilot)
        assert len(text_of(session.app).splitlines()) <= size[1]


def test_the_tail_gives_whole_lines_once_and_the_last_of_overwritten_ones(tmp_path):
    path = tmp_path / "worker.log"
    path.write_text("of an earlier run\n")
    tail = LogTail(path)
    assert tail.lines() == []
    with path.open("a") as log:
        log.write("first\nsec")
        log.flush()
        assert tail.lines() == ["first"]
        log.write("ond\n 10%\r 50%\r100%\r\nrest")
        log.flush()
        assert tail.lines() == ["second", "100%"]
        assert tail.lines() == []
        log.write("\n")
    assert tail.lines() == ["rest"]
    path.unlink()
    assert tail.lines() == []


def test_a_flood_of_prints_keeps_only_its_end_and_whole_lines(tmp_path):
    path = tmp_path / "worker.log"
    tail = LogTail(path)
    numbers = range(MOST_BYTES // 4)
    path.write_text("".join(f"{number}\n" for number in numbers))
    lines = tail.lines()
    assert lines == [str(number) for number in numbers[-len(lines) :]]
    assert sum(len(line) + 1 for line in lines) <= MOST_BYTES
    with path.open("a") as log:
        log.write("x" * (3 * MOST_BYTES))
    assert tail.lines() == []
    with path.open("a") as log:
        log.write("\nafter\n")
    assert tail.lines()[-1] == "after"
    assert all(len(line) <= MOST_BYTES for line in tail.lines())


def test_a_trace_of_this_test_is_really_cut(tmp_path):
    with pytest.raises(json.JSONDecodeError):
        json.loads(truncated_trace(tmp_path / "cut.json").read_text())
