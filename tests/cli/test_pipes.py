"""analyze, diff and export read pipes and the standard input, and open keeps the keyboard."""

import gzip
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.analyzer.schema.report import Report
from tests.helpers.command import Command
from tests.helpers.kineto_events import DATA, RECORDED

TRACE = str(DATA / "cpu_two_blocks.json.gz")


def piped(*arguments: str, data: bytes = RECORDED) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "decodescope", *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=False)


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_analyze_reads_the_standard_input(name: str, decodescope: Command) -> None:
    done = piped("analyze", name, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.source.path == {"-": "<stdin>"}.get(name, name)
    expected = msgspec.json.decode(decodescope("analyze", TRACE, "--json").out, type=Report)
    assert msgspec.structs.replace(report, source=expected.source) == expected


def test_diff_reads_one_side_from_the_standard_input() -> None:
    done = piped("diff", TRACE, "-", "--json", data=gzip.compress(RECORDED, 1))
    assert done.returncode == 0, done.stderr
    diff = msgspec.json.decode(done.stdout, type=Diff)
    assert diff.base.launches == diff.other.launches


def test_the_standard_input_is_read_once() -> None:
    done = piped("diff", "-", "-")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("decodescope: <stdin>: gave no bytes")
    assert "only once" in line


def test_export_and_pages_name_the_standard_input(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = piped("export", "-", "--to", "html", "-o", str(page))
    assert done.returncode == 0, done.stderr
    assert "&lt;stdin&gt;" in page.read_text()
    assert "<stdin>" not in page.read_text()


@pytest.mark.parametrize("redirect", ["<&-", "</dev/null"])
def test_no_input_is_one_line(redirect: str) -> None:
    command = f'"{sys.executable}" -m decodescope analyze - {redirect}'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("decodescope: <stdin>: ")


@pytest.mark.parametrize(("name", "shown"), [("-", "<stdin>"), ("/dev/stdin", "/dev/stdin")])
def test_a_terminal_is_no_trace(name: str, shown: str) -> None:
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "decodescope", "analyze", name]
        done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert f"{shown}: is a terminal; pipe a trace into it" in done.stderr


def test_ctrl_c_ends_a_wait_for_a_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "decodescope", "analyze", str(fifo)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process, fifo.open("wb"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
