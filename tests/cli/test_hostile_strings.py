"""Every command on traces and arguments whose every string is hostile: it shows them, no more."""

import contextlib
import io
import itertools
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import RenderableType

from decodescope.analyzer import analyze
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.protocol.messages import VariantInfo
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import Finding, Health, Report
from decodescope.analyzer.schema.step_report import InterruptionReport
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_table import comparison_table
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.views.run_table import run_table
from decodescope.cli.output import library_output_to_stderr, print_table, progress, say
from decodescope.cli.streams import Messages
from decodescope.variants.listings import Check, checks_table, variants_table
from tests.helpers.command import Command
from tests.helpers.comparison_reports import run_of
from tests.helpers.foreign.layered import interrupted, slow_layered
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.hostile import (
    FILE,
    FILE_SHOWN,
    HOSTILE,
    OWN_SEQUENCES,
    SHOWN,
    anything,
    hostile_trace,
    unsafe,
)
from tests.helpers.html_samples import sample_analysis, sample_comparison
from tests.helpers.rich_report import rich_report

DATA = ("--json", "--format csv", "--format html")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide enough for every name."""
    monkeypatch.setenv("COLUMNS", "600")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return hostile_trace(tmp_path / FILE)


@pytest.mark.parametrize("options", [(), ("--show", "all")])
def test_tables_show_every_name(decodescope: Command, trace: str, options: tuple[str, ...]) -> None:
    done = decodescope("analyze", trace, *options)
    assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
    head, lines = "\n".join(done.out.splitlines()[:6]), done.out.splitlines()
    assert FILE_SHOWN in head
    assert f"device: {SHOWN} (GPU 0)" in head
    assert f"{SHOWN} (random weights) · {SHOWN} · {SHOWN} · batch 1" in head
    if options:
        assert any(line.startswith(f"  {SHOWN}  ") or f"/{SHOWN}  " in line for line in lines)
    assert any(line.startswith(f"second{SHOWN}  ") for line in lines)


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


@pytest.mark.parametrize("columns", ["60", "120"])
def test_layers_roles_and_interruptions_with_hostile_kernels(
    decodescope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    path = str(tmp_path / FILE)
    export_chrome(analyze(interrupted(slow_layered(HOSTILE))), path)
    monkeypatch.setenv("COLUMNS", columns)
    for options in ("", "--show all", *DATA, "--format csv --by range"):
        done = decodescope("analyze", path, *options.split())
        assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
        if options.startswith("--show"):
            assert "2 layers (" in done.out
            assert "Interruptions" in done.out
    out = tmp_path / "again.json"
    assert decodescope("export", path, "--to", "chrome", "-o", str(out)).code == 0
    categories = {event.get("cat") for event in json.loads(out.read_bytes())["traceEvents"]}
    assert {"inferred_range", "interruption"} <= categories


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
    done = decodescope("analyze", str(path), "--show", "all")
    assert (done.code, unsafe(done.out)) == (0, "")
    assert done.out.count(SHOWN) >= 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", f"no{FILE}"),
        ("analyze", FILE),
        ("open", f"no{FILE}"),
        (f"run{FILE}",),
        ("analyze", "--by", HOSTILE, "x"),
        ("config", HOSTILE),
        ("analyze", f"--show={HOSTILE}", "x"),
        ("run", "--variant", HOSTILE, "--device", "cpu"),
        ("run", "--model", HOSTILE),
        ("run", "--prompt-ids", HOSTILE),
        ("compare", "--variants", f"eager,{HOSTILE}"),
        ("diff", FILE, FILE),
        ("export", FILE, "--to", "csv", "-o", f"no/{FILE}"),
        ("compare", "--variants", "eager,eager", "--text", f"no{FILE}"),
    ],
)
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


def with_names(report: Report, names: Iterator[str]) -> Report:
    """`report` with the next names in place of all those that a trace chooses."""
    return replace(
        report,
        source=replace(report.source, path=next(names)),
        capture=replace(report.capture, model=next(names), variant=next(names)),
        devices=tuple(replace(device, name=next(names)) for device in report.devices),
        kernels=tuple(replace(kernel, name=next(names)) for kernel in report.kernels),
        ranges=tuple(replace(found, path=next(names)) for found in report.ranges),
        steps=tuple(replace(step, name=next(names)) for step in report.steps),
        interruptions=(InterruptionReport(0, 5_000, next(names), "allocation", next(names), 0, 0),),
        largest_gaps=tuple(
            replace(gap, prev=next(names), next=next(names), range=next(names))
            for gap in report.largest_gaps
        ),
    )


REPORT = rich_report()


def table_of(names: Iterator[str], show: Collection[str]) -> str:
    """The table of `REPORT` with these names, 80 cells wide."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        mock.patch.dict(os.environ, COLUMNS="80"),
    ):
        print_table(with_names(REPORT, names), partial(report_table, show=show))
    return out.getvalue()


