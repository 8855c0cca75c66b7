"""A job in its own process: scripted children that answer, refuse, die, hang or print."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.errors import InputError, InternalError, MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.comparing import job_process
from decodescope.variants.comparing.job_process import AccuracyDone, AccuracyJob, RunJob, run_job
from tests.helpers.processes import alive, gone

JOB = AccuracyJob(WorkerConfig(variant="eager", batch=1, tokens=4), ("eager", "other"), "text\n")
CHILD = """
import os, signal, subprocess, sys, time
from decodescope.analyzer.protocol.messages import encode_frame
from decodescope.analyzer.protocol.messages import Failure, Progress
from decodescope.analyzer.schema.report import Finding
from decodescope.variants.comparing.job_process import AccuracyDone

def send(message):
    os.write(1, encode_frame(message))

def done(*said):
    send(AccuracyDone({}, tuple(Finding("said", text) for text in said)))

"""
SLEEPER = "started = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"


def child(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", CHILD + script)


def nothing(stage: str) -> None:
    pass


def test_the_job_goes_in_and_stages_and_result_come_out() -> None:
    stages: list[str] = []
    script = "send(Progress('one')); send(Progress('two')); done(sys.stdin.read())"
    result = run_job(JOB, stages.append, child(script))
    assert stages == ["one", "two"]
    assert isinstance(result, AccuracyDone)
    (finding,) = result.findings
    assert finding == Finding("said", msgspec.json.encode(JOB).decode())


def test_a_long_text_passes_whole() -> None:
    job = msgspec.structs.replace(JOB, text="x" * 1_000_000)
    result = run_job(job, nothing, child("done(str(len(sys.stdin.read())))"))
    assert isinstance(result, AccuracyDone)
    assert result.findings[0].message == str(len(msgspec.json.encode(job)))


def test_what_a_child_writes_to_stderr_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    run_job(JOB, nothing, child("print('a warning', file=sys.stderr); done()"))
    assert capsys.readouterr().err == "a warning\n"


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(2, InputError), (3, MissingRequirement), (70, InternalError)]
)
def test_a_childs_failure_is_raised_here(exit_code: int, kind: type[Exception]) -> None:
    script = f"send(Failure('no such thing', {exit_code}, True)); sys.exit({exit_code})"
    with pytest.raises(kind, match=r"^no such thing$"):
        run_job(JOB, nothing, child(script))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL$"),
        ("sys.exit(7)", "ended with exit code 7$"),
        ("raise ValueError('spoilt')", "exit code 1; its last output: ValueError: spoilt$"),
        ("os.write(1, b'hello, world')", "its answer cannot be read"),
        ("os.write(1, b'\\0\\0\\1\\0half')", "ended with exit code 0$"),
        ("os.write(1, b'\\0\\0\\0\\1?')", "its answer cannot be read"),
        ("os.close(0); sys.exit(5)", "ended with exit code 5"),
    ],
)
def test_a_child_without_a_result_is_reported_in_one_line(script: str, words: str) -> None:
    with pytest.raises(MissingRequirement, match=words) as caught:
        run_job(msgspec.structs.replace(JOB, text="x" * 200_000), nothing, child(script))
    assert "\n" not in str(caught.value)


def test_a_child_that_ended_first_of_those_that_were_interrupted_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_job(JOB, nothing, child("os.kill(os.getpid(), signal.SIGTERM)"))


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(MissingRequirement, match="cannot be started"):
        run_job(JOB, nothing, ("/nowhere/python",))


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN); "])
def test_an_interrupt_ends_the_child_and_what_it_started(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_process, "_TERMINATE_GRACE_S", 0.5)
    pids: list[int] = []

    def interrupt(stage: str) -> None:
        pids.extend(int(pid) for pid in stage.split())
        raise KeyboardInterrupt

    script = f"{deaf}{SLEEPER}\nsend(Progress(f'{{os.getpid()}} {{started.pid}}')); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run_job(JOB, interrupt, child(script))
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_processes_left_by_a_finished_child_are_ended() -> None:
    script = f"{SLEEPER}\ndone(str(started.pid))"
    result = run_job(JOB, nothing, child(script))
    assert isinstance(result, AccuracyDone)
    assert gone(int(result.findings[0].message))


def test_the_terminals_interrupt_does_not_reach_the_child() -> None:
    result = run_job(JOB, nothing, child("done(str(os.getpgid(0)), str(os.getpid()))"))
    assert isinstance(result, AccuracyDone)
    group, pid = (int(finding.message) for finding in result.findings)
    assert group == pid != os.getpgid(0)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux signals a child when its parent ends"
)
def test_a_worker_dies_with_its_parent() -> None:
    script = (
        "from decodescope.variants.machine.child_process import end_with_parent\n"
        "end_with_parent(1); send(Progress(str(os.getpid()))); time.sleep(600)"
    )
    code = (
        "import sys, msgspec\n"
        "from decodescope.variants.comparing.job_process import run_job\n"
        "from decodescope.variants.comparing.job_process import AccuracyJob\n"
        "job = msgspec.json.decode(sys.argv[1], type=AccuracyJob)\n"
        "run_job(job, lambda stage: print(stage, flush=True), tuple(sys.argv[2:]))"
    )
    arguments = [sys.executable, "-c", code, msgspec.json.encode(JOB).decode(), *child(script)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_the_real_worker_refuses_what_cannot_be_decoded(tmp_path: Path) -> None:
    stages: list[str] = []
    config = WorkerConfig(
        variant="eager", batch=1, tokens=4, context=1021, model="tiny", device="cpu"
    )
    with pytest.raises(InputError, match="tiny allows 1024 positions"):
        run_job(RunJob(config, str(tmp_path / "window.json")), stages.append)
    assert stages == ["loading tiny"]
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_interrupted_while_it_starts_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []

    class Interrupted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[call-overload]
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(JOB, nothing, child("time.sleep(600)"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not alive(started[0])
