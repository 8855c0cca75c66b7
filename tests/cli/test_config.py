"""`config`, and what the app does with the user's two files."""

import json
import os
import re
from pathlib import Path
from unittest.mock import Mock, create_autospec

import msgspec
import pytest

from decodescope.analyzer.protocol.messages import Settings
from decodescope.cli.app import AppOptions, last_settings, remember_opened
from decodescope.cli.live import live
from decodescope.tui.app import DecodescopeApp, all_actions
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource
from decodescope.tui.model.user_files import Memory, Places
from tests.helpers.command import Command
from tests.helpers.scripted import ScriptedLink, hello, settle, text_of

pytestmark = pytest.mark.usefixtures("quick_pilot")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "decodescope").mkdir(parents=True)
    return Places(
        tmp_path / "state" / "decodescope" / "state.json",
        tmp_path / "config" / "decodescope" / "keymap.toml",
    )


def app_of(places: Places) -> DecodescopeApp:
    return DecodescopeApp(LiveSource(ScriptedLink()), places=places)


def test_config_names_both_files_and_shows_what_is_in_them(
    decodescope: Command, places: Places
) -> None:
    paths = decodescope("config", "path").out.splitlines()
    assert paths == [str(places.state), str(places.keymap)]
    Memory(places.state).change(theme="nord")
    places.keymap.write_text('[app]\nfreeze = "b"\n')
    shown = json.loads(decodescope("config", "show").out)
    assert shown["remembered"] == {"theme": "nord"}
    assert shown["keymap"] == {"app.freeze": "b"}
    assert (shown["keys"]["app.freeze"], shown["keys"]["app.help"]) == ("b", "question_mark")


def test_config_reports_broken_files_and_still_shows_the_rest(
    decodescope: Command, places: Places
) -> None:
    places.state.parent.mkdir(parents=True)
    places.state.write_text("{")
    places.keymap.write_text('[app]\nfly = "z"\n')
    done = decodescope("config", "show")
    assert done.code == 0
    assert json.loads(done.out)["keymap"] == {}
    state, keymap = done.err.splitlines()
    assert f"{places.state}: cannot be read" in state
    assert f"{places.keymap}: no action app.fly" in keymap


def test_every_key_of_the_app_can_be_named_and_none_clashes_with_itself(places: Places) -> None:
    """A keymap with every action on its own keys is accepted, so the default keys are sound."""
    from decodescope.tui.model.user_files import read_keymap

    actions = all_actions()
    assert {"app.quit", "app.freeze", "table.sort"} <= set(actions)
    lines = [f'"{name}" = {json.dumps(keys.split(","))}' for name, keys in actions.items()]
    groups: dict[str, list[str]] = {}
    for name, line in zip(actions, lines, strict=True):
        group, _, action = name.partition(".")
        groups.setdefault(group, []).append(line.replace(f'"{name}"', f'"{action}"'))
    text = "\n".join(f'["{group}"]\n' + "\n".join(rows) for group, rows in groups.items())
    places.keymap.write_text(text)
    assert set(read_keymap(places.keymap, lambda: actions)) == set(actions)


async def test_a_key_of_the_keymap_works_and_the_old_one_no_longer(places: Places) -> None:
    places.keymap.write_text('[app]\nfreeze = "b"\n')
    app = app_of(places)
    async with app.run_test() as pilot:
        await pilot.press("space")
        assert not app._painter.frozen
        await pilot.press("b")
        assert app._painter.frozen


async def test_the_keys_of_the_keymap_are_those_that_are_shown(places: Places) -> None:
    places.keymap.write_text('[app]\nhelp = "ctrl+g"\n[files]\nmark = "%"\n')
    app = app_of(places)
    async with app.run_test(size=(160, 80)) as pilot:
        await pilot.press("8")
        await settle(pilot)
        line = text_of(app).splitlines()[-1]
        assert "% mark" in line
        assert "^g help" in line
        await pilot.press("ctrl+g")
        await pilot.pause()
        shown = text_of(app)
    assert re.search(r"\^g +Help\.", shown)
    assert re.search(r"% +Mark\.", shown)


