"""The app on a real pseudo-terminal: it paints, resizes, survives its worker, and restores it."""

import json
import os
import random
import re
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pyte
import pytest

from decodescope.analyzer.protocol import Failure
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.helpers.hostile import (
    HOSTILE,
    OWN_SEQUENCES,
    SHOWN,
    hostile_events,
    hostile_trace,
    unsafe,
)
from tests.helpers.processes import alive, children, gone
from tests.helpers.scripted import write_trace

pexpect = pytest.importorskip("pexpect")

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Terminal:
    """A process on a pseudo-terminal, and its screen."""

    def __init__(
        self, arguments: list[str], width: int, height: int, program: str = sys.executable
    ) -> None:
        self.raw = b""
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        environment = os.environ | {
            "TERM": "xterm-256color",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }
        environment.pop("NO_COLOR", None)
        self.child = pexpect.spawn(
            program,
            arguments,
            dimensions=(height, width),
            env=environment,
        )

    def until(self, condition) -> None:
        """Read until `condition` holds or patience ends."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "\n".join(self.screen.display)
            self._read()

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen.display)

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(height, width)
        self.child.setwinsize(height, width)

    def _read(self) -> None:
        try:
            data = self.child.read_nonblocking(65536, 0.05)
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            self.child.wait()
            return
        self.raw += data
        self._stream.feed(data)

    def gone(self) -> bool:
        self._read()
        return not self.child.isalive()


@pytest.fixture
def start(tmp_path):
    terminals = []

    def begin(glyphs: str = "unicode", width: int = 80, height: int = 24) -> Terminal:
        terminals.append(
            Terminal(["-m", "tests.helpers.pty_app", str(tmp_path), glyphs], width, height)
        )
        return terminals[-1]

    yield begin
    for terminal in terminals:
        terminal.child.close(force=True)


def restored(raw: bytes) -> bool:
    """Whether what was switched on at the start was switched off again at the end."""
    modes = {}
    for mode, switch in re.findall(rb"\x1b\[\?(\d+)([hl])", raw):
        modes[mode] = switch
    return (
        modes[b"1049"] == b"l"
        and modes[b"25"] == b"h"
        and all(modes[mode] == b"l" for mode in (b"1000", b"1003", b"1006") if mode in modes)
    )


@pytest.mark.parametrize(
    ("way", "code"),
    [("q", 0), ("ctrl+c", 0), ("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)],
)
def test_start_resize_and_leave(start, way, code):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2") and terminal.shows("launch-bound"))
    terminal.resize(120, 40)
    terminal.until(lambda: terminal.shows("╭─ Last step"))
    terminal.resize(20, 5)
    terminal.until(lambda: not terminal.shows("Last step"))
    terminal.resize(80, 24)
    terminal.until(lambda: terminal.shows("Idle gaps"))
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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("way", ["SIGHUP twice", "q", "the terminal"])
def test_leaving_a_worker_that_starts_leaves_nothing_but_the_older_recording(
    way, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    path = tmp_path / "run.dsrec"
    path.write_bytes(b"an older recording")
    command = ["live", "--model", "tiny", "--device", "cpu", "--record", str(path)]
    terminal = Terminal(["-m", "decodescope", *command], 100, 30)
    try:
        terminal.until(lambda: terminal.shows("importing"))
        (worker,) = children(terminal.child.pid)
        if way == "q":
            terminal.child.send("q")
        elif way == "the terminal":
            with open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), terminal.child.child_fd)
        else:
            # A stopped worker keeps the app busy with ending it.
            os.kill(worker, signal.SIGSTOP)
            terminal.child.kill(signal.SIGHUP)
            time.sleep(0.5)
            terminal.child.kill(signal.SIGHUP)
        assert gone(terminal.child.pid)
        assert gone(worker)
        assert list((tmp_path / "temporary").iterdir()) == []
        assert path.read_bytes() == b"an older recording"
        assert sorted(one.name for one in tmp_path.iterdir()) == ["run.dsrec", "temporary"]
    finally:
        terminal.child.close(force=True)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_worker_and_keeps_the_recording(name, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    command = ["live", "--model", "tiny", "--device", "cpu", "--context", "16"]
    record = ["--record", str(tmp_path / "run.dsrec")]
    terminal = Terminal(["-m", "decodescope", *command, *record], 100, 30)
    try:
        terminal.until(lambda: terminal.shows("importing"))
        (worker,) = children(terminal.child.pid)
        assert (tmp_path / "run.dsrec.partial").exists()
        terminal.child.kill(signal.Signals[name])
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 128 + signal.Signals[name]
        assert restored(terminal.raw)
        assert not alive(worker)
        assert list((tmp_path / "temporary").iterdir()) == []
        assert list(read_recording(tmp_path / "run.dsrec").frames)
        assert not (tmp_path / "run.dsrec.partial").exists()
    finally:
        terminal.child.close(force=True)


def test_a_killed_worker_leaves_the_app_usable(start, tmp_path):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    (tmp_path / "die").touch()
    terminal.until(lambda: terminal.shows("killed by SIGKILL") and terminal.shows("last words"))
    assert terminal.shows("worker died")
    assert terminal.shows("47.2")
    terminal.child.send("?")
    terminal.until(lambda: terminal.shows("decodescope help"))
    terminal.child.send("\x1b")
    terminal.until(lambda: not terminal.shows("decodescope help"))
    terminal.child.send("q")
    terminal.until(terminal.gone)
    assert restored(terminal.raw)


def test_a_terminal_without_unicode_gets_ascii(start):
    terminal = start("ascii", 120, 40)
    terminal.until(lambda: terminal.shows("launch-bound") and terminal.shows("47.2"))
    drawn = "".join(terminal.screen.display)
    assert drawn.isascii(), sorted({char for char in drawn if not char.isascii()})
    terminal.child.send("q")
    terminal.until(terminal.gone)


def test_copying_uses_osc_52(start):
    terminal = start()
    terminal.until(lambda: terminal.shows("47.2"))
    terminal.child.send("y")
    terminal.until(lambda: b"\x1b]52;c;" in terminal.raw)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_the_command_survives_the_death_of_a_real_worker():
    pytest.importorskip("torch")
    command = ["live", "--model", "tiny", "--device", "cpu", "--context", "16"]
    terminal = Terminal(["-m", "decodescope", *command], 100, 30)
    try:
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
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("command", ["zcat {0} | {1} -", "{1} <(zcat {0}) < /dev/null"])
def test_a_trace_from_a_pipe_is_opened_and_keys_come_from_the_terminal(tmp_path, command):
    trace = ROOT / "tests" / "data" / "cpu_two_blocks.json.gz"
    opening = command.format(f'"{trace}"', f'"{sys.executable}" -m decodescope open')
    script = f'export TMPDIR="{tmp_path}"; {opening}; echo ended $?'
    terminal = Terminal(["-c", script], 100, 30, program="bash")
    try:
        terminal.until(lambda: terminal.shows("two-blocks"))
        assert len(list(tmp_path.iterdir())) == 1
        terminal.child.send("?")
        terminal.until(lambda: terminal.shows("decodescope help"))
        terminal.child.send("\x1b")
        terminal.until(lambda: not terminal.shows("decodescope help"))
        terminal.child.send("q")
        terminal.until(lambda: b"ended 0" in terminal.raw)
        assert list(tmp_path.iterdir()) == []
        assert restored(terminal.raw)
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_copy_of_a_pipe_does_not_outlive_a_signal(tmp_path, sent):
    kept = tmp_path / "kept"
    kept.mkdir()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = f'export TMPDIR="{kept}"; exec "{sys.executable}" -m decodescope open "{fifo}"'
    terminal = Terminal(["-c", script], 100, 30, program="bash")
    try:
        with fifo.open("wb") as writer:
            writer.write(b"[" + b" " * (3 << 20))
            writer.flush()
            terminal.until(
                lambda: sum(copy.stat().st_size for copy in kept.rglob("fifo")) > 2 << 20
            )
            terminal.child.kill(sent)
            terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 128 + sent
        assert list(kept.iterdir()) == []
    finally:
        terminal.child.close(force=True)


def test_without_a_terminal_for_keys_the_app_does_not_start(tmp_path):
    command = f'"{sys.executable}" -m decodescope open < /dev/null'
    terminal = Terminal(["setsid", "-w", "bash", "-c", command], 100, 30, program="env")
    try:
        terminal.until(lambda: b"no terminal to read keys from" in terminal.raw)
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 2
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("command", ["analyze", "open", "run"])
def test_the_terminal_receives_nothing_that_a_name_holds(tmp_path, command):
    trace = hostile_trace(tmp_path / "window.json")
    file = {"analyze": trace, "open": str(tmp_path / "run.dsrec")}.get(command)
    with closing(RecordingWriter(tmp_path / "run.dsrec")) as recording:
        for message in (*hostile_events(trace), Failure(HOSTILE, 2, fatal=False)):
            recording.write(message)
    if command == "run":
        folder = tmp_path / HOSTILE.replace("/", "")
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": HOSTILE}))
        file = f"--model={folder}"
    terminal = Terminal(["-m", "decodescope", command, file], 240, 60)
    try:
        if command == "open":
            terminal.until(lambda: terminal.shows("second[/]"))
            terminal.child.send("q")
        terminal.until(terminal.gone)
    finally:
        terminal.child.close(force=True)
    raw = terminal.raw.decode()
    assert unsafe(raw, OWN_SEQUENCES) == ""
    assert "owned" not in terminal.screen.title
    assert SHOWN[3:16] in raw


@pytest.mark.parametrize("options", ["", "--once --size 90x20"])
def test_a_dumb_terminal_gets_one_drawing_and_no_escape_sequence(options):
    trace = ROOT / "tests" / "data" / "cpu_two_blocks.json.gz"
    script = f'TERM=dumb exec "{sys.executable}" -m decodescope open "{trace}" {options}'
    terminal = Terminal(["-c", script], 100, 30, program="bash")
    try:
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 0
        assert b"\x1b" not in terminal.raw
        assert (b"TERM=dumb" in terminal.raw) == (not options)
        assert terminal.raw.count(b"two-blocks") == 1
        lines = terminal.raw.decode().splitlines()
        assert len(lines) == (20 if options else 30)
    finally:
        terminal.child.close(force=True)


def test_a_drawing_on_a_terminal_is_coloured_and_changes_no_mode():
    trace = ROOT / "tests" / "data" / "cpu_two_blocks.json.gz"
    terminal = Terminal(["-m", "decodescope", "open", str(trace), "--once"], 100, 30)
    try:
        terminal.until(terminal.gone)
        assert b"\x1b[38;2;" in terminal.raw or b"\x1b[38;5;" in terminal.raw
        assert b"\x1b[?" not in terminal.raw
        assert terminal.raw.count(b"two-blocks") == 1
    finally:
        terminal.child.close(force=True)


def test_a_full_disk_leaves_no_half_file_and_the_app_stays(tmp_path):
    """A limit on the size of files fails a write where a full disk would."""
    trace = write_trace(tmp_path / "trace.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    script = f'cd "{folder}"; ulimit -f 8; exec "{sys.executable}" -m decodescope open "{trace}"'
    terminal = Terminal(["-c", script], 120, 40, program="bash")
    try:
        terminal.until(lambda: terminal.shows("launch-bound"))
        terminal.child.send("\x13")
        terminal.until(lambda: terminal.shows("screenshot not written"))
        assert list(folder.iterdir()) == []
        terminal.child.send("9")
        terminal.until(lambda: terminal.shows("File too large"))
        terminal.child.send("q")
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 0
        assert restored(terminal.raw)
        assert list(folder.iterdir()) == []
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("way", ["q", "SIGHUP", "SIGTERM"])
def test_a_replay_leaves_no_temporary_folder(tmp_path, monkeypatch, way):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    recording = next(path for path in bundled_recordings() if path.stem.endswith("fused+graph"))
    terminal = Terminal(["-m", "decodescope", "open", str(recording)], 100, 30)
    try:
        terminal.until(lambda: terminal.shows("memory-bound"))
        assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
        if way == "q":
            terminal.child.send("q")
        else:
            terminal.child.kill(signal.Signals[way])
        terminal.until(terminal.gone)
        assert restored(terminal.raw)
        assert list(tmp_path.iterdir()) == []
    finally:
        terminal.child.close(force=True)


def test_a_live_run_without_a_process_stays_open_for_another_try():
    live = ["decodescope", "live", "--model", "tiny", "--device", "cpu"]
    program = (
        f"import runpy, sys; sys.executable = '/no/python'; sys.argv = {live}; "
        "runpy.run_module('decodescope', run_name='__main__')"
    )
    terminal = Terminal(["-c", program], 100, 30)
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("/no/python"))
        terminal.child.send("R")
        terminal.until(lambda: terminal.shows("R restart it"))
        terminal.child.send("q")
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 3
        assert restored(terminal.raw)


def test_what_a_killed_app_leaves_goes_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = ["-m", "decodescope", "open", str(bundled_recordings()[0])]
    killed = Terminal(command, 100, 30)
    with closing(killed.child):
        killed.until(lambda: killed.shows("idle"))
        killed.child.kill(signal.SIGKILL)
        killed.until(killed.gone)
    (left,) = tmp_path.iterdir()
    later = Terminal(command, 100, 30)
    with closing(later.child):
        later.until(lambda: later.shows("idle"))
        assert not left.exists()
        later.child.send("q")
        later.until(later.gone)
    assert list(tmp_path.iterdir()) == []


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
