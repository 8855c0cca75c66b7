"""The places that the server of `mcp` may read and write."""

import os
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.cli.mcp.places import RECORDINGS, AllowedPlaces
from decodescope.cli.mcp.tool_host import ToolHost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a trace, beside a secret, and links out of it and within."""
    root = tmp_path / "traces"
    (root / "deep").mkdir(parents=True)
    (root / "a.json").write_text("{}")
    (root / ".hidden").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "traces2").mkdir()
    (tmp_path / "traces2" / "b.json").write_text("{}")
    (root / "inside").symlink_to("a.json")
    (root / "deep" / "up").symlink_to("../a.json")
    (root / "outside").symlink_to("../secret.json")
    (root / "folder").symlink_to("..")
    (root / "circle").symlink_to("circle")
    (root / "device").symlink_to("/dev/zero")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("name", ["a.json", "./a.json", "inside", "deep/up"])
def test_a_trace_is_named_by_its_path_below_a_folder(root: Path, name: str) -> None:
    places = AllowedPlaces([root])
    assert places.trace(name) == root / "a.json"
    assert places.trace(str(root / name)) == root / "a.json"
    assert places.shown(root / "a.json") == "a.json"


@pytest.mark.parametrize(
    "name",
    [
        "../secret.json",
        "deep/../a.json",
        "/etc/passwd",
        "outside",
        "folder/secret.json",
        "device",
        "{parent}/secret.json",
        "{parent}/traces2/b.json",
        "{root}/../secret.json",
        "/proc/self/root/etc/passwd",
        "/dev/stdin",
        "a.json\0",
        "\udcff\ud800",
        "~/x",
    ],
)
def test_what_is_outside_is_refused(root: Path, name: str) -> None:
    text = name.format(parent=root.parent, root=root)
    for refused in (AllowedPlaces([root]).trace, AllowedPlaces([root]).folder):
        with pytest.raises(InputError) as error:
            refused(text)
        assert len(str(error.value).splitlines()) == 1
    if name != "~/x":
        with pytest.raises(InputError):
            AllowedPlaces([root]).inside(text)


@pytest.mark.parametrize(
    "name",
    ["pipe", "deep", "missing.json", "circle", "a.json/x", pytest.param("x" * 4000, id="long")],
)
def test_what_is_no_file_is_refused(root: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"not a regular file|no such file|outside"):
        AllowedPlaces([root]).trace(name)


def test_the_first_folder_that_has_a_path_decides(root: Path) -> None:
    other = root.parent / "traces2"
    places = AllowedPlaces([root, other])
    assert places.trace("b.json") == other / "b.json"
    assert places.shown(root / "a.json") == str(root / "a.json")


def test_files_and_folders_are_listed_but_not_what_leads_outside(root: Path) -> None:
    shown = [
        entry.get("path", entry.get("folder")) for entry in AllowedPlaces([root]).entries(None)
    ]
    assert shown == ["a.json", "deep", "inside"]
    assert AllowedPlaces([root]).entries("deep") == [{"path": "deep/up", "bytes": 2}]


def test_a_model_is_a_name_or_a_file_inside(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "config.json").write_text("{}")
    (root.parent / "secret").mkdir()
    monkeypatch.chdir(root.parent)
    places = AllowedPlaces([root])
    assert places.model("gpt-oss-20b") == "gpt-oss-20b"
    assert places.model("config.json") == str(root / "config.json")
    monkeypatch.setenv("HOME", str(root.parent))
    for name in ("secret.json", "/etc", "traces2", "../x.json", "outside", "~/secret", "~"):
        with pytest.raises(InputError):
            places.model(name)


def test_a_recording_has_an_address(root: Path) -> None:
    places = AllowedPlaces([root])
    assert places.trace(f"{RECORDINGS}h200-llama-3.2-1b-fused").is_file()
    with pytest.raises(InputError, match="no bundled recording"):
        places.trace(f"{RECORDINGS}../../etc/passwd")


def test_an_output_needs_leave_and_stays_inside(root: Path) -> None:
    allowed = ToolHost([root], allow_write=True, allow_run=False)
    assert allowed.output("new/out.json") == root / "new" / "out.json"
    for name in ("../new", "folder/new", "outside", "/tmp/new"):
        with pytest.raises(InputError, match=r"outside|'\.\.'"):
            allowed.output(name)
    assert allowed.new_folder("new") == root / "new"
    with pytest.raises(InputError, match="not empty"):
        allowed.new_folder("deep")
    with pytest.raises(InputError, match="--allow-write"):
        ToolHost([root], allow_write=False, allow_run=False).output("new")
