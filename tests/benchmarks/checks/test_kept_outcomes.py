"""The outcomes of tests that an interrupted run keeps."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checks import gpu_tests
from benchmarks.checks.kept_outcomes import begin, read_outcomes

TESTS = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2, "one is not two"
@pytest.fixture
def ends_badly():
    yield
    raise ValueError
def test_fails_at_its_end(ends_badly): pass
@pytest.mark.skip
def test_is_skipped(): pass
def test_is_interrupted(): raise KeyboardInterrupt
def test_comes_later(): pass
"""
MACHINE = {"commit": "abc", "gpus": 2}


def run(
    folder: Path, repository: Path, *arguments: str, tests: str = TESTS
) -> subprocess.CompletedProcess[str]:
    (folder / "test_them.py").write_text(tests)
    plugin = gpu_tests.pytest_options(folder / "kept")[:3]
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder))
    return subprocess.run(
        [sys.executable, *words, *plugin, *arguments, str(folder)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_the_tests_that_are_left(
    tmp_path: Path, repository: Path
) -> None:
    kept = tmp_path / "kept"
    assert begin(kept, MACHINE) == {}
    first = run(tmp_path, repository)
    assert first.returncode == 2
    assert "FAILED test_them.py::test_fails (call): AssertionError: one is not two" in first.stderr
    expected = {
        "test_them.py::test_passes": "passed",
        "test_them.py::test_fails": "failed",
        "test_them.py::test_fails_at_its_end": "failed",
        "test_them.py::test_is_skipped": "skipped",
    }
    assert begin(kept, MACHINE) == expected
    assert run(tmp_path, repository, "-k", "not interrupted", "-n", "2").returncode == 0
    assert read_outcomes(kept) == expected | {"test_them.py::test_comes_later": "passed"}


@pytest.mark.parametrize("processes", [[], ["-n", "2"]])
def test_a_file_that_cannot_be_imported_has_failed(
    processes: list[str], tmp_path: Path, repository: Path
) -> None:
    begin(tmp_path / "kept", MACHINE)
    done = run(tmp_path, repository, *processes, tests="import no_such_module")
    assert done.stderr.count("FAILED test_them.py (collection): ") == 1
    assert read_outcomes(tmp_path / "kept") == {"test_them.py": "failed"}


def test_pytest_takes_no_option_for_a_place_of_tests(tmp_path: Path) -> None:
    """It would configure itself from there."""
    (tmp_path / "kept").write_text("")
    assert not any(Path(word).exists() for word in gpu_tests.pytest_options(tmp_path / "kept"))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (MACHINE, MACHINE | {"commit": "abd"}),
        (MACHINE, MACHINE | {"gpus": 1}),
        (MACHINE | {"commit": "abc+"}, MACHINE | {"commit": "abc+"}),
        (MACHINE | {"commit": None}, MACHINE | {"commit": None}),
    ],
)
def test_a_run_of_other_code_or_on_another_machine_begins_anew(
    tmp_path: Path, first: dict[str, object], then: dict[str, object]
) -> None:
    kept = tmp_path / "kept"
    begin(kept, first)
    kept.write_text('["a", "passed"]\n')
    assert begin(kept, then) == {}


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    begin(kept, MACHINE)
    kept.write_text('["a", "passed"]\n["b", "fai')
    assert begin(kept, MACHINE) == {"a": "passed"}
    with kept.open("a") as file:
        file.write('["c", "failed"]\n')
    assert begin(kept, MACHINE) == {"a": "passed", "c": "failed"}


def test_after_a_complete_run_the_next_begins_anew(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    begin(kept, MACHINE)
    kept.unlink()
    assert begin(kept, MACHINE) == {}
    assert kept.read_text() == ""
