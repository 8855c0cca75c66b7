"""Two processes: a run that is recorded, and the app that follows it on a pseudo-terminal."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.io.files import growing_file
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.app.terminal import PATIENCE_S, ROOT, Terminal, restored

pytest.importorskip("pexpect")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.dsrec"


@pytest.fixture
def run(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.tui.following.recording_process", str(path)]
    process = subprocess.Popen(command, env=environment)
    end = time.monotonic() + PATIENCE_S
    while growing_file(path) is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def opened(*names: str) -> Terminal:
    return Terminal(["-m", "decodescope", "open", *names], 140, 40)


def rate(terminal: Terminal) -> int:
    """The tokens/s that the screen shows; the run reports one more each time."""
    found = re.search(r"(\d+)(?:\.\d+)? tok/s", "\n".join(terminal.screen.display))
    return int(found[1]) if found else 0


def test_a_run_is_followed_by_its_name_to_its_end(path: Path, run) -> None:
    path.write_bytes(b"an older recording")
    terminal = opened(str(path))
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("following") and rate(terminal) > 100)
        terminal.until(lambda: terminal.shows("run.dsrec.partial"))
        first = rate(terminal)
        terminal.until(lambda: rate(terminal) > first + 4)
        terminal.child.send("p")
        terminal.until(lambda: terminal.shows("paused"))
        held = rate(terminal)
        terminal.child.send("F")
        terminal.until(lambda: terminal.shows("following") and rate(terminal) > held)
        path.with_name("end").touch()
        terminal.until(lambda: terminal.shows("ended"))
        assert run.wait(PATIENCE_S) == 0
        last = [frame.message for frame in read_recording(path).frames()][-1]
        terminal.until(lambda: rate(terminal) == int(last.tokens_per_s))
        terminal.child.send("q")
        terminal.until(terminal.gone)
    assert terminal.child.exitstatus == 0
    assert restored(terminal.raw)


def test_a_killed_run_leaves_its_figures_on_the_screen(path: Path, run) -> None:
    terminal = opened(f"{path}.partial")
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("following") and rate(terminal) > 100)
        run.kill()
        run.wait()
        terminal.until(
            lambda: (
                terminal.shows("was killed") and terminal.shows("ended") and rate(terminal) > 100
            )
        )
        terminal.child.send("q")
        terminal.until(terminal.gone)
    assert terminal.child.exitstatus == 0


def test_one_drawing_of_a_run(path: Path, run) -> None:
    command = [sys.executable, "-m", "decodescope", "open", str(path), "--once", "--size", "120x40"]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "following" in done.stdout.splitlines()[0]
    assert "host-bound" in done.stdout
    assert run.poll() is None