wide_names = st.text("漢<ab ", min_size=40)


@settings(max_examples=20)
@given(
    st.lists(anything | wide_names, min_size=1),
    st.sampled_from([("kernels",), ("ranges",), ("gaps",)]),
)
def test_any_names_make_a_table(names: list[str], show: tuple[str]) -> None:
    text, simple = table_of(itertools.cycle(names), show), table_of(itertools.repeat("x"), show)
    assert unsafe(text, "[\u200c\u200d]") == ""
    assert "".join(plain_line(names[0])[:6].split()) in "".join(text.split())
    assert max(map(cell_len, text.splitlines())) <= 80
    assert len(text.splitlines()) >= len(simple.splitlines())
    figures, expected = (re.findall(r"\d+\.\d\d [µn]s", one) for one in (text, simple))
    assert len(figures) >= len(expected)


CHECKS = (Check(HOSTILE, "fail", HOSTILE, HOSTILE),)
VARIANTS = (VariantInfo(HOSTILE, HOSTILE, HOSTILE),)
RUN = run_of(
    HOSTILE,
    0,
    9.5,
    model=HOSTILE,
    device_name=HOSTILE,
    dtype=HOSTILE,
    output_text=f"one\n\t{HOSTILE}\nthree",
    answer=Answer(because=(HOSTILE,), next=(HOSTILE,)),
    health=Health("degraded", 0, (Finding("code", HOSTILE),)),
    environment={HOSTILE: HOSTILE},
)
COMPARISON = sample_comparison(sample_analysis(names=(HOSTILE,)).report, HOSTILE)


@pytest.mark.parametrize(
    ("result", "table", "times"),
    [
        (CHECKS, checks_table, 3),
        (VARIANTS, partial(variants_table, device="cpu"), 3),
        (RUN, run_table, 5),
        (COMPARISON, comparison_table, 5),
    ],
    ids=["doctor", "variants", "run", "compare"],
)
def test_every_other_table(
    capsys: pytest.CaptureFixture[str],
    result: object,
    table: Callable[[object], RenderableType],
    times: int,
) -> None:
    print_table(result, table)
    text = capsys.readouterr().out
    assert unsafe(text) == ""
    whole = re.sub(r"\s+", "", text)
    assert whole.count(SHOWN[:16]) >= times
    if result is RUN:
        assert "\none\n    [/][bold]=cmd" in text
        assert text.endswith("row[link=https://x.example]y[/link]<b>`\nthree\n")


@given(st.lists(anything))
def test_messages_are_plain_whoever_writes_them(texts: list[str]) -> None:
    styled = io.StringIO()
    messages = Messages(styled)
    for text in texts:
        assert messages.write(text) == len(text)
    assert unsafe(styled.getvalue(), "[\u200c\u200d]") == ""
    assert styled.getvalue().encode()[:1] or not any(texts)


def test_libraries_stages_and_logs_under_a_spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a library's lines stand above the spinner, as plain as ours."""
    ours, theirs = os.openpty()
    read: list[bytes] = []
    reader = threading.Thread(target=_read_to_end, args=(ours, read))
    reader.start()
    with open(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", Messages(terminal))
        with progress() as show, library_output_to_stderr():
            show(HOSTILE)
            print(f"printed {HOSTILE}")  # noqa: T201
            sys.stderr.write(f"written {HOSTILE}\n")
            logging.StreamHandler().emit(
                logging.LogRecord("name", logging.WARNING, "", 0, f"logged {HOSTILE}", (), None)
            )
            say(f"said {HOSTILE}")
    reader.join()
    text = b"".join(read).decode()
    assert unsafe(text, OWN_SEQUENCES) == ""
    for who in ("printed", "written", "logged", "said"):
        assert f"{who} [/][bold]=cmd|:fire:\\x1b]0;owned" in text.replace("\r\n", "")


def _read_to_end(descriptor: int, into: list[bytes]) -> None:
    # The end of a pseudo-terminal is an error on Linux.
    with contextlib.suppress(OSError):
        while data := os.read(descriptor, 1 << 16):
            into.append(data)
    os.close(descriptor)
