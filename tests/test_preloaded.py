"""Processes that need torch are forks of one that has it, which start as Python starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.link.worker import WorkerLink
from decodescope.variants.comparing.job_process import WORKER
from tests.helpers.preloaded import needs_torch

CONFIG = WorkerConfig(variant="eager", batch=1, tokens=4, model="tiny")


@pytest.mark.parametrize("command", [WORKER, WorkerLink(CONFIG)._argv, ComparisonLink()._argv])
def test_the_workers_are_forks(command: tuple[str, ...]) -> None:
    assert command[0] == sys.executable
    assert needs_torch(command[1:])


CODE = "import runpy; runpy.run_module('decodescope', run_name='__main__')"


@pytest.mark.parametrize(
    ("flags", "imports"), [(["-P", "-m"], False), (["-m"], True), (["-P", "-c"], False)]
)
def test_a_fork_imports_from_its_folder_as_python_does(
    flags: list[str], imports: bool, tmp_path: Path
) -> None:
    (tmp_path / "rich_click.py").write_text("open('imported', 'w').close()")
    what = CODE if "-c" in flags else "decodescope"
    command = [sys.executable, *flags, what, "run", "--help"]
    assert needs_torch(command[1:])
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "imported").exists() == imports


def test_temporary_files_of_a_fork_are_where_its_environment_says(tmp_path: Path) -> None:
    code = "import torch, tempfile; print(tempfile.gettempdir())"
    command = [sys.executable, "-c", code]
    assert needs_torch(command[1:])
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    assert subprocess.check_output(command, env=environment, text=True).strip() == str(tmp_path)
