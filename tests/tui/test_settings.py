"""The settings of a live run: as text and back, in the dialog, and for a worker that has died."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Input, TextArea

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import (
    ChangeSettings,
    Failure,
    Hello,
    ModelInfo,
    Settings,
    State,
    encode_frame,
)
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.user_files import Memory
from decodescope.tui.screens.settings import SettingsScreen, as_fields, from_fields
from tests.helpers.app.worker import is_a, scripted, sending, until
from tests.helpers.hostile import HOSTILE, OWN_SEQUENCES, unsafe
from tests.helpers.scripted import hello, settle, text_of

MODELS = (
    ModelInfo("tiny", "bundled, trained", 3_803_392),
    ModelInfo("llama-3.2-1b@random", "random weights, no download", 1_235_814_400),
    ModelInfo("llama-3.2-1b", "weights of meta-llama/Llama-3.2-1B", 1_235_814_400),
)
RUNS = Settings(1, 128, model="tiny")
GREETING = msgspec.structs.replace(hello(), model="tiny", models=MODELS, settings=RUNS)

words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)
whole = st.integers(1, 1 << 40)
samplings = st.builds(
    SamplingSettings,
    st.integers(1, 500).map(lambda n: n / 100),
    st.none() | whole,
    st.none() | st.integers(1, 100).map(lambda n: n / 100),
    st.integers(0, 1 << 40),
)
contexts = st.fixed_dictionaries({"context": st.none() | whole})
prompts = st.fixed_dictionaries({"prompt": st.text(min_size=1)})
ids = st.fixed_dictionaries({"prompt_ids": st.lists(whole, min_size=1).map(tuple)})


@given(contexts | prompts | ids, whole, whole, st.none() | words, st.none() | samplings)
def test_what_is_not_edited_stays_as_it_is(length, batch, tokens, model, sampling):
    model = model and model.strip()
    settings = Settings(batch, tokens, model=model, sampling=sampling, **length)
    context = length.get("context") or 128
    greeting = msgspec.structs.replace(hello(), context=context, model=model or "m")
    fields = as_fields(settings, greeting)
    again = from_fields(fields, settings, greeting)
    left_to_the_worker = {"model": model or "m"}
    if "context" in length:
        left_to_the_worker["context"] = context
    assert again == msgspec.structs.replace(settings, **left_to_the_worker)


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("batch", "many", "batch: many is no whole number"),
        ("batch", "0", "batch: must be at least 1"),
        ("tokens", "-3", "tokens: must be at least 1"),
        ("context", "1.5", "context: 1.5 is no whole number"),
        ("temperature", "warm", "temperature: warm is no number"),
        ("temperature", "-1", "temperature: must be 0"),
        ("temperature", "inf", "temperature: inf is no number"),
        ("top-k", "5", "top-k: without a temperature"),
        ("top-p", "0.5", "top-p: without a temperature"),
        ("model", "  ", "model: name one"),
        ("prompt", "x", "context: the prompt's length"),
    ],
)
def test_what_cannot_be_is_named(field, text, says):
    fields = as_fields(RUNS, GREETING) | {field: text}
    with pytest.raises(InputError, match=says):
        from_fields(fields, RUNS, GREETING)


@pytest.mark.parametrize(("field", "text"), [("top-p", "0"), ("top-p", "1.1"), ("seed", "-1")])
def test_sampling_is_checked_too(field, text):
    fields = as_fields(RUNS, GREETING) | {"temperature": "0.7", field: text}
    with pytest.raises(InputError, match=f"{field}: must be"):
        from_fields(fields, RUNS, GREETING)


def test_another_context_replaces_a_prompt_of_ids():
    settings = Settings(1, 5, model="tiny", prompt_ids=(1, 2, 3))
    greeting = msgspec.structs.replace(GREETING, context=3)
    fields = as_fields(settings, greeting)
    assert fields["context"] == "3"
    assert from_fields(fields | {"batch": "2"}, settings, greeting).prompt_ids == (1, 2, 3)
    changed = from_fields(fields | {"context": "9"}, settings, greeting)
    assert (changed.context, changed.prompt_ids) == (9, None)
    changed = from_fields(fields | {"context": "", "prompt": "x"}, settings, greeting)
    assert (changed.prompt, changed.prompt_ids) == ("x", None)


@pytest.fixture
def live(session):
    """A live app whose worker has settings."""
    session.link.asked = RUNS
    return session


async def opened(session, pilot) -> SettingsScreen:
    session.link.say(GREETING, State("running", "eager"))
    await settle(pilot)
    await pilot.press("S")
    await pilot.pause()
    screen = session.app.screen
    assert isinstance(screen, SettingsScreen)
    return screen


async def test_changed_settings_are_sent_and_the_rest_stays(live):
    async with live.app.run_test(size=(100, 36)) as pilot:
        screen = await opened(live, pilot)
        screen.query_one("#batch", Input).value = "4"
        screen.query_one("#temperature", Input).value = "0.7"
        screen.query_one("#top-k", Input).value = "20"
        await pilot.press("enter")
        await pilot.pause()
        assert not isinstance(live.app.screen, SettingsScreen)
    sampling = SamplingSettings(0.7, 20, None, 0)
    wanted = Settings(4, 128, model="tiny", context=128, sampling=sampling)
    assert live.link.sent == [ChangeSettings(wanted)]


async def test_a_model_of_the_list_and_a_prompt(live):
    async with live.app.run_test(size=(100, 36)) as pilot:
        screen = await opened(live, pilot)
        shown = text_of(live.app)
        assert "1.24 B" in shown
        assert "random weights, no download" in shown
        await pilot.press("down", "down", "enter")
        assert screen.query_one("#model", Input).value == "llama-3.2-1b@random"
        screen.query_one("#context", Input).value = ""
        screen.query_one(TextArea).text = "def f():\n    return"
        await pilot.press("ctrl+s")
        await pilot.pause()
    (sent,) = live.link.sent
    assert sent.settings.model == "llama-3.2-1b@random"
    assert (sent.settings.prompt, sent.settings.context) == ("def f():\n    return", None)


@pytest.mark.parametrize("size", [(100, 36), (60, 16)])
async def test_what_is_wrong_is_said_and_nothing_is_lost(live, size):
    async with live.app.run_test(size=size) as pilot:
        screen = await opened(live, pilot)
        screen.query_one("#tokens", Input).value = "9"
        screen.query_one("#batch", Input).value = "many"
        await pilot.press("enter")
        await pilot.pause()
        assert live.app.screen is screen
        assert "batch: many is no whole number" in text_of(live.app)
        assert screen.focused is screen.query_one("#batch")
        await pilot.press("escape")
        await pilot.pause()
    assert live.link.sent == []


async def test_refused_settings_can_be_corrected(live):
    async with live.app.run_test(size=(100, 36)) as pilot:
        screen = await opened(live, pilot)
        screen.query_one("#batch", Input).value = "4096"
        await pilot.press("enter")
        reason = "the settings stay as they were: not enough GPU memory; lower --batch"
        live.link.say(Failure(reason, 3, fatal=False), State("running", "eager"))
        await settle(pilot)
        assert reason in " ".join(text_of(live.app).split())
        await pilot.press("S")
        await pilot.pause()
        batch = live.app.screen.query_one("#batch", Input)
        assert batch.value == "4096"
        batch.value = "8"
        await pilot.press("enter")
        live.link.asked = msgspec.structs.replace(RUNS, batch=8)
        live.link.say(msgspec.structs.replace(GREETING, batch=8, settings=live.link.asked))
        await settle(pilot)
        await pilot.press("S")
        await pilot.pause()
        assert live.app.screen.query_one("#batch", Input).value == "8"
    assert [one.settings.batch for one in live.link.sent] == [4096, 8]


async def test_only_what_a_worker_accepted_is_remembered(live):
    live.app._memory = live.app._feeds.memory = Memory(live.folder / "state.json")

    async def ask(batch: str) -> None:
        await pilot.press("S")
        await pilot.pause()
        live.app.screen.query_one("#batch", Input).value = batch
        await pilot.press("enter")
        await settle(pilot)

    async with live.app.run_test(size=(100, 36)) as pilot:
        live.link.say(GREETING, State("running", "eager"))
        await settle(pilot)
        await ask("4096")
        live.link.say(Failure("not enough GPU memory", 3, fatal=False))
        await settle(pilot)
        assert live.app._memory.remembered.settings is None
        await ask("8")
        runs = msgspec.structs.replace(RUNS, batch=8, prompt="secret")
        live.link.say(msgspec.structs.replace(GREETING, batch=8, settings=runs))
        await settle(pilot)
    kept = Memory(live.folder / "state.json").remembered.settings
    assert kept == msgspec.structs.replace(RUNS, batch=8)


async def test_after_a_death_other_settings_start_another_worker(live):
    async with live.app.run_test(size=(100, 36)) as pilot:
        live.link.say(Failure("nope: no such model", 2, True), WorkerDied(2, ()))
        await settle(pilot)
        await pilot.press("S")
        await pilot.pause()
        live.app.screen.query_one("#model", Input).value = "tiny"
        live.app.screen.query_one("#batch", Input).value = "2"
        await pilot.press("enter")
        await pilot.pause()
        assert live.link.restarts == 1
        assert "no such model" not in text_of(live.app)
    assert live.link.sent == [ChangeSettings(Settings(2, 128, model="tiny"))]


async def test_the_link_restarts_with_the_settings_that_run_or_are_asked_for(tmp_path):
    greeting = encode_frame(msgspec.structs.replace(GREETING, settings=Settings(3, 7, model="b")))
    echo = "import json\nasked = json.load(open(sys.argv[2]))\nprint(asked['batch'], flush=True)\n"
    link = scripted(tmp_path, echo + sending(greeting) + "control.recv(100)\nsys.exit(5)\n")
    await link.start()
    await until(link, is_a(Hello))
    assert link.settings == Settings(3, 7, model="b")
    await link.send(ChangeSettings(Settings(9, 7)))
    died = (await until(link, is_a(WorkerDied)))[-1]
    assert link.settings == Settings(3, 7, model="b")
    await link.send(ChangeSettings(Settings(11, 7, model="c")))
    assert link.settings == Settings(11, 7, model="c")
    await link.restart()
    await link.send(ChangeSettings(Settings(12, 7)))
    again = (await until(link, is_a(WorkerDied)))[-1]
    assert [died.log_tail, again.log_tail] == [("2",), ("11",)]
    await link.close()


async def test_the_list_begins_at_the_model_that_is_named(live):
    async with live.app.run_test(size=(100, 36)) as pilot:
        screen = await opened(live, pilot)
        screen.query_one("#model", Input).value = "llama-3.2-1b"
        await pilot.press("down", "down", "enter")
        assert screen.query_one("#model", Input).value == "llama-3.2-1b"
        assert screen.focused is screen.query_one("#model", Input)
        screen.query_one("#model", Input).value = "/no/such/model"
        await pilot.press("down", "up", "enter")
        assert screen.query_one("#model", Input).value == "llama-3.2-1b@random"
        # To the next field, never into the list.
        await pilot.press("tab", "down")
        assert screen.focused is screen.query_one("#context", Input)


async def test_folders_are_completed(live, tmp_path: Path):
    (tmp_path / "checkpoints" / "mine").mkdir(parents=True)
    (tmp_path / "checkpoints" / "model.json").touch()
    (tmp_path / "checkpoints" / "more").mkdir()
    async with live.app.run_test(size=(140, 36)) as pilot:
        model = (await opened(live, pilot)).query_one("#model", Input)
        for begun, completed, accepts in (
            (f"{tmp_path}/check", f"{tmp_path}/checkpoints/", "right"),
            (f"{tmp_path}/checkpoints/m", f"{tmp_path}/checkpoints/mine/", "right"),
            (f"{tmp_path}/checkpoints/m", f"{tmp_path}/checkpoints/mine/", "tab"),
            ("llama", "llama-3.2-1b@random", "tab"),
        ):
            model.value = ""
            for key in begun:
                model.insert_text_at_cursor(key)
            for _ in range(200):
                await pilot.pause(0.01)
                if model._suggestion == completed:
                    break
            await pilot.press(accepts)
            assert model.value == completed
        assert await model.suggester.get_suggestion("/no/such/folder/x") is None
        assert await model.suggester.get_suggestion("~no-one/x") is None


async def test_only_a_live_run_has_settings(session):
    async with session.app.run_test(size=(100, 36)) as pilot:
        await session.run(pilot)
        await pilot.press("S")
        await pilot.pause()
        assert not isinstance(session.app.screen, SettingsScreen)


async def test_a_prompt_cannot_reach_the_terminal_as_it_is_and_is_kept(live):
    prompt = f"a\x1b[31m{HOSTILE}\nb"
    live.link.asked = Settings(1, 5, model="tiny", prompt=prompt)
    async with live.app.run_test(size=(100, 36)) as pilot:
        screen = await opened(live, pilot)
        assert unsafe(text_of(live.app).replace("\n", ""), OWN_SEQUENCES) == ""
        screen.query_one("#batch", Input).value = "2"
        await pilot.press("enter")
        await pilot.pause()
    (sent,) = live.link.sent
    assert sent.settings.prompt == prompt


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50), (1, 1), (20, 5)])
async def test_every_field_can_be_reached_at_every_size(live, size):
    async with live.app.run_test(size=size) as pilot:
        screen = await opened(live, pilot)
        seen = set()
        for _ in range(12):
            assert screen.focused is not None
            seen.add(screen.focused.id or type(screen.focused).__name__)
            await pilot.press("tab")
            await pilot.pause()
    assert seen == {
        "model",
        "context",
        "batch",
        "tokens",
        "temperature",
        "top-k",
        "top-p",
        "seed",
        "prompt",
        "Button",
    }
