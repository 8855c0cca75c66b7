"""The launcher of ranks on this machine."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import rank_stub
from tests.helpers.processes import PATIENCE_S, gone

ROOT = Path(__file__).resolve().parents[3]


def _launched(action: str, folder: Path) -> "subprocess.Popen[str]":
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-c",
            "import torch, sys; from decodescope.variants.parallel.launcher import launch; "
            "sys.exit(launch(2, 'tests.helpers.rank_stub', sys.argv[1:]))",
            action,
            str(folder),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _processes(folder: Path) -> list[int]:
    deadline_s = time.monotonic() + PATIENCE_S
    while not all((folder / str(rank)).exists() for rank in range(2)):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    return [int((folder / str(rank)).read_text()) for rank in range(2)]


@pytest.mark.parametrize(
    ("action", "code", "says"),
    [
        ("end", 0, ""),
        ("say", 2, rank_stub.SAYS),
        # Rank 0 is stopped, and so does not end when it is asked to.
        ("stop", 2, rank_stub.SAYS),
        ("kill", 3, "decodescope: rank 1 of 2 (process {1}) was killed by SIGKILL"),
        (
            "exit",
            1,
            "decodescope: rank 1 of 2 (process {1}) ended with exit code 1; its last output: no "
            "module of this name",
        ),
    ],
)
def test_one_line_names_the_rank_and_none_is_left(
    tmp_path: Path, action: str, code: int, says: str
) -> None:
    process = _launched(action, tmp_path)
    out, err = process.communicate(timeout=PATIENCE_S)
    ranks = _processes(tmp_path)
    assert process.returncode == code
    assert err == (says.format(*ranks) + "\n" if says else "")
    assert out == "rank 0 of 2\n"
    assert all(map(gone, ranks))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_ranks_end_with_their_launcher(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = _launched("wait", tmp_path)
    ranks = _processes(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert err == ""
    assert all(map(gone, ranks))
