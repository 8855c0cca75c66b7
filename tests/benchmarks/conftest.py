"""Benchmarks run on the GPU, or in Triton's interpreter."""

import sys
from pathlib import Path

import pytest

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from tests.helpers.command import Command, Done
from tests.helpers.kernel_fixtures import assert_close, assert_reset, inputs  # noqa: F401

# Benchmarks are part of a checkout, not of a source distribution.
collect_ignore_glob = [] if (Path(__file__).parents[2] / "benchmarks").is_dir() else ["*"]


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The commands in this process."""

    from benchmarks.__main__ import main

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, *capfd.readouterr())

    return run
