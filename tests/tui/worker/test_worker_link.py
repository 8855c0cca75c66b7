"""The app's link to a real worker process on the CPU."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    Bye,
    CaptureTrace,
    Failure,
    FrameDecoder,
    Hello,
    Pause,
    Progress,
    Resume,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
    WorkerMessage,
)
from decodescope.analyzer.readers.reading import load
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.worker import WorkerLink
from tests.helpers.app.worker import PATIENCE_S, config, is_a, of, until
from tests.helpers.processes import alive, gone


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


@pytest.mark.slow
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
        "from decodescope.analyzer.protocol.messages import Stats, WorkerConfig\n"
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