async def test_a_keymap_that_cannot_be_meant_is_logged_and_the_keys_stay(places: Places) -> None:
    places.keymap.write_text('[app]\nfreeze = "q"\n')
    app = app_of(places)
    async with app.run_test() as pilot:
        lines = [line.text for line in app.view().log]
        assert any("q is the key of both app.freeze and app.quit" in line for line in lines)
        await pilot.press("space")
        assert app._painter.frozen


async def test_the_theme_is_the_one_of_the_last_run(places: Places) -> None:
    app = app_of(places)
    async with app.run_test() as pilot:
        app.theme = "nord"
        await settle(pilot)
    assert Memory(places.state).remembered.theme == "nord"
    assert app_of(places).theme == "nord"
    Memory(places.state).change(theme="gone in this version")
    assert app_of(places).theme == "decodescope-dark"


async def test_what_cannot_be_remembered_is_one_line_in_the_log(places: Places) -> None:
    places.state.parent.parent.write_text("a file, not a folder")
    app = app_of(places)
    async with app.run_test() as pilot:
        for theme in ("nord", "gruvbox", "nord"):
            app.theme = theme
            await settle(pilot)
        said = [line.text for line in app.view().log if "remembered" in line.text]
    assert len(said) == 1
    assert said[0].startswith("nothing is remembered: ")


def test_a_live_run_begins_with_the_settings_of_the_last_one(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory(places.state).change(settings=Settings(4, 128, model="tiny", context=32))
    configs = []
    monkeypatch.setattr(
        AppOptions, "place", lambda options: "drawing" if options.once else "terminal"
    )
    monkeypatch.setattr("decodescope.cli.live.show_app", lambda *arguments: None)
    link = create_autospec(WorkerLink, side_effect=lambda config: configs.append(config) or Mock())
    monkeypatch.setattr("decodescope.tui.link.worker.WorkerLink", link)
    for arguments in ([], ["--batch", "2"], ["--once"]):
        live.main(arguments, standalone_mode=False)
    assert [(one.model, one.batch, one.context) for one in configs] == [
        ("tiny", 4, 32),
        (None, 2, None),
        (None, 1, None),
    ]


async def test_changed_settings_are_remembered_without_the_prompt(places: Places) -> None:
    link = ScriptedLink()
    app = DecodescopeApp(LiveSource(link), places=places)
    asked = Settings(2, 128, model="tiny", prompt="a secret")
    async with app.run_test() as pilot:
        await app._runs._change(asked)
        await settle(pilot)
        assert Memory(places.state).remembered.settings is None
        link.say(msgspec.structs.replace(hello(), settings=asked))
        await settle(pilot)
    assert Memory(places.state).remembered.settings == Settings(2, 128, model="tiny")
    assert "secret" not in places.state.read_text()


def test_files_of_the_command_line_are_recent_but_no_pipe(places: Places, tmp_path: Path) -> None:
    trace = tmp_path / "a.json"
    trace.write_text("{}")
    os.mkfifo(tmp_path / "fifo")
    remember_opened([Path("-"), Path("/dev/stdin"), tmp_path / "fifo", trace])
    assert Memory(places.state).remembered.recent == (str(trace),)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), True),
        (("--page", "kernels", "--record", "run.dscope"), True),
        (("--batch", "2"), False),
        (("--prompt-file", "prompt.txt"), False),
    ],
)
def test_an_option_that_says_what_is_decoded_replaces_the_last_settings(
    places: Places, arguments: tuple[str, ...], said: bool
) -> None:
    settings = Settings(2, 128, model="tiny")
    Memory(places.state).change(settings=settings)
    with live.make_context("live", [*arguments]):
        assert last_settings() == (settings if said else None)
