"""The app with a scripted worker: what it shows and what its keys do."""

import gzip
import json
import re

from msgspec.structs import replace

from decodescope.analyzer.protocol.messages import (
    CaptureTrace,
    Pause,
    Progress,
    Resume,
    State,
    SwitchVariant,
    VariantInfo,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.analyzer.vocabulary.terms import read_terms
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import source_for
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.around import KeysPanel
from tests.helpers.scripted import Session, StillClock, hello, ready, settle, stats, text_of


async def test_figures_of_a_run_and_its_window(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        shown = text_of(session.app)
    for piece in ("running", "llama-3.2-1b · eager · random weights · H200 bf16 b1 c128"):
        assert piece in shown
    assert "47.2" in shown
    assert "host-bound" in shown
    assert "host_wait" in shown
    assert "48 GPU ops" in shown
    assert "self._entries" in shown


STRIP = 2  # The line of the figures


async def test_unknown_figures_are_left_out_and_never_zero(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(Progress("importing torch"))
        await settle(pilot)
        figures = text_of(session.app).splitlines()[STRIP]
    assert figures == ""


async def test_a_variants_figures_are_not_shown_for_another(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        session.link.say(State("building", "compiled"), stats(2, "eager", 99.0))
        await settle(pilot)
        switched = text_of(session.app)
        session.link.say(State("running", "eager"), stats(3, "eager", 51.0))
        await settle(pilot)
        back = text_of(session.app)
    assert "99.0" not in switched
    assert switched.splitlines()[STRIP] == ""
    assert "waiting for the first window of compiled" in switched
    assert "51.0" in back
    assert "host-bound" in back


async def test_v_and_a_number_switch_variants_that_can_run(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("v", "1", "v", "3", "escape", "v", "9", "escape", "v", "2", "2")
    assert session.link.sent == [SwitchVariant("compiled")]


async def test_enter_in_the_list_of_variants_pressed_twice_switches_once(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("v", "down", "enter", "enter", "enter")
        await settle(pilot)
        assert session.app.is_running
    assert session.link.sent == [SwitchVariant("compiled")]


async def test_the_tenth_variant_has_a_key_as_well(session):
    named = tuple(VariantInfo(f"number-{number}", "kernels") for number in range(1, 12))
    async with session.app.run_test(size=(120, 60)) as pilot:
        session.link.say(replace(hello(), variants=named), State("running", "number-9"))
        await settle(pilot)
        shown = text_of(session.app)
        await pilot.press("v")
        await settle(pilot)
        listed = text_of(session.app)
        await pilot.press("0")
        await settle(pilot)
    assert session.link.sent == [SwitchVariant("number-10")]
    assert "0 number-10" in shown
    assert "  number-11" in listed
    assert "v switch" in shown.splitlines()[-1]


async def test_pause_and_resume(session):
    session.link.answers = True
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("p")
        await settle(pilot)
        paused = text_of(session.app)
        await pilot.press("p")
        await settle(pilot)
        resumed = text_of(session.app)
    assert session.link.sent == [Pause(), Resume()]
    assert "paused" in paused.splitlines()[0]
    assert "p resume" in paused.splitlines()[-1]
    assert "p pause" in resumed.splitlines()[-1]
    assert "running" in resumed.splitlines()[0]


async def test_two_presses_before_the_worker_answers_are_a_pause_and_a_resume(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("p", "p", "p")
        await settle(pilot)
        assert session.link.sent == [Pause(), Resume(), Pause()]
        session.link.say(State("paused", "eager"))
        await settle(pilot)
        await pilot.press("p")
        await settle(pilot)
    assert session.link.sent[3:] == [Resume()]


async def test_a_captured_trace_is_written_and_never_overwrites(session, trace_file):
    taken = session.folder / "decodescope-eager-20260102-030405.json.gz"
    taken.write_bytes(b"precious")
    async with session.app.run_test(size=(80, 24), notifications=True) as pilot:
        await session.run(pilot)
        await pilot.press("t")
        session.link.say(ready(trace_file, requested=True))
        await settle(pilot)
        shown = text_of(session.app)
    written = session.folder / "decodescope-eager-20260102-030405-2.json.gz"
    assert session.link.sent == [CaptureTrace()]
    assert taken.read_bytes() == b"precious"
    assert json.loads(gzip.decompress(written.read_bytes())) == json.loads(trace_file.read_text())
    assert "Trace written" in shown
    assert not list(session.folder.glob("*.tmp"))


async def test_r_asks_before_it_restarts_a_running_worker(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("R")
        assert session.link.restarts == 0
        await pilot.press("R")
        assert session.link.restarts == 1


async def test_missing_cuda_is_reported_unless_the_cpu_was_chosen(tmp_path):
    for chosen in (False, True):
        session = Session(tmp_path, cpu_chosen=chosen)
        async with session.app.run_test(size=(100, 30)) as pilot:
            session.link.say(hello("cpu"), State("running", "eager"))
            await settle(pilot)
            shown = text_of(session.app)
        assert ("No CUDA device: running tiny on the CPU" in shown) != chosen
        assert "device: cpu" in shown


async def test_variants_and_keys_can_be_clicked(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        lines = text_of(session.app).splitlines()
        row = next(y for y, line in enumerate(lines) if "2 compiled" in line)
        await pilot.click(offset=(lines[row].index("compiled"), row))
        await pilot.click(offset=(lines[-1].index("pause"), len(lines) - 1))
        await settle(pilot)
    assert session.link.sent == [SwitchVariant("compiled"), Pause()]


async def test_launches_on_a_cpu_are_unknown(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello("cpu"), State("running", "eager"), stats(1), ready(trace_file))
        await settle(pilot)
        await pilot.press("escape")
        await settle(pilot)
        figures = text_of(session.app).splitlines()[STRIP]
    assert "launches" not in figures
    assert "48 operators" in figures


async def test_a_window_captured_at_another_pace_is_marked(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        assert "a step took 1.50 ms then" in text_of(session.app)
        session.link.say(stats(2, "eager", 850.0))
        await settle(pilot)
        assert "a step took" not in text_of(session.app)


async def test_sampling_is_shown_beside_the_variant(session):
    async with session.app.run_test(size=(160, 30)) as pilot:
        await session.run(pilot)
        assert "temperature" not in text_of(session.app)
        drawn = SamplingSettings(0.8, 50, None, 7)
        session.link.say(replace(hello(), sampling=drawn), State("running", "eager"))
        await settle(pilot)
        top = text_of(session.app).splitlines()[0]
    assert "eager · temperature 0.8 · random weights · H200" in top
    assert "c128 · top-k 50 · seed 7" in top


async def test_without_a_tokenizer_other_panels_get_the_rows_of_the_text(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        session.link.say(hello(), State("running", "eager"), stats(1, text=""))
        await settle(pilot)
        without = text_of(session.app)
        session.link.say(stats(2))
        await settle(pilot)
        assert "Generated text" in text_of(session.app)
    assert "Generated text" not in without


async def test_copy_puts_the_figures_on_the_clipboard(session, trace_file):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        await pilot.press("y")
        copied = session.app.clipboard
    assert "47.2 tok/s" in copied
    assert "host-bound" in copied
    assert "waiting for the host" in copied


async def test_screenshot_is_written(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("ctrl+s")
        await settle(pilot)
    assert (session.folder / "decodescope-20260102-030405.svg").read_text().startswith("<svg")


async def test_help_lists_every_key(session):
    async with session.app.run_test(size=(120, 500)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        shown = text_of(session.app)
        await pilot.press("escape")
        await pilot.pause()
        assert "Keys everywhere" not in text_of(session.app)
    for piece in (
        "Keys of this panel",
        "space",
        "Capture a trace",
        "host_wait: before call began",
        "profiler \u00d7",
        *(term.name for term in read_terms()),
    ):
        assert piece in shown


async def test_help_lists_what_works_here_each_under_its_own_key(tmp_path):
    recording = next(path for path in bundled_recordings() if path.stem.endswith("fused+graph"))
    app = DecodescopeApp(source_for(recording), None, StillClock(), tmp_path)
    async with app.run_test(size=(120, 140)) as pilot:
        await settle(pilot)
        await pilot.press("2", "question_mark")
        await pilot.pause()
        shown = text_of(app)
    keys = dict(re.findall(r"\u2502  (\S+) +(\w[^.\n\u2502]*)\. ", shown))
    for key, title in {
        "{": "Previous window",
        "}": "Next window",
        ":": "Go to a time",
        "(": "Previous switch",
        "\u2190": "Pan left",
        "\u2192": "Pan right",
        "+": "Zoom in",
        "-": "Zoom out",
        "q": "Quit",
        "enter": "Open",
    }.items():
        assert keys[key] == title
    assert (keys["<"], keys[">"]) == ("Previous step", "Next step")
    assert "Slower" not in shown
    assert not {"S", "x"} & set(keys)
    assert "str, over, gaps" in shown


async def test_every_action_is_in_the_palette(session):
    async with session.app.run_test(size=(100, 30)) as pilot:
        await session.run(pilot)
        titles = {command.title for command in session.app.get_system_commands(session.app.screen)}
    assert {"Help", "Freeze the view", "Capture a trace", "Quit", "Theme"} <= titles
    assert "Switch to compiled" in titles
    assert "Switch to fused+graph" not in titles


async def test_quit_closes_the_link(session):
    async with session.app.run_test(size=(80, 24)) as pilot:
        await session.run(pilot)
        await pilot.press("q")
        await pilot.pause()
    assert session.link.closed


async def test_the_panels_of_a_page_are_mounted_when_it_is_first_shown(session, trace_file):
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, ready(trace_file))
        assert not session.app.screen.query("#kernels")
        for key, shown in (("3", True), ("1", False), ("3", True)):
            await pilot.press(key)
            await settle(pilot)
            assert session.app.screen.query_one("#kernels").display is shown


async def test_the_footer_names_a_key_once(session, trace_file):
    async with session.app.run_test(size=(200, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        for page in PAGES:
            await pilot.press(page.key)
            await settle(pilot)
            panel = session.app.screen.query_one("#keys", KeysPanel)
            keys = [key for command in panel._data for key in command.key.split(",")]
            assert len(keys) == len(set(keys)), page.name


async def test_the_footer_shows_the_keys_of_a_filter_while_it_is_typed(session, trace_file):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, ready(trace_file))
        await pilot.press("3")
        await settle(pilot)
        footer = text_of(session.app).splitlines()[-1]
        assert "f filter" in footer
        for end, filtered in (("enter", True), ("escape", False)):
            await pilot.press("f", "x", "q")
            await settle(pilot)
            *_, typed = text_of(session.app).splitlines()
            assert typed.split() == ["enter", "keep", "esc", "drop", "^u", "clear"]
            await pilot.press(end)
            await settle(pilot)
            assert text_of(session.app).splitlines()[-1] == footer
            assert ("filter: xq" in text_of(session.app)) is filtered
            await pilot.press("escape")
        await pilot.press("f", "x")
        await settle(pilot)
        await pilot.click("#keys", offset=(2, 0))
        await settle(pilot)
        assert "filter: x" in text_of(session.app)
        assert "f filter" in text_of(session.app).splitlines()[-1]
