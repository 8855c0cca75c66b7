"""Where commands write: never over an input, through what is no file, "-" is standard output."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.command import Command
from tests.helpers.kineto_events import call, document, op

TRACE = document([call(1, 3, 5), op(10, 60, 5)])
MODEL = Path(__file__).resolve().parents[2] / "variants" / "tiny"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.json"
    path.write_bytes(TRACE)
    return path


def unchanged(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", ["csv", "chrome", "html"])
@pytest.mark.parametrize("how", ["itself", "relative", "link", "hard link"])
def test_an_export_never_replaces_its_input(
    decodescope: Command, trace: Path, how: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    output = {"itself": str(trace), "relative": "./t.json"}.get(how, "other")
    if how == "link":
        Path("other").symlink_to("t.json")
    elif how == "hard link":
        Path("other").hardlink_to("t.json")
    before = unchanged(trace.parent)
    done = decodescope("export", str(trace), "--to", target, "-o", output)
    assert done.code == 2
    assert "is the input" in done.only_line
    assert unchanged(trace.parent) == before


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_an_export_never_replaces_its_standard_input(trace: Path, name: str) -> None:
    command = [sys.executable, "-m", "decodescope", "export", name, "--to", "csv", "-o", str(trace)]
    with trace.open("rb") as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is the input" in done.stderr
    assert trace.read_bytes() == TRACE


def test_a_recording_is_not_replaced_by_its_export(decodescope: Command, tmp_path: Path) -> None:
    recording = Path(shutil.copy(bundled_recordings()[0], tmp_path))
    done = decodescope("export", str(recording), "--to", "csv", "-o", str(recording))
    assert "is the input" in done.only_line


@pytest.mark.parametrize("name", ["diff.json", "diff.md", "diff.html"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_diff_never_replaces_its_traces(
    decodescope: Command, trace: Path, name: str, side: int
) -> None:
    out = trace.parent / "out"
    out.mkdir()
    inside = out / name
    inside.write_bytes(TRACE)
    sides = [trace, trace]
    sides[side] = inside
    done = decodescope("diff", *map(str, sides), "--out", str(out))
    assert done.code == 2
    assert "is the input" in done.only_line
    assert unchanged(out) == {inside: TRACE}


def test_a_comparison_never_replaces_the_text_that_it_scores(
    decodescope: Command, tmp_path: Path
) -> None:
    held = tmp_path / "comparison.json"
    held.write_text("{}")
    done = decodescope(
        "compare",
        "--model",
        "tiny",
        "--device",
        "cpu",
        "--variants",
        "eager,compiled",
        "--text",
        str(held),
        "--out",
        str(tmp_path),
    )
    assert done.code == 2
    assert f"is the input {held}" in done.only_line
    assert unchanged(tmp_path) == {held: b"{}"}


def test_a_trace_never_replaces_a_file_of_the_model(decodescope: Command, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    before = unchanged(folder)
    command = ["run", "--model", str(folder), "--device", "cpu", "--tokens", "20"]
    done = decodescope(*command, "--trace", str(folder / "config.json"))
    assert done.code == 2
    assert "is the input" in done.only_line
    assert unchanged(folder) == before


def test_a_gguf_file_is_not_overwritten(decodescope: Command, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    trace = tmp_path / "trace.json"
    trace.symlink_to(model)
    done = decodescope("run", "--model", str(model), "--device", "cpu", "--trace", str(trace))
    assert done.code == 2
    assert f"is the input {model}" in done.only_line
    assert model.read_bytes() == b"GGUF"


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "/dev/fd/1"])
@pytest.mark.parametrize("target", ["csv", "chrome", "html"])
def test_standard_output_gets_the_file_and_nothing_else(
    decodescope: Command, trace: Path, target: str, output: str
) -> None:
    written = trace.parent / "out"
    assert decodescope("export", str(trace), "--to", target, "-o", str(written)).code == 0
    done = decodescope("export", str(trace), "--to", target, "-o", output)
    assert (done.code, done.err) == (0, "")
    assert done.out == written.read_text()


def test_a_device_stays_a_device(decodescope: Command, trace: Path) -> None:
    link = trace.parent / "null"
    link.symlink_to("/dev/null")
    done = decodescope("export", str(trace), "--to", "csv", "-o", str(link))
    assert done.code == 0
    assert link.is_symlink()
    assert Path("/dev/null").is_char_device()


def test_a_kept_trace_goes_through_a_link(decodescope: Command, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    kept, link = tmp_path / "kept.json.gz", tmp_path / "link.json.gz"
    kept.write_bytes(b"old")
    kept.chmod(0o640)
    link.symlink_to(kept)
    command = ["run", "--model", "tiny", "--device", "cpu", "--tokens", "20", "--context", "8"]
    assert decodescope(*command, "--trace", str(link)).code == 0
    assert link.is_symlink()
    assert kept.stat().st_mode & 0o777 == 0o640
    assert json.loads(decodescope("analyze", str(kept), "--json").out)["steps"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json.gz", "link.json.gz"]


def test_an_option_without_its_value_does_not_name_a_file(
    decodescope: Command, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    before = unchanged(trace.parent)
    done = decodescope("export", "t.json", "--to", "chrome", "--output", "--capture")
    line = "decodescope: -o --capture: is named like an option; name another file"
    assert (done.code, done.only_line) == (2, line)
    assert unchanged(trace.parent) == before
