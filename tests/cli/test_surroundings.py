"""The surroundings that a shell gives a command are input: the size of the terminal, and the
working folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command import Command

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests" / "data" / "cpu_two_blocks.json.gz"


def decodescope_in(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "decodescope", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_size_that_is_none_leaves_the_output_as_it_is(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = decodescope("analyze", str(TRACE))
    assert "operator" in usual.out
    for size in ("0", "-5", "99999999", "9" * 5000, "abc", "", "\u0663"):
        monkeypatch.setenv("COLUMNS", size)
        monkeypatch.setenv("LINES", size)
        assert decodescope("analyze", str(TRACE)) == usual, size
    alone = decodescope_in(tmp_path, "analyze", str(TRACE), COLUMNS="0", LINES="abc")
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, usual.out, "")


def test_a_size_that_is_one_counts(tmp_path: Path) -> None:
    done = decodescope_in(tmp_path, "analyze", str(TRACE), COLUMNS="150")
    assert max(map(len, done.stdout.splitlines())) > 90
    assert decodescope_in(tmp_path, "--help", COLUMNS="99999999").returncode == 0


def test_a_working_folder_that_was_deleted(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    codes = {}
    for command in ("analyze", "open"):
        words = [sys.executable, "-m", "decodescope", command, str(TRACE)]
        words += ["--once"] if command == "open" else []
        done = subprocess.run(
            ["sh", "-c", script, "sh", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        codes[command] = done.returncode
    assert codes == {"analyze": 0, "open": 2}
    assert done.stderr == "decodescope: the working folder was deleted; change to another one\n"
    assert list(tmp_path.iterdir()) == []
