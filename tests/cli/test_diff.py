"""`diff` as scripts use it: several traces a side, and what is inconclusive."""

import json
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.schema.comparison_report import Diff
from tests.helpers.command import Command
from tests.helpers.kineto_events import call, document, op, span


def trace_file(path: Path, *periods_us: float) -> str:
    """Marked steps of 100 µs of GPU work each, one a period; the last period ends the trace."""
    events, at = [], 0
    for number, period_us in enumerate((*periods_us, 100.0)):
        events.append(span(at, at + 50_000, f"decode_step_{number}"))
        events.append(call(at + 1_000, at + 3_000, number + 1))
        events.append(op(at + 10_000, at + 110_000, number + 1, name="gemm_kernel"))
        at += round(period_us * 1_000)
    path.write_bytes(document(events))
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_a_longer_period_is_slower(decodescope: Command, folder: Path) -> None:
    base = trace_file(folder / "a.json", 200, 203, 199, 201, 200, 202)
    other = trace_file(folder / "b.json", 300, 304, 299, 301, 300, 303)
    answer = json.loads(decodescope("diff", base, other, "--json").out)["answer"]
    assert (answer["base_step_ns"], answer["other_step_ns"]) == (200_000, 300_000)
    assert answer["ratio"] == 1.5
    assert sum(part["change_ns"] for part in answer["parts"]) == 100_000


def test_what_is_inconclusive_is_said_on_stderr(decodescope: Command, folder: Path) -> None:
    base = trace_file(folder / "a.json", 200, 240, 180, 220)
    other = trace_file(folder / "b.json", 230, 280, 210, 250)
    done = decodescope("diff", base, other, "--json")
    assert done.code == 0
    message = done.err.strip()
    assert message.startswith("inconclusive: x1.150 (95 %: x")
    assert message.endswith("would decide it")
    assert "more steps of A and" in message
    assert decodescope("diff", base, base).err == ""


def test_sides_without_steps_are_inconclusive_in_every_output(
    decodescope: Command, folder: Path
) -> None:
    base = trace_file(folder / "a.json", 200, 203, 199)
    (folder / "b.json").write_bytes(document([op(0, 5_000, 1)]))
    for options in ([], ["--json"], ["--out", str(folder / "out")]):
        done = decodescope("diff", base, str(folder / "b.json"), *options)
        assert done.code == 0
        assert done.err.splitlines()[-1] == "inconclusive: no ratio: a side has no steps"


def test_several_traces_a_side(decodescope: Command, folder: Path) -> None:
    files = {
        name: [
            trace_file(folder / f"{name}{run}.json", *(ns * run_ns for ns in (1.0, 1.02, 0.99)))
            for run, run_ns in enumerate(runs)
        ]
        for name, runs in (("a", (200, 210, 205)), ("b", (300, 310, 305)))
    }
    for arguments in (
        (*files["a"], "--against", *files["b"], "--json"),
        ("--json", *files["a"], f"--against={files['b'][0]}", "--against", *files["b"][1:]),
        ("--against", *files["b"], "--json", *files["a"]),
    ):
        done = decodescope("diff", *arguments)
        assert done.code == 0, done.err
        answer = msgspec.json.decode(done.out, type=Diff).answer
        assert [trace.path for trace in answer.base_traces] == files["a"]
        assert [trace.path for trace in answer.other_traces] == files["b"]
        assert (answer.base_step_ns, answer.other_step_ns) == (205_000, 305_000)
        assert answer.verdict == "slower"
    out = folder / "out"
    done = decodescope("diff", *files["a"], "--against", *files["b"], "--out", str(out))
    assert "the median of 3 traces" in done.out
    page = (out / "diff.html").read_text()
    assert "A: a2.json" in page
    assert "a1.json" not in page


def test_sides_that_differ_have_no_verdict(decodescope: Command, folder: Path) -> None:
    base = trace_file(folder / "a.json", 200, 200)
    names = ("execute_context_0(0)_generation_4(4)", "execute_context_0(0)_generation_1(1)")
    files = []
    for name in names:
        path = folder / f"{name}.json"
        text = Path(base).read_text()
        for number in range(3):
            text = text.replace(f"decode_step_{number}", name)
        path.write_text(text)
        files.append(str(path))
    done = decodescope("diff", *files)
    assert done.out.startswith("A and B differ in batch 4 against 1: step 200 µs in A")
    assert done.err == "inconclusive: A and B differ in batch 4 against 1\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.json"], "give two traces, A and B"),
        (["a.json", "b.json", "c.json"], "give two traces, A and B"),
        (["a.json", "--against"], "--against needs at least one trace after it"),
        (["a.json", "--against", "--json"], "--against needs at least one trace after it"),
        (["--against", "b.json"], "Missing argument"),
        (["a.json", "a.json", "--against", "b.json"], "a.json: side A has it twice"),
        (["a.json", "--against", "b.json", "./b.json"], "b.json: side B has it twice"),
    ],
)
def test_sides_that_cannot_be_are_one_line_errors(
    decodescope: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(folder)
    for name in "abc":
        trace_file(folder / f"{name}.json", 200, 200)
    done = decodescope("diff", *arguments)
    assert done.code == 2
    assert words in done.err
    assert done.out == ""
