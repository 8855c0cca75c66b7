"""What the app leaves behind when it ends, however it ends: no process, no half file."""

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.app.terminal import Terminal, restored
from tests.helpers.processes import alive, children, gone
from tests.helpers.scripted import write_trace


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
        assert list(read_recording(tmp_path / "run.dsrec").frames())
        assert not (tmp_path / "run.dsrec.partial").exists()
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
            terminal.until(lambda: terminal.shows("reading fifo to its end"))
            terminal.until(
                lambda: sum(copy.stat().st_size for copy in kept.rglob("fifo")) > 2 << 20
            )
            terminal.child.kill(sent)
            terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 128 + sent
        assert list(kept.iterdir()) == []
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
        terminal.until(lambda: terminal.shows("host-bound"))
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
