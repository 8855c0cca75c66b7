"""A run that is recorded, and the file it is recorded to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import State
from tests.helpers.scripted import hello, stats
from tests.tui.following.run import Run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.dsrec"


@pytest.fixture
def run(path: Path) -> Iterator[Run]:
    run = Run(path)
    run.say(0, hello(), State("running", "eager"))
    run.say(1, stats(1))
    yield run
    run.writer.close()
