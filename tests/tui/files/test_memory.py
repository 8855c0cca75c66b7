"""What is remembered between runs, and the user's keys."""

import os
import re
from operator import attrgetter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import Settings
from decodescope.tui.app import all_actions
from decodescope.tui.model.user_files import RECENT_FILES, Memory, read_keymap

ACTIONS = {
    "app.freeze": "space",
    "app.quit": "q,ctrl+c",
    "table.filter": "slash",
    "timeline.pan_left": "left,a",
    "timeline.zoom": "plus",
}


def test_what_is_remembered_is_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    config = Settings(4, 128, model="tiny")
    first = Memory(path)
    first.change(theme="nord", settings=config)
    first.opened([tmp_path / "a.json", tmp_path / "b.json"])
    first.opened([tmp_path / "b.json"])
    again = Memory(path)
    assert again.problem == ""
    assert (again.remembered.theme, again.remembered.settings) == ("nord", config)
    assert again.remembered.recent == (str(tmp_path / "b.json"), str(tmp_path / "a.json"))
    assert [one.name for one in path.parent.iterdir()] == ["state.json"]


def test_two_apps_keep_what_the_other_one_wrote(tmp_path: Path) -> None:
    one, other = Memory(tmp_path / "s"), Memory(tmp_path / "s")
    one.opened([tmp_path / "a.json"])
    other.change(theme="nord")
    assert Memory(tmp_path / "s").remembered == other.remembered
    assert other.remembered.recent == (str(tmp_path / "a.json"),)


def test_two_versions_share_a_file_and_neither_loses_what_the_other_keeps(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    later = {"theme": "nord", "new": [1], "settings": {"batch": 1, "tokens": 8, "speculation": 2}}
    path.write_bytes(msgspec.json.encode(later))
    memory = Memory(path)
    memory.opened([tmp_path / "a.json"])
    memory.change(theme=None)
    expected = later | {"theme": None, "recent": [str(tmp_path / "a.json")]}
    assert msgspec.json.decode(path.read_bytes()) == expected
    assert (memory.problem, memory.remembered.settings) == ("", Settings(1, 8))
    assert Memory(path).remembered == memory.remembered


def test_only_the_latest_files_are_kept_and_names_that_json_lacks_are_not(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "s")
    memory.opened([Path(os.fsdecode(b"\xff.json"))])
    for number in range(2 * RECENT_FILES):
        memory.opened([tmp_path / f"{number}.json"])
    recent = Memory(tmp_path / "s").remembered.recent
    assert recent == tuple(
        str(tmp_path / f"{number}.json")
        for number in reversed(range(RECENT_FILES, 2 * RECENT_FILES))
    )


@pytest.mark.parametrize("broken", [b"{", b"\xff\xfe", b'{"a": "\xe5"}', b'{"recent": 3}', b"[]"])
def test_a_broken_file_is_reported_and_never_overwritten(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(broken)
    memory = Memory(path)
    assert memory.problem.startswith(f"{path}: cannot be read (")
    assert "\n" not in memory.problem
    memory.change(theme="nord")
    memory.opened([tmp_path / "a.json"])
    assert memory.remembered.theme == "nord"
    assert path.read_bytes() == broken


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def deep_json(path: Path) -> None:
    path.write_bytes(b'{"new":' + b"[" * 100_000)


def deep_toml(path: Path) -> None:
    path.write_bytes(b"new = " + b"[" * 100_000)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def longer_than_any(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "make", [fifo, endless, deep_json, deep_toml, link_to_itself, longer_than_any, Path.mkdir]
)
def test_what_is_no_file_of_settings_is_neither_waited_for_nor_replaced(
    tmp_path: Path, make
) -> None:
    path = tmp_path / "file"
    make(path)
    # Not the time of access, which reading may change.
    kept = attrgetter("st_ino", "st_mode", "st_size", "st_mtime_ns")
    before = kept(path.lstat())
    memory = Memory(path)
    assert memory.problem.startswith(f"{path}: cannot be read (")
    memory.change(theme="nord")
    with pytest.raises(InputError, match=r"cannot be read .* the default keys apply"):
        read_keymap(path, lambda: ACTIONS)
    assert kept(path.lstat()) == before


def test_a_file_that_breaks_while_the_app_runs_stays_as_it_is(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "s")
    memory.change(theme="nord")
    (tmp_path / "s").write_bytes(b"half of it")
    memory.change(theme="other")
    assert (tmp_path / "s").read_bytes() == b"half of it"
    assert "cannot be read" in memory.problem


def test_a_place_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    memory = Memory(tmp_path / "file" / "state.json")
    assert memory.problem == ""
    memory.change(theme="nord")
    assert memory.problem.startswith("nothing is remembered: ")
    assert memory.remembered.theme == "nord"


def keymap(folder: Path, text: str) -> dict[str, str]:
    path = folder / "keymap.toml"
    path.write_text(text)
    return read_keymap(path, lambda: ACTIONS)


def test_the_keymap_names_actions_of_the_app_and_of_panels(tmp_path: Path) -> None:
    assert read_keymap(tmp_path / "none.toml", lambda: ACTIONS) == {}
    text = '[app]\nfreeze = ["z", ","]\n[timeline]\npan_left = "ctrl+left"\nzoom = " "\n'
    assert keymap(tmp_path, text) == {
        "app.freeze": "z,comma",
        "timeline.pan_left": "ctrl+left",
        "timeline.zoom": "space",
    }


def test_keys_can_be_exchanged_and_shared_by_panels(tmp_path: Path) -> None:
    text = '[app]\nfreeze = "q"\nquit = "space"\n[table]\nfilter = "a"'
    assert keymap(tmp_path, text)["table.filter"] == "a"


def test_the_example_of_the_documentation_is_a_keymap(tmp_path: Path, repository: Path) -> None:
    page = (repository / "docs" / "app.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "keymap.toml").write_text(example)
    keys = read_keymap(tmp_path / "keymap.toml", all_actions)
    assert keys.keys() == {"app.freeze", "app.quit", "kernels.sort"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('fly = "x"', "no action fly"),
        ('[app]\nfly = "x"', "no action app.fly"),
        ('[app]\nfreeze = "spcae"', "app.freeze = 'spcae' is no key"),
        ("[app]\nfreeze = 3", "app.freeze = 3 is no key"),
        ("[app]\nfreeze = []", "app.freeze = [] is no key"),
        ('[app]\nfreeze = ""', "app.freeze = '' is no key"),
        ('[app]\nfreeze = "q"', "q is the key of both app.freeze and app.quit"),
        ('[app]\nfreeze = "/"', "slash is the key of both app.freeze and table.filter"),
        ('[timeline]\nzoom = "a"', "a is the key of both timeline.pan_left and timeline.zoom"),
        ("[app]\nfreeze = ", "cannot be read"),
        ('[app]\nfreeze = "x"\nfreeze = "y"', "cannot be read"),
    ],
)
def test_a_keymap_that_cannot_be_meant_is_one_clear_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InputError) as error:
        keymap(tmp_path, text)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'keymap.toml'}: ")
    assert said in message
    assert message.endswith("; the default keys apply")
    assert "\n" not in message


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_keymap_or_one_line(tmp_path_factory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(data)
    try:
        said, named = "", set(read_keymap(path, lambda: ACTIONS))
    except InputError as error:
        said, named = str(error), set()
    assert named <= set(ACTIONS)
    assert "\n" not in said
