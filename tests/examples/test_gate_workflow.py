"""The example workflow of a gate: its steps run, and fail where the decode step is slower."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_diff import trace_file
from tests.cli.test_gate import SLOWER, STEADY


@pytest.fixture(scope="module")
def steps(repository: Path) -> dict[str, str]:
    """The commands of each step of the workflow, by its name."""
    text = (repository / "examples" / "gate.yml").read_text()
    found = re.findall(r"- name: (.+)\n(?: +if: .+\n)? +run: (?:>\n)?((?:.+\n)+?)(?=\n|\Z)", text)
    return {name: " ".join(command.split()) for name, command in found}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a `decodescope`, and a `profile.sh` that copies made traces."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "bin").mkdir()
    trace_file(tmp_path / "main.json", *STEADY)
    trace_file(tmp_path / "slow.json", *SLOWER)
    scripts = {
        "bin/decodescope": f'exec {sys.executable} -m decodescope "$@"',
        "profile.sh": 'gzip -c "$BRANCH.json" > "$1"',
    }
    for name, body in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(step: str, folder: Path, branch: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "BRANCH": branch,
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_slower_branch_fails_and_main_passes(steps: dict[str, str], checkout: Path) -> None:
    assert list(steps) == ["Five traces", "Gate", "New baseline"]
    assert run(steps["Five traces"], checkout, "main").returncode == 0
    assert run(steps["New baseline"], checkout, "main").returncode == 0
    passed = run(steps["Gate"], checkout, "main")
    assert passed.returncode == 0, passed.stderr
    assert run(steps["Five traces"], checkout, "slow").returncode == 0
    failed = run(steps["Gate"], checkout, "slow")
    assert failed.returncode == 1
    assert "::error title=decodescope gate::step: 200 µs → 240 µs" in failed.stdout
    assert "beyond 2 %" in (checkout / "summary.md").read_text()
    assert "<failure" in (checkout / "gate.xml").read_text()
