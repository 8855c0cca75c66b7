"""The benchmark that ends commands by signals: it sees what is late, half written or left."""

import gzip
import signal
from io import BytesIO
from pathlib import Path

import pytest

from benchmarks.checks.endings.cases import Case
from benchmarks.checks.endings.command import Ended, ended, problems, summary
from benchmarks.checks.endings.leavings import left, not_whole
from benchmarks.checks.endings.trial import Trial
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.readers.trace_entry import EntryOrigin, NewEntry
from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.kineto_events import document, op
from tests.helpers.scripted import write_trace


def _columns() -> bytes:
    written = BytesIO()
    trace = read_kineto_bytes(document([op(1, 2, 1)]), "a.json")
    NewEntry(EntryOrigin(b"", b"", (0,) * 5), trace).write(written)
    return written.getvalue()


PAGE = b"<html><body></body></html>\n"
WHOLE = {
    "a.json": b'{"a": 1}\n',
    "a.json.gz": gzip.compress(b'{"a": 1}\n', mtime=0),
    "a.html": PAGE,
    "a.csv": b"kernel,ns\na,1\n",
    "a.xml": b"<testsuite></testsuite>\n",
    "a.columns": _columns(),
    "a.dsrec": bundled_recordings()[0].read_bytes(),
}
CASE = Case("export", ("export",), ("a.csv", "out/b.json"))


def trial(gone_s: float = 0.1, code: int = 143, printed: str = "") -> Trial:
    return Trial(0.5, 1, False, gone_s, code, printed)


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_was_cut_is_not_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert not_whole(path) == ""
    path.write_bytes(WHOLE[name])
    assert not_whole(path) == ""
    # The last columns of an entry are empty.
    path.write_bytes(WHOLE[name][: -600 if name == "a.columns" else -3])
    assert not_whole(path).startswith(f"{name}: ")


def test_what_is_no_output_is_left(tmp_path: Path) -> None:
    folder, temporary = tmp_path / "work", tmp_path / "temporary"
    for path in (folder / "out", temporary / "decodescope-x.tmp"):
        path.mkdir(parents=True)
    for name in ("a.csv", "out/b.json", "out/trace.json.gz", "r.dsrec.partial"):
        (folder / name).touch()
    assert left(folder, temporary, CASE.outputs) == ["decodescope-x.tmp"]
    for name in ("c.csv", "out/.decodescope-01234567.part", "../cache/.decodescope-4567.part"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    outputs = (*CASE.outputs, "../cache/*.columns")
    assert sorted(left(folder, temporary, outputs)) == [
        ".decodescope-01234567.part",
        ".decodescope-4567.part",
        "c.csv",
        "decodescope-x.tmp",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (trial(), []),
        (trial(2.5), ["at 0.50 s: gone after 2.5 s: ''"]),
        (trial(9.0, printed="being compared; another signal ends it at once"), []),
        (trial(code=70, printed="a fault"), ["at 0.50 s: exit code 70: 'a fault'"]),
        (trial(code=-signal.SIGTERM), []),
    ],
)
def test_a_command_that_ends_late_or_otherwise_is_a_problem(
    tmp_path: Path, seen: Trial, said: list[str]
) -> None:
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    assert list(problems(CASE, seen, signal.SIGTERM, work, temporary)) == said


def test_a_summary_has_every_trial_and_every_problem() -> None:
    results = [
        Ended(CASE, 1.0, [trial(0.1), trial(0.3)], ["late"]),
        Ended(Case("run", ("run", "/a/b.json")), 2.0, [trial(0.2, -9)]),
    ]
    found = summary(results)
    assert (found["trials"], found["longest_s"], found["median_s"]) == (3, 0.3, 0.2)
    assert found["problems"] == ["export: late"]
    assert found["commands"]["run"]["arguments"] == "run b.json"
    assert found["commands"]["export"]["codes"] == {"143": 2}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_commands_that_are_ended_leave_whole_files_and_nothing_else(
    tmp_path: Path, number: signal.Signals
) -> None:
    trace = write_trace(tmp_path / "a.json")
    compared = tuple(f"out/diff.{suffix}" for suffix in ("json", "md", "html"))
    case = Case("diff", ("diff", str(trace), str(trace), "--out", "out"), compared, times=2)
    result = ended(case, number, 1, tmp_path / "place", "1")
    assert len(result.trials) == 2
    assert result.problems == []
