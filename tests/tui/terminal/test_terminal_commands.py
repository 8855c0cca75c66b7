"""Commands on terminals of every kind: keys beside a pipe, no keys, no escape sequences."""

import json
import os
import subprocess
import sys
import termios
from contextlib import closing
from functools import partial

import pytest

from decodescope.analyzer.protocol.messages import Failure
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.helpers.app.terminal import ROOT, Terminal, restored
from tests.helpers.hostile import (
    HOSTILE,
    OWN_SEQUENCES,
    SHOWN,
    hostile_events,
    hostile_trace,
    unsafe,
)


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


def test_without_a_terminal_for_keys_the_app_does_not_start(tmp_path):
    command = f'"{sys.executable}" -m decodescope open < /dev/null'
    terminal = Terminal(["setsid", "-w", "bash", "-c", command], 100, 30, program="env")
    try:
        terminal.until(lambda: b"no terminal to read keys from" in terminal.raw)
        terminal.until(terminal.gone)
        assert terminal.child.exitstatus == 2
    finally:
        terminal.child.close(force=True)


@pytest.mark.parametrize("command", ["analyze", "open"])
def test_the_terminal_receives_nothing_that_a_name_holds(tmp_path, command):
    trace = hostile_trace(tmp_path / "window.json")
    file = {"analyze": trace, "open": str(tmp_path / "run.dsrec")}[command]
    with closing(RecordingWriter(tmp_path / "run.dsrec")) as recording:
        for message in (*hostile_events(trace), Failure(HOSTILE, 2, fatal=False)):
            recording.write(message)
    terminal = Terminal(["-m", "decodescope", command, file], 240, 60)
    try:
        if command == "open":
            terminal.until(lambda: terminal.shows("second"))
            terminal.child.send("q")
        terminal.until(terminal.gone)
    finally:
        terminal.child.close(force=True)
    raw = terminal.raw.decode()
    assert unsafe(raw, OWN_SEQUENCES) == ""
    assert "owned" not in terminal.screen.title
    assert SHOWN[3:16] in raw


def test_an_error_of_a_run_writes_nothing_that_a_name_holds(tmp_path, monkeypatch):
    """Started by Popen, so that it may be a fork that has torch."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": HOSTILE}))
    command = [sys.executable, "-m", "decodescope", "run", f"--model={folder}"]
    screen, theirs = os.openpty()
    termios.tcsetwinsize(screen, (60, 240))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        raw = b"".join(iter(partial(read_until_hangup, screen), b"")).decode()
    os.close(screen)
    assert process.returncode == 2
    assert unsafe(raw, OWN_SEQUENCES) == ""
    assert SHOWN[3:16] in raw


def read_until_hangup(terminal: int) -> bytes:
    """Empty once nobody has the other end any more."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


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
