"""The app's link to a worker process: a real one on the CPU, and scripted ones that misbehave."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol import (
    PROTOCOL_VERSION,
    Bye,
    CaptureTrace,
    ChangeSettings,
    Failure,
    FrameDecoder,
    Hello,
    Log,
    Pause,
    Progress,
    Resume,
    Settings,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
    WorkerConfig,
    WorkerMessage,
    encode_frame,
)
from decodescope.analyzer.readers.reading import load
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import LinkEvent, WorkerDied
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource
from tests.helpers.processes import alive, gone
from tests.helpers.scripted import StillClock, settle, text_of

PATIENCE_S = 60


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A Llama of a few thousand random parameters with a byte-level tokenizer."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def config(checkpoint: Path | str, **changes) -> WorkerConfig:
    plain = WorkerConfig(
        model=str(checkpoint), variant="eager", batch=2, context=16, tokens=200, device="cpu"
    )
    return msgspec.structs.replace(plain, **changes)


async def until(link: WorkerLink, wanted, seconds: float = PATIENCE_S) -> list[LinkEvent]:
    """Events up to and including the first that `wanted` accepts."""
    events: list[LinkEvent] = []
    async with asyncio.timeout(seconds):
        while True:
            event = await link.receive()
            assert event is not None, events
            events.append(event)
            if wanted(event):
                return events


def is_a(kind: type, **fields):
    return lambda event: (
        isinstance(event, kind)
        and all(getattr(event, name) == value for name, value in fields.items())
    )


def of(events: list[LinkEvent], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


async def test_a_real_worker_lives_through_a_session(checkpoint):
    link = WorkerLink(config(checkpoint))
    await link.start()
    pid = link.pid
    try:
        events = await until(link, is_a(TraceReady))
        assert isinstance(events[0], Progress)
        (hello,) = of(events, Hello)
        assert (hello.protocol, hello.pid, hello.device) == (PROTOCOL_VERSION, pid, "cpu")
        assert (hello.batch, hello.context, hello.tokens) == (2, 16, 200)
        assert hello.weights == "pretrained"
        assert {"eager", "compiled"} <= {variant.name for variant in hello.variants}
        states = [state.state for state in of(events, State)]
        assert states == ["building", "running"]

        ready = events[-1]
        assert not ready.requested
        trace = load(ready.path)
        assert trace.capture == ready.capture
        assert ready.capture.steps == 3
        assert len(trace.ops) > 3 * 2 * 10
        steps = [trace.names[i] for i in trace.ranges.name].count("decode_step")
        assert steps == 3

        (stats,) = of(await until(link, lambda e: isinstance(e, Stats) and e.text), Stats)[-1:]
        assert stats.variant == "eager"
        assert stats.tokens_per_s > 0
        assert stats.tokens % 2 == 0
        assert 16 <= stats.position <= 216
        assert stats.bytes_per_step > 4 * 256 * 32

        await link.send(SwitchVariant("eagr"))
        (failure,) = of(await until(link, is_a(Failure)), Failure)
        assert not failure.fatal
        assert "eager" in failure.message
        await link.send(SwitchVariant("compiled"))
        (failure,) = of(await until(link, is_a(Failure)), Failure)
        assert (failure.exit_code, failure.fatal) == (3, False)

        await link.send(Pause())
        await until(link, is_a(State, state="paused"))
        before = _cpu_ticks(pid)
        await asyncio.sleep(1)
        assert _cpu_ticks(pid) - before <= 3
        await link.send(CaptureTrace())
        events = await until(link, is_a(TraceReady, requested=True))
        await link.send(Resume())
        await until(link, is_a(State, state="running"))

        os.kill(pid, signal.SIGKILL)
        (died,) = of(await until(link, is_a(WorkerDied), 10), WorkerDied)
        assert died.exit_code == -signal.SIGKILL

        await link.restart()
        assert link.pid != pid
        pid = link.pid
        events = await until(link, is_a(TraceReady))
        assert not of(events, WorkerDied)
        assert Path(events[-1].path).name > Path(ready.path).name

        os.kill(pid, signal.SIGINT)
        await until(link, is_a(Stats))
        os.kill(pid, signal.SIGTERM)
        events = await until(link, is_a(WorkerDied))
        assert of(events, Bye) == [Bye("terminated")]
        assert events[-1].exit_code == 0
        await link.restart()
        pid = link.pid
        await until(link, is_a(Hello))
    finally:
        folder = link._folder.path
        await link.close()
    assert await asyncio.to_thread(gone, pid)
    assert await link.receive() is None
    assert not folder.exists()


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize(
    ("changes", "exit_code", "says"),
    [
        ({"variant": "eagr"}, 2, "did you mean eager"),
        ({"variant": "compiled"}, 3, "CUDA"),
    ],
)
async def test_a_config_that_cannot_run_is_a_fatal_failure_with_its_exit_code(
    checkpoint, changes, exit_code, says
):
    link = WorkerLink(config(checkpoint, **changes))
    await link.start()
    try:
        events = await until(link, is_a(WorkerDied))
    finally:
        await link.close()
    (failure,) = of(events, Failure)
    assert failure.fatal
    assert failure.exit_code == exit_code
    assert says in failure.message
    assert of(events, Bye)
    assert events[-1].exit_code == exit_code


async def test_a_worker_ends_when_the_app_is_gone(checkpoint, tmp_path):
    """The process that holds the other end is killed: the worker must not outlive it."""
    script = (
        "import asyncio, sys, msgspec\n"
        "from decodescope.analyzer.protocol import Stats, WorkerConfig\n"
        "from decodescope.tui.link.worker import WorkerLink\n"
        "async def main():\n"
        "    link = WorkerLink(msgspec.json.decode(sys.argv[1], type=WorkerConfig))\n"
        "    await link.start()\n"
        "    while not isinstance(await link.receive(), Stats): pass\n"
        "    sys.stdout.write(f'{link.pid}\\n'); sys.stdout.flush()\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    encoded = msgspec.json.encode(config(checkpoint, trace_dir=str(tmp_path))).decode()
    app = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, encoded, stdout=subprocess.PIPE
    )
    pid = int(await asyncio.wait_for(app.stdout.readline(), PATIENCE_S))
    assert alive(pid)
    app.kill()
    await app.wait()
    assert await asyncio.to_thread(gone, pid)


async def test_closing_the_socket_alone_ends_the_worker(checkpoint, tmp_path):
    ours, theirs = socket.socketpair()
    asked = tmp_path / "worker.json"
    asked.write_bytes(msgspec.json.encode(config(checkpoint, trace_dir=str(tmp_path))))
    with ours, theirs, (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "decodescope.variants.live.worker",
                str(theirs.fileno()),
                str(asked),
            ],
            pass_fds=(theirs.fileno(),),
            stdout=log,
            stderr=log,
        )
        theirs.close()
        ours.settimeout(PATIENCE_S)
        decoder, seen = FrameDecoder(WorkerMessage), []
        while not any(isinstance(message, Stats) for message in seen):
            seen += decoder.feed(ours.recv(65536))
    assert await asyncio.to_thread(worker.wait, 10) == 0


async def test_a_long_prompt_reaches_the_worker(checkpoint):
    prompt = "def f(x):\n" * 40_000
    link = WorkerLink(config(checkpoint, context=None, prompt=prompt))
    await link.start()
    try:
        (failure,) = of(await until(link, is_a(Failure)), Failure)
    finally:
        await link.close()
    assert "need 400200" in failure.message


def scripted(tmp_path: Path, body: str) -> WorkerLink:
    """A link to a worker that is a few lines of Python: `control` is its socket."""
    path = tmp_path / "worker.py"
    path.write_text(
        "import socket, sys, time, os, signal\n"
        "control = socket.socket(fileno=int(sys.argv[1]))\n" + body
    )
    return WorkerLink(config("none"), argv=(sys.executable, str(path)))


def sending(*frames: bytes) -> str:
    return f"control.sendall({b''.join(frames)!r})\n"


async def test_a_crash_is_delivered_after_all_messages_with_the_log(tmp_path):
    said = [Log("info", "x" * 50_000), Progress("importing")]
    body = sending(*map(encode_frame, said)) + (
        "print('printed by a library')\nsys.exit('CUDA error: unspecified')\n"
    )
    link = scripted(tmp_path, body)
    await link.start()
    events = await until(link, is_a(WorkerDied))
    await link.close()
    assert events[:-1] == said
    assert events[-1] == WorkerDied(1, ("printed by a library", "CUDA error: unspecified"))


async def test_a_death_is_noticed_while_a_child_holds_the_socket_open(tmp_path):
    body = "os.fork() or (time.sleep(20), os._exit(0))\nos._exit(7)\n"
    link = scripted(tmp_path, body)
    await link.start()
    (died,) = of(await until(link, is_a(WorkerDied), 10), WorkerDied)
    await link.close()
    assert died.exit_code == 7


async def test_only_the_latest_statistics_wait_for_a_slow_app(tmp_path):
    def stats(seq):
        return encode_frame(Stats(seq, 0, "eager", seq, 1, 1, 1, 1.0, 1, 1, 1, "t" * 2000))

    frames = [stats(seq) for seq in range(30)]
    frames.insert(10, encode_frame(State("running", "eager")))
    frames.append(encode_frame(Bye("quit")))
    link = scripted(tmp_path, sending(*frames))
    await link.start()
    await until(link, lambda event: True)
    await asyncio.sleep(1)
    events = await until(link, is_a(WorkerDied))
    await link.close()
    assert len(of(events, Stats)) == 1
    assert of(events, Stats)[0].seq == 29
    assert of(events, Bye)


async def test_another_protocol_version_is_refused_with_both_numbers(tmp_path):
    hello = Hello(
        PROTOCOL_VERSION + 1, 1, "cpu", "cpu", "m", "random", "fp32", 1, 1, 1, (), None, None, {}
    )
    body = sending(encode_frame(hello), encode_frame(Progress("on"))) + "time.sleep(60)\n"
    link = scripted(tmp_path, body)
    await link.start()
    events = await until(link, is_a(WorkerDied), 10)
    await link.close()
    (failure,) = of(events, Failure)
    assert failure.fatal
    assert f"protocol {PROTOCOL_VERSION + 1}, this app {PROTOCOL_VERSION}" in failure.message
    assert not of(events, Progress)
    assert events[-1].exit_code == -signal.SIGTERM


async def test_garbage_from_the_worker_is_a_fatal_failure(tmp_path):
    link = scripted(tmp_path, sending(b"\x00\x00\x00\x04abcd") + "time.sleep(60)\n")
    await link.start()
    events = await until(link, is_a(WorkerDied), 10)
    await link.close()
    assert "unreadable" in of(events, Failure)[0].message


async def test_a_worker_that_ignores_quit_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("decodescope.tui.link.process._TERMINATE_GRACE_S", 0.3)
    body = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + sending(encode_frame(Progress("deaf")))
        + "time.sleep(60)\n"
    )
    link = scripted(tmp_path, body)
    link._child.quit_grace_s = 0.3
    await link.start()
    await until(link, is_a(Progress))
    pid = link.pid
    await link.close()
    assert not alive(pid)


async def test_a_receive_that_waits_ends_when_the_link_closes(tmp_path):
    link = scripted(tmp_path, "control.recv(100)\n")
    await link.start()
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.1)
    await link.close()
    assert await asyncio.wait_for(waiting, 5) is None
    await link.send(Pause())


async def test_a_worker_may_be_started_before_there_is_an_event_loop(tmp_path):
    link = scripted(tmp_path, sending(encode_frame(Progress("early"))) + "control.recv(100)\n")
    await asyncio.to_thread(link.spawn)
    pid, folder = link.pid, link._folder.path
    await link.start()
    assert link.pid == pid
    await until(link, is_a(Progress))
    await link.close()
    assert not alive(pid)
    assert not folder.exists()


def test_a_worker_whose_app_never_ran_leaves_nothing(tmp_path):
    link = scripted(tmp_path, "time.sleep(600)\n")
    link.spawn()
    pid, folder = link.pid, link._folder.path
    link.discard()
    assert not alive(pid)
    assert not folder.exists()
    link.discard()


async def test_a_worker_that_cannot_be_started_is_dead_and_can_be_started_again(tmp_path):
    python = tmp_path / "python"
    link = WorkerLink(config("none"), argv=(str(python), "-c", "raise SystemExit(5)"))
    with pytest.raises(MissingRequirement, match=str(python)):
        link.spawn()
    await link.start()
    await link.restart()
    failure, died = await until(link, is_a(WorkerDied))
    assert (failure.exit_code, failure.fatal) == (3, True)
    assert str(python) in failure.message
    assert died == WorkerDied(3, ())
    await link.send(ChangeSettings(Settings(11, 7, model="c")))
    assert link.settings == Settings(11, 7, model="c")
    python.symlink_to(sys.executable)
    await link.restart()
    assert await until(link, is_a(WorkerDied)) == [WorkerDied(5, ())]
    await link.close()


async def test_the_app_starts_a_worker_that_could_not_be_started(tmp_path):
    link = scripted(tmp_path, sending(encode_frame(Progress("here it is"))) + "control.recv(9)\n")
    argv, link._argv = link._argv, (str(tmp_path / "none"),)
    app = DecodescopeApp(LiveSource(link), None, StillClock(), tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "the worker cannot be started" in text_of(app)
        assert "R restart it" in text_of(app)
        link._argv = argv
        await pilot.press("R")
        async with asyncio.timeout(PATIENCE_S):
            while "here it is" not in text_of(app):
                await asyncio.sleep(0.05)
                await settle(pilot)
        assert "cannot be started" not in text_of(app)
