"""`attach` as scripts use it, on processes that speak libkineto's protocol."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Report
from decodescope.attach.kineto import processes
from tests.helpers.command import Command
from tests.helpers.libkineto import fake_process
from tests.helpers.sockets import socket_folder

__all__ = ["socket_folder"]


@pytest.fixture
def trace_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@contextmanager
def process(
    socket_folder: str, trace_folder: Path, behaviour: str = "traces", **environment: str
) -> Iterator["Popen[str]"]:
    folder = {"KINETO_ONDEMAND_TRACE_DIR": str(trace_folder)}
    with fake_process(socket_folder, behaviour, **folder, **environment) as running:
        yield running


def test_each_window_is_a_report_and_a_file(
    decodescope: Command, socket_folder: str, trace_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    with process(socket_folder, trace_folder) as running:
        pid = str(running.pid)
        recording = str(tmp_path / "seen.dsrec")
        arguments = ("--ms", "40", "--windows", "2", "--out", str(out), "--json")
        arguments += ("--record", recording)
        done = decodescope("attach", pid, *arguments)
    assert done.code == 0, done.err
    reports = [msgspec.json.decode(line, type=Report) for line in done.out.splitlines()]
    assert len(reports) == 2
    files = sorted(out.iterdir())
    assert [report.source.path for report in reports] == [str(file) for file in files]
    for report in reports:
        assert report.observer is not None
        assert report.observer.door == "kineto"
        assert report.observer.target.startswith(f"process {pid} (python")
        assert len(report.steps) == 40
    first, *rest = done.err.splitlines()
    assert first.startswith(f"process {pid} (python")
    assert "slows a process by 24 to 44 % while it runs" in first
    assert [line for line in rest if line.startswith("wrote ")] == [f"wrote {it}" for it in files]
    drawn = decodescope("open", recording, "--once", "--size", "120x40")
    assert f"process {pid} (python" in drawn.out
    assert "window-2" in drawn.out
    assert "decode · 40 steps" in drawn.out


def test_the_table_is_that_of_analyze(
    decodescope: Command, socket_folder: str, trace_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with process(socket_folder, trace_folder) as running:
        done = decodescope("attach", str(running.pid), "--out", str(out), "--model", "none")
    (file,) = out.iterdir()
    assert done.out == decodescope("analyze", str(file), "--model", "none").out
    assert "900 events" in done.out


@pytest.mark.engines
def test_one_rank_stands_for_all_and_they_are_merged(
    decodescope: Command, socket_folder: str, trace_folder: Path, tmp_path: Path
) -> None:
    job = {"MASTER_PORT": secrets.token_hex(4)}
    with (
        process(socket_folder, trace_folder, RANK="1", **job) as second,
        process(socket_folder, trace_folder, RANK="0", **job) as first,
        process(socket_folder, trace_folder, RANK="0", MASTER_PORT="other"),
    ):
        done = decodescope("attach", str(second.pid), "--out", str(tmp_path), "--json")
    assert done.code == 0, done.err
    report = msgspec.json.decode(done.out, type=RanksReport)
    paths = [rank.report.source.path for rank in report.ranks]
    assert [path.split("-attach-")[1].split("-")[0] for path in paths] == [
        str(first.pid),
        str(second.pid),
    ]
    assert report.merged is not None
    for seen in (report.merged, *(rank.report for rank in report.ranks)):
        assert seen.observer is not None
        assert seen.observer.target.startswith("2 processes (python")


@pytest.mark.engines
def test_all_leaves_out_a_process_that_does_not_ask(
    decodescope: Command,
    socket_folder: str,
    trace_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        process(socket_folder, trace_folder) as asking,
        process(socket_folder, trace_folder, "silent") as forked,
    ):
        # All processes of this user are those of other tests too.
        job = processes.job_processes([asking.pid, forked.pid])
        monkeypatch.setattr(processes, "all_processes", lambda: job)
        done = decodescope("attach", "--all", "--out", str(tmp_path), "--json")
    assert done.code == 0, done.err
    report = msgspec.json.decode(done.out, type=Report)
    assert report.observer is not None
    assert report.observer.target.startswith(f"process {asking.pid} (")
    assert f"no window of process {forked.pid} (" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give TARGET..., or --all"),
        (("--all", "1"), 2, "give TARGET..., or --all"),
        (("4194305",), 2, "process 4194305: does not run; give the id"),
        (("0",), 2, "0: neither the id of a process nor a URL"),
        (("-1",), 2, "-1"),
        (("9" * 30,), 2, "neither the id of a process nor a URL"),
        (("python",), 2, "python: neither the id of a process nor a URL; give one such as 4711"),
        (("me:s3cret@gpu7:80",), 2, "decodescope: gpu7:80: neither the id of a process nor a URL"),
        (("http://127.0.0.1:1", "7"), 2, "give servers, or ids of processes"),
        (("7", "--trace-dir", "x"), 2, "--trace-dir x: only with the URL of a server"),
        (("7", "--ms", "5", "--iterations", "3"), 2, "--iterations 3 and --ms 5: give one of"),
        (("7", "--ms", "10001"), 2, "10001 is not in the range"),
        (("7", "--windows", "0"), 2, "0 is not in the range"),
        (("7", "--every", "nan"), 2, "nan"),
        (("7", "--out", "file"), 2, "--out file: file is not a folder"),
        (("7", "--out", "file/out"), 2, "--out file/out: file is not a folder"),
    ],
)
def test_bad_usage_is_one_line(
    decodescope: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("text")
    done = decodescope("attach", *arguments)
    assert done.code == code
    assert message in done.only_line
    assert os.listdir() == ["file"]


def test_processes_without_a_door_are_one_line(
    decodescope: Command, socket_folder: str, trace_folder: Path
) -> None:
    with process(socket_folder, trace_folder, KINETO_USE_DAEMON="") as running:
        done = decodescope("attach", str(running.pid))
        assert done.code == 3
        assert f"process {running.pid} (python libkineto.py): runs without KINETO" in done.only_line
    with Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as plain:
        done = decodescope("attach", str(plain.pid))
        assert done.code == 2
        assert "has not loaded PyTorch; give the id of the process" in done.only_line
        plain.kill()


def test_another_users_process_is_one_line(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    done = decodescope("attach", str(os.getpid()))
    assert done.code == 2
    assert "and only its own user may attach; run decodescope as that user" in done.only_line


@pytest.mark.engines
@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [
        ("silent", 3, "did not ask for a window in time"),
        ("dies", 2, "ended, and has no trace of the window"),
        ("writes nothing", 2, "wrote no trace; its own messages say why"),
    ],
)
def test_a_process_that_fails_is_one_line_within_10_s(
    decodescope: Command,
    socket_folder: str,
    trace_folder: Path,
    tmp_path: Path,
    behaviour: str,
    code: int,
    message: str,
) -> None:
    out = tmp_path / "out"
    with process(socket_folder, trace_folder, behaviour) as running:
        began_s = time.monotonic()
        done = decodescope("attach", str(running.pid), "--out", str(out))
        assert time.monotonic() - began_s < 10
    assert done.code == code
    assert message in done.error_line
    assert done.out == ""
    assert list(out.iterdir()) == list(trace_folder.iterdir()) == []
    assert "dynolog" not in os.listdir(socket_folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["waiting for", "a window of"])
def test_a_signal_leaves_nothing_and_the_process_unharmed(
    socket_folder: str,
    trace_folder: Path,
    tmp_path: Path,
    number: signal.Signals,
    stage: str,
) -> None:
    out = tmp_path / "out"
    behaviour = "silent" if stage == "waiting for" else "traces"
    with process(socket_folder, trace_folder, behaviour) as running:
        command = [sys.executable, "-m", "decodescope", "attach", str(running.pid)]
        with Popen([*command, "--out", str(out)], stderr=subprocess.PIPE, text=True) as attached:
            assert attached.stderr is not None
            lines = iter(attached.stderr.readline, "")
            assert any(line.startswith(stage) for line in lines)
            assert len(list(trace_folder.iterdir())) == 1
            time.sleep(0.2)  # a signal while a line is written would have it written twice
            attached.send_signal(number)
            rest = [line for line in lines if line.strip()]
            assert rest in ([], [f"a window of process {running.pid} (python libkineto.py)\n"])
        assert attached.returncode == 128 + number
        assert list(out.iterdir()) == list(trace_folder.iterdir()) == []
        assert "dynolog" not in os.listdir(socket_folder)
        assert running.poll() is None
