"""The command as scripts use it: in this process, and where that matters in one of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.cli.main import main
from tests.helpers.command import Command, Done


@pytest.fixture
def decodescope(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, which has imported torch already; no terminal."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["decodescope", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def fresh_decodescope() -> Command:
    """The command in a process of its own; no terminal."""

    def run(*arguments: str, cwd: Path | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "decodescope", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
