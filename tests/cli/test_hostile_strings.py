"""Every command on traces and arguments whose every string is hostile: it shows them, no more."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from markdown_it import MarkdownIt

from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.command import Command
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.hostile import FILE, FILE_SHOWN, HOSTILE, SHOWN, hostile_trace, unsafe

DATA = ("--json", "--format csv", "--format html")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide enough for every name."""
    monkeypatch.setenv("COLUMNS", "600")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return hostile_trace(tmp_path / FILE)


@pytest.mark.parametrize("by", ["kernel", "range", "gap"])
def test_tables_show_every_name(decodescope: Command, trace: str, by: str) -> None:
    done = decodescope("analyze", trace, "--by", by)
    assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
    head, lines = "\n".join(done.out.splitlines()[:6]), done.out.splitlines()
    assert FILE_SHOWN in head
    assert f"device: {SHOWN} (GPU 0)" in head
    assert f"{SHOWN} (random weights) · {SHOWN} · {SHOWN} · batch 1" in head
    assert any(line.startswith(f"  {SHOWN}  ") or f"/{SHOWN}  " in line for line in lines)
    assert any(line.startswith(f"second{SHOWN}  ") or by == "gap" for line in lines)


def test_data_formats_hold_every_name(decodescope: Command, trace: str) -> None:
    report = json.loads(decodescope("analyze", trace, "--json").out)
    assert {kernel["name"] for kernel in report["kernels"]} == {HOSTILE, f"second{HOSTILE}"}
    assert report["capture"]["model"] == HOSTILE
    for options in DATA:
        done = decodescope("analyze", trace, *options.split())
        assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
    page = decodescope("analyze", trace, "--format", "html").out
    assert "<b>`" not in page
    assert SHOWN.replace("<b>", "&lt;b&gt;") in page


def test_a_chrome_export_keeps_names_exact(
    decodescope: Command, trace: str, tmp_path: Path
) -> None:
    out = tmp_path / ("chrome" + FILE)
    done = decodescope("export", trace, "--to", "chrome", "-o", str(out))
    assert (done.code, done.out, unsafe(done.err)) == (0, "", "")
    assert f"chrome{FILE_SHOWN}" in done.err
    assert len(done.err.splitlines()) == 1
    assert HOSTILE in {event.get("name") for event in json.loads(out.read_bytes())["traceEvents"]}


def test_ranks_and_a_diff(decodescope: Command, trace: str, tmp_path: Path) -> None:
    files = [trace, hostile_trace(tmp_path / f"other{FILE}", 1)]
    ranks = decodescope("analyze", *files)
    assert unsafe(ranks.out + ranks.err) == ""
    assert (ranks.code, SHOWN in ranks.out) == (0, True)
    diff = decodescope("diff", *files, "--out", str(tmp_path / f"out{FILE}"))
    assert (diff.code, unsafe(diff.out + diff.err)) == (0, "")
    assert f"out{FILE_SHOWN}" in diff.err
    written = tmp_path / f"out{FILE}"
    assert unsafe((written / "diff.html").read_text()) == ""
    markdown = (written / "diff.md").read_text()
    assert unsafe(markdown) == ""
    found = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    texts = ["".join(child.content for child in token.children or ()) for token in found]
    assert any(SHOWN in text for text in texts)


def test_findings_quote_what_a_file_says(decodescope: Command, tmp_path: Path) -> None:
    export = Export()
    export.call(0, 10, 1)
    export.kernel(20, 30, 1, name=HOSTILE)
    export.span(0, 40, HOSTILE)
    export.add("DIAGNOSTIC_EVENT", timestamp=1, severity=3, text=HOSTILE)
    export.add("TARGET_INFO_GPU", vmId=0, id=0, name=HOSTILE)
    path = export.write(tmp_path / "report.sqlite")
    done = decodescope("analyze", str(path))
    assert (done.code, unsafe(done.out)) == (0, "")
    assert done.out.count(SHOWN) >= 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", f"no{FILE}"), ("analyze", FILE), ("open", f"no{FILE}"), (f"bench{FILE}",),
        ("analyze", "--by", HOSTILE, "x"), ("bench", HOSTILE), ("analyze", f"--by={HOSTILE}"),
        ("run", "--variant", HOSTILE, "--device", "cpu"), ("run", "--model", HOSTILE),
        ("run", "--prompt-ids", HOSTILE), ("compare", "--variants", f"eager,{HOSTILE}"),
        ("diff", FILE, FILE), ("export", FILE, "--to", "csv", "-o", f"no/{FILE}"),
        ("compare", "--variants", "eager,eager", "--text", f"no{FILE}"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_that_names_what_it_is_about(
    decodescope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text(HOSTILE)
    done = decodescope(*arguments)
    assert done.code in (2, 3)
    assert unsafe(done.only_line) == ""
    assert r"=cmd|:fire:\x1b]0;owned\x07\x1b[31m\x9b2J\u202e" in done.only_line
    assert "[/][bold]" in done.only_line or "[][bold]" in done.only_line


@pytest.mark.parametrize("key", ["model_type", "architectures", "torch_dtype", "hidden_act"])
def test_a_checkpoint_cannot_write_to_the_terminal(
    decodescope: Command, tmp_path: Path, key: str
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    config[key] = [HOSTILE] if key == "architectures" else HOSTILE
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    done = decodescope("run", "--model", str(tmp_path), "--device", "cpu", "--debug")
    assert done.code in (2, 3)
    assert unsafe(done.out + done.err) == ""
    assert "\nTraceback" in f"\n{done.err}"


def test_a_recording_with_hostile_strings(decodescope: Command, tmp_path: Path) -> None:
    recording = tmp_path / FILE.replace(".json", ".dsrec")
    os.link(bundled_recordings()[0], recording)
    done = decodescope("analyze", str(recording))
    assert (done.code, unsafe(done.out)) == (0, "")
    assert FILE_SHOWN.removesuffix(".json") in done.out
    recording.unlink()
    recording.write_bytes(msgspec.json.encode(HOSTILE))
    line = decodescope("analyze", str(recording)).only_line
    assert unsafe(line) == ""
