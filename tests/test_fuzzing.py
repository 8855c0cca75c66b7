"""The fuzzer: the same cases everywhere, and no fault that it would not notice."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.errors import InputError
from tests.fuzzing import corpus
from tests.fuzzing.case import Case
from tests.fuzzing.checks import check_end, check_files, check_output
from tests.fuzzing.faulty import CASES, SEED, hash_of_cases
from tests.fuzzing.kinds import KINDS, case_of, kind_of
from tests.fuzzing.record import Record
from tests.fuzzing.workers import Result
from tests.helpers.command import Done

Process = subprocess.CompletedProcess[str]
ANALYZE = Case(("analyze", "a.json", "--json"), {"a.json": b"{}"})
FAULTS = {
    "import sys; sys.exit(0)": "0 ",
    "import time; time.sleep(60)": "None took over 3 s",
    "import os; os._exit(9)": "None the process ended with 9",
    "import os; os._exit(0)": "None the process ended with 0",
    # A process of its own keeps the pipe for its results open.
    "import os, time; os.fork() or time.sleep(8); os._exit(7)": "None the process ended with 7",
    "import os; os.abort()": "None the process ended with -6",
    "print(chr(27), flush=True); sys.exit(0)": "0 AssertionError: control character",
    "sys.exit(70)": "70 AssertionError: exit code 70",
    "sys.exit(1)": "1 AssertionError: no error line",
    "bytearray(1 << 40)": "None MemoryError",
    "open('left', 'w'); sys.exit(0)": "0 AssertionError: left was left",
}


@pytest.fixture(scope="module")
def another_process(repository: Path) -> Process:
    """One that ran the faulty cases, and then those of the script."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzzing.faulty", *FAULTS],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_case_is_the_same_in_another_process(another_process: Process) -> None:
    assert case_of(7, 0) != case_of(8, 0)
    assert another_process.stdout.splitlines()[0] == hash_of_cases()


@pytest.mark.slow
def test_faults_are_found_and_the_next_cases_run(another_process: Process) -> None:
    lines = another_process.stdout.splitlines()[2:][: len(FAULTS)]
    found = dict(line.split(" -> ") for line in lines)
    assert list(found) == list(FAULTS), "results are in the order of the cases"
    assert {body: found[body][: len(end)] for body, end in FAULTS.items()} == FAULTS


@pytest.mark.slow
def test_no_result_is_lost_when_a_late_process_is_killed(another_process: Process) -> None:
    assert another_process.stdout.splitlines()[1] == "arrived [0, 1, 2, 3, 4]"


@pytest.mark.slow
def test_cases_of_every_kind_hold(another_process: Process) -> None:
    assert another_process.returncode == 0, another_process.stderr
    assert f"{CASES} cases" in another_process.stderr
    assert {kind_of(SEED, number) for number in range(CASES)} == KINDS.keys()


@pytest.mark.parametrize(
    "done",
    [
        Done(70, "", "decodescope: KeyError: 'x'\n"),
        Done(1, "", "decodescope: no such file\n"),
        Done(2, "", ""),
        Done(2, "", "decodescope: \x1b[31m: no such file\n"),
        Done(0, "", "Traceback (most recent call last):\n"),
        Done(3, "", "decodescope: out of memory\n"),
    ],
)
def test_an_end_that_should_not_be_is_a_failure(done: Done) -> None:
    with pytest.raises(AssertionError):
        check_end(ANALYZE, done)


@pytest.mark.parametrize("out", ["", "{}", '{"schema_version":1}'])
def test_output_that_is_no_report_is_a_failure(out: str) -> None:
    with pytest.raises((msgspec.MsgspecError, AssertionError)):
        check_output(ANALYZE, Done(0, out, ""))


def test_a_changed_input_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    check_files(ANALYZE, tmp_path)
    (tmp_path / "a.json").write_bytes(b"")
    with pytest.raises(AssertionError, match=r"a\.json was changed"):
        check_files(ANALYZE, tmp_path)


def test_a_failed_case_is_kept_and_runs_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "_FOLDER", tmp_path / "corpus")
    corpus.corpus.cache_clear()
    failed = Case(("analyze", "\udc80"), {"a": b"\x00\xff"}, frames=((True, b"[]"),))
    corpus.keep(failed)
    assert corpus.corpus() == (failed,)
    assert (case_of(7, -1), kind_of(7, -1)) == (failed, "corpus")
    corpus.corpus.cache_clear()


def test_a_run_goes_on_where_its_record_ends(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    first = Record.read(path, 5, "ranks", resume=True)
    numbers = first.numbers(3)
    first.next = numbers[-1] + 1
    first.add([Result(number, "ranks", 0, "", 0.5) for number in numbers], 2.0)
    first.write(path)
    again = Record.read(path, 5, "ranks", resume=True)
    (number,) = again.numbers(1)
    assert number > numbers[-1]
    again.add([Result(number, "ranks", None, "a fault", 0.5)], 1.0)
    assert (again.cases, again.failed, again.seconds) == (4, 1, 3.0)
    assert again.kinds["ranks"]["exit_codes"] == {"0": 3, "None": 1}
    assert [run["cases"] for run in again.runs] == [3, 1]
    assert again.runs[0]["environment"] == json.loads(path.read_bytes())["environment"]
    assert (again.failures, again.kinds["ranks"]["failed"]) == ([number], 1)
    again.mend([Result(number, "ranks", 2, "", 0.1)])
    assert (again.cases, again.failed, again.mended, again.failures) == (4, 0, 1, [])
    assert again.kinds["ranks"]["failed"] == 0
    with pytest.raises(InputError, match="of seed 5"):
        Record.read(path, 6, "ranks", resume=True)
    assert Record.read(path, 6, "ranks", resume=False).cases == 0
