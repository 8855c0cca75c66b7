"""`gate` and `baseline` as scripts use them: files, exit codes, and what is refused."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.schema.gate_report import Baseline, GateReport
from tests.cli.test_diff import trace_file
from tests.helpers.command import Command
from tests.helpers.comparison_reports import runs_of

STEADY = (200, 203, 199, 201, 200, 202)
SLOWER = (240, 243, 239, 241, 240, 242)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    trace_file(tmp_path / "a.json", *STEADY)
    trace_file(tmp_path / "b.json", *SLOWER)
    return tmp_path


@pytest.fixture
def saved(decodescope: Command, folder: Path) -> Path:
    assert decodescope("baseline", "save", "main", "a.json").code == 0
    return folder / ".decodescope" / "baselines" / "main.json"


@pytest.mark.usefixtures("saved")
def test_a_slower_step_fails_and_an_equal_one_passes(decodescope: Command) -> None:
    done = decodescope("gate", "--baseline", "main", "b.json", "--allow", "5")
    assert done.code == 1
    assert done.error_line.startswith(
        "decodescope: slower than main: step: 200 µs → 240 µs, x1.200 (95 %: x"
    )
    assert "allowed are 5 %" in done.error_line
    passed = decodescope("gate", "--baseline", "main", "a.json", "--allow", "5", "--json")
    assert passed.code == 0
    report = msgspec.json.decode(passed.out, type=GateReport)
    assert report.verdict == "within"
    assert [row.part for row in report.rows[:2]] == [None, "matmul"]
    assert decodescope("gate", "--baseline", "main", "b.json", "--allow", "25%").code == 0


@pytest.mark.usefixtures("saved")
def test_noise_passes_with_a_line_and_fails_only_if_strict(decodescope: Command) -> None:
    done = decodescope("gate", "--baseline", "main", "a.json")
    assert done.code == 0
    assert "step: 200 µs → 200 µs, x1.000 (95 %: x" in done.err
    strict = decodescope("gate", "--baseline", "main", "a.json", "--strict", "--junit", "g.xml")
    assert strict.code == 4
    assert ElementTree.parse("g.xml").getroot().get("skipped") == "1"
    assert strict.error_line.startswith("decodescope: step: 200 µs")


@pytest.mark.usefixtures("saved")
def test_every_output_says_what_failed(decodescope: Command, folder: Path) -> None:
    options = ("--allow", "5", "--allow", "matmul=1", "--github")
    files = ("--markdown", "gate.md", "--junit", "gate.xml")
    done = decodescope("gate", "--baseline", "main", "b.json", *options, *files)
    assert done.code == 1
    (annotation, *_) = [line for line in done.out.splitlines() if line.startswith("::")]
    assert annotation.startswith("::error title=decodescope gate::step: 200 µs → 240 µs")
    assert "5 %25" in annotation
    assert "beyond 5 %" in (folder / "gate.md").read_text()
    suite = ElementTree.fromstring((folder / "gate.xml").read_text())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "200 µs → 240 µs" in failure.get("message", "")


def test_baselines_are_listed_shown_replaced_and_removed(decodescope: Command, saved: Path) -> None:
    assert decodescope("baseline", "save", "other", "b.json", "--model", "none").code == 0
    assert decodescope("baseline", "list").out == "main\nother\n"
    assert json.loads(decodescope("baseline", "list", "--json").out) == ["main", "other"]
    assert "200 µs" in decodescope("baseline", "show", "main").out
    shown = decodescope("baseline", "show", "other", "--json").out
    before = msgspec.json.decode(shown, type=Baseline)
    assert before.subjects[0].samples[0].path == "b.json"
    assert decodescope("baseline", "save", "other", "a.json").code == 0
    assert "200 µs" in decodescope("baseline", "show", "other").out
    assert decodescope("baseline", "remove", "other").code == 0
    assert decodescope("baseline", "list").out == "main\n"
    assert [path.name for path in saved.parent.iterdir()] == ["main.json"]


def test_comparisons_are_gated_by_variant(decodescope: Command, folder: Path) -> None:
    for name, rate in (("old", 600.0), ("new", 500.0)):
        rates = {"eager": [100.0, 101.0, 99.0], "fused": [rate, rate + 1, rate - 1]}
        comparison = compare_runs(runs_of(rates), {})
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(comparison))
    assert decodescope("baseline", "save", "c", "old.json").code == 0
    done = decodescope("gate", "--baseline", "c", "new.json", "--allow", "5")
    assert done.code == 1
    assert "slower than c: fused: 1.67 ms → 2.00 ms, x1.200" in done.error_line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "no baseline"),
        (b"[" * 100_000, "no baseline"),
        (b"\xff\x00", "no baseline"),
        (b'{"baseline_version":1,"name":"\xe5x","saved_at":"","subjects":[]}', "no baseline"),
        (b'{"baseline_version": 9}', "a baseline of version 9, this decodescope reads 1"),
        (b'{"baseline_version":1,"name":"n","saved_at":"","subjects":[]}', "without samples"),
        (
            b'{"baseline_version":1,"name":"n","saved_at":"","subjects":[{"name":"step",'
            b'"conditions":{},"samples":[{"path":"","step_times_ns":[-1],"part_times_ns":{}}]}]}',
            "a time that cannot be",
        ),
        (
            b'{"baseline_version":1,"name":"n","saved_at":"","subjects":[{"name":"step",'
            b'"conditions":{},"samples":[{"path":"","step_times_ns":[],"part_times_ns":{}}]}]}',
            "a sample without times",
        ),
    ],
)
def test_a_broken_baseline_is_one_line(
    decodescope: Command, saved: Path, content: bytes, words: str
) -> None:
    saved.write_bytes(content)
    for command in (("gate", "--baseline", "main", "a.json"), ("baseline", "show", "main")):
        done = decodescope(*command)
        assert done.code == 2
        assert words in done.only_line
        assert "save it again" in done.only_line


def test_a_baseline_with_a_subject_twice_is_broken(decodescope: Command, saved: Path) -> None:
    baseline = msgspec.json.decode(saved.read_bytes(), type=Baseline)
    twice = msgspec.structs.replace(baseline, subjects=baseline.subjects * 2)
    saved.write_bytes(msgspec.json.encode(twice))
    line = decodescope("gate", "--baseline", "main", "a.json").only_line
    assert "main.json: a subject twice; save it again" in line


def test_a_copy_of_a_baseline_has_the_name_of_its_file(decodescope: Command, saved: Path) -> None:
    saved.with_name("release.json").write_bytes(saved.read_bytes())
    assert "slower than release" in decodescope("gate", "--baseline", "release", "b.json").err
    assert "baseline release, saved" in decodescope("baseline", "show", "release").out


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "main.json: not a regular file"),
        (os.mkdir, "main.json: Is a directory; remove it"),
        (lambda path: path.symlink_to("nowhere"), "main.json: No such file or directory; remove"),
        (lambda path: path.symlink_to("main.json"), "main.json: Too many levels of symbolic link"),
    ],
)
def test_a_baseline_that_is_no_file_is_one_line(
    decodescope: Command, saved: Path, make: Callable[[Path], object], words: str
) -> None:
    saved.unlink()
    make(saved)
    assert words in decodescope("gate", "--baseline", "main", "a.json").only_line
    assert decodescope("baseline", "list").out == "main\n"
    if not saved.is_dir():
        assert decodescope("baseline", "remove", "main").code == 0
        assert decodescope("baseline", "list").out == ""


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gate", "--baseline", "mian", "a.json"], "no baseline mian in .*: did you mean main"),
        (["gate", "--baseline", "../a", "a.json"], "baseline ../a: is no name"),
        (["baseline", "save", "a/b", "a.json"], "baseline a/b: is no name"),
        (["baseline", "remove", "zzz"], "no baseline zzz in .*: there are main"),
        (["gate", "--baseline", "main", "a.json", "./a.json"], "is given twice"),
        (["gate", "--baseline", "main", "a.json", "--allow", "x"], "--allow x: not a percentage"),
        (["gate", "--baseline", "main", "a.json", "--allow", "o=nan"], "not a percentage"),
        (["gate", "--baseline", "main", "a.json", "--allow", "rope=1"], "no such part; there are"),
        (["gate", "--baseline", "main", "a.json", "--junit", "a.json"], "is the input a.json"),
        (["gate", "--baseline", "main", "no.json"], "no.json"),
        (["gate", "--baseline", "main", "a.json", "--github", "--json"], "not with --json"),
        (["baseline", "list", "--folder", "a.json"], "--folder a.json: Not a directory"),
        (["baseline", "save", "x", "a.json", "--folder", "a.json"], "a.json"),
    ],
)
def test_bad_usage_is_one_line(decodescope: Command, arguments: list[str], words: str) -> None:
    done = decodescope(*arguments)
    assert done.code == 2
    assert re.search(words, done.only_line), done.only_line


@pytest.mark.usefixtures("saved")
def test_a_trace_of_another_kind_of_step_is_refused(decodescope: Command, folder: Path) -> None:
    text = (folder / "a.json").read_text()
    for number in range(7):
        text = text.replace(f"decode_step_{number}", "execute_context_0(0)_generation_4(4)")
    (folder / "four.json").write_text(text)
    saved = decodescope("baseline", "save", "four", "four.json")
    assert saved.code == 0
    prefill = text.replace("context_0(0)_generation_4(4)", "context_4(512)_generation_0(0)")
    (folder / "prefill.json").write_text(prefill)
    for name in ("four", "main"):
        refused = decodescope("gate", "--baseline", name, "prefill.json")
        assert refused.code == 2
        assert f"baseline {name}: differs in decode steps against prefill" in refused.only_line
    mixed = decodescope("baseline", "save", "mixed", "four.json", "prefill.json")
    assert "prefill.json: differs from four.json in decode steps against" in mixed.only_line
    one = text.replace("generation_4(4)", "generation_1(1)")
    (folder / "one.json").write_text(one)
    done = decodescope("gate", "--baseline", "four", "one.json")
    assert done.code == 2
    assert "baseline four: differs in batch 4 against 1" in done.only_line
    assert decodescope("gate", "--baseline", "four", "one.json", "--accept", "batch").code == 0
