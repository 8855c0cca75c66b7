"""The commit of a checkout, against git and a checkout made for it."""

import subprocess
from pathlib import Path

import pytest

from decodescope.analyzer.machine import provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_this_checkout(repository: Path) -> None:
    if not (repository / ".git").exists():
        pytest.skip("not a checkout")
    commit = provenance.source_commit()
    assert commit is not None
    assert commit.removesuffix("+") == git(repository, "rev-parse", "HEAD")


def test_a_changed_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "analyzer" / "machine" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.source_commit() is None
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert provenance.source_commit() == head
    module.write_text("# changed\n")
    assert provenance.source_commit() == f"{head}+"
