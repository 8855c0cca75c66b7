"""The app on a real pseudo-terminal: it paints, resizes, survives its worker, and restores it."""

import os
import random
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.app.terminal import Terminal, restored
from tests.helpers.processes import children, gone


@pytest.fixture
def start(tmp_path):
    terminals = []

    def begin(glyphs: str = "unicode", width: int = 80, height: int = 24) -> Terminal:
        terminals.append(
            Terminal(["-m", "tests.helpers.app.pty_app", str(tmp_path), glyphs], width, height)
        )
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.child.close(force=True)


def test_every_size_is_drawn(start):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2") and terminal.shows("host-bound"))
    terminal.resize(120, 40)
    terminal.until(lambda: terminal.shows("╭─ Step "))
    terminal.resize(20, 5)
    terminal.until(lambda: not terminal.shows("Step "))
    terminal.resize(80, 24)
    terminal.until(lambda: terminal.shows("Where the step goes"))


@pytest.mark.parametrize(("way", "code"), [("q", 0), ("ctrl+c", 0), ("SIGINT", 130)])
def test_start_and_leave(start, way, code):
    """Other signals are sent to the whole command, in test_terminal_leavings.py."""
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    if way.startswith("SIG"):
        terminal.child.kill(signal.Signals[way])
    else:
        terminal.child.send({"q": "q", "ctrl+c": "\x03"}[way])
    terminal.until(terminal.gone)
    assert terminal.child.exitstatus == code
    assert restored(terminal.raw)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("ignored", [False, True])
def test_an_app_ends_with_its_terminal(start, ignored):
    """Also if it was started with `nohup`: it has nothing to draw on."""
    if ignored:
        handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminal = start()
    finally:
        if ignored:
            signal.signal(signal.SIGHUP, handler)
    terminal.until(lambda: terminal.shows("47.2"))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), terminal.child.child_fd)
    assert gone(terminal.child.pid)


def test_a_killed_worker_leaves_the_app_usable(start, tmp_path):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    (tmp_path / "die").touch()
    shown = ("worker died", "killed by SIGKILL", "last words", "47.2", "R restart it")
    terminal.until(lambda: all(terminal.shows(text) for text in shown))
    terminal.child.send("?")
    terminal.until(lambda: terminal.shows("decodescope help"))
    terminal.child.send("\x1b")
    terminal.until(lambda: not terminal.shows("decodescope help"))
    terminal.child.send("q")
    terminal.until(terminal.gone)
    assert restored(terminal.raw)


def test_a_terminal_without_unicode_gets_ascii(start):
    terminal = start("ascii", 120, 40)
    terminal.until(lambda: terminal.shows("host-bound") and terminal.shows("47.2"))
    drawn = "".join(terminal.screen.display)
    assert drawn.isascii(), sorted({char for char in drawn if not char.isascii()})
    terminal.child.send("q")
    terminal.until(terminal.gone)


def test_copying_uses_osc_52(start):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    terminal.child.send("y")
    terminal.until(lambda: b"\x1b]52;c;" in terminal.raw)


# A program in place of Python: what a worker says, and no model.
WORKER = """
import signal, socket, sys
from decodescope.analyzer.protocol.messages import State, encode_frame
from tests.helpers.scripted import hello, stats
control = socket.socket(fileno=int(sys.argv[-2]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
for message in (hello(), State("running", "eager"), stats(1)):
    control.sendall(encode_frame(message))
while control.recv(4096):
    pass
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_the_command_survives_the_death_of_its_worker(tmp_path):
    """A real worker is killed in tests/tui/worker/test_worker_link.py."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\n{WORKER}")
    program.chmod(0o755)
    terminal = Terminal(["-c", live_with(str(program))], 100, 30)
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("running") and terminal.shows("def "))
        (worker,) = children(terminal.child.pid)
        os.kill(worker, signal.SIGKILL)
        terminal.until(lambda: terminal.shows("killed by SIGKILL"))
        terminal.child.send("R")
        terminal.until(lambda: terminal.shows("running") and not terminal.shows("SIGKILL"))
        (restarted,) = children(terminal.child.pid)
        assert restarted != worker
        terminal.child.send("q")
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 0
        assert restored(terminal.raw)
        assert not Path(f"/proc/{restarted}").exists()


def live_with(executable: str) -> str:
    """The command `live` in Python, whose worker is started by `executable`."""
    live = ["decodescope", "live", "--model", "tiny", "--device", "cpu"]
    return (
        f"import runpy, sys; sys.executable = {executable!r}; sys.argv = {live}; "
        "runpy.run_module('decodescope', run_name='__main__')"
    )


def test_a_live_run_without_a_process_stays_open_for_another_try():
    terminal = Terminal(["-c", live_with("/no/python")], 100, 30)
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("/no/python"))
        terminal.child.send("R")
        terminal.until(lambda: terminal.shows("R restart it"))
        terminal.child.send("q")
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 3
        assert restored(terminal.raw)


def test_a_storm_of_resizes_ends_in_the_last_size(start):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    rng = random.Random(7)
    for _ in range(60):
        terminal.resize(rng.randint(1, 300), rng.randint(1, 100))
        terminal.child.send(rng.choice("123456789"))
    terminal.resize(100, 30)
    terminal.child.send("1")
    terminal.until(lambda: terminal.shows("47.2") and terminal.shows("q quit"))
    terminal.child.send("q")
    terminal.until(terminal.gone)
    assert terminal.child.exitstatus == 0
    assert restored(terminal.raw)
