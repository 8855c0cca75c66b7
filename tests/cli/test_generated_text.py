"""Text that a model generates, whose every token is hostile: in tables, JSON, recordings, the app
and the browser it is text."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import Stats
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.fuzzing.checkpoints import whole_checkpoint
from tests.helpers.app.serving import serving
from tests.helpers.command import Command
from tests.helpers.hostile import (
    HOSTILE,
    OWN_SEQUENCES,
    SHOWN,
    hostile_events,
    hostile_trace,
    unsafe,
)

TEXT_LINE = "[link=https://x.example]y[/link]<b>`"
PROMPT = "\x1b]0;owned\x07 \u202e"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A model all of whose tokens, also the added ones, are hostile."""
    pytest.importorskip("torch")
    files = whole_checkpoint()
    tokenizer = json.loads(files["tokenizer.json"])
    words = {f"{HOSTILE}{number}": number for number in tokenizer["model"]["vocab"].values()}
    tokenizer["model"] |= {"vocab": words, "unk_token": f"{HOSTILE}38"}
    for token in tokenizer["added_tokens"]:
        token |= {"content": f"{HOSTILE}{token['id']}", "special": False}
    folder = tmp_path / "model"
    folder.mkdir()
    for name, data in (files | {"tokenizer.json": json.dumps(tokenizer).encode()}).items():
        (folder / name).write_bytes(data)
    return str(folder)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A run whose model, variants, text and window are hostile."""
    path = tmp_path / "run.dsrec"
    with closing(RecordingWriter(path)) as writer:
        for event in hostile_events(hostile_trace(tmp_path / "window.json")):
            writer.write(event)
    return path


def test_tokens_of_a_tokenizer_are_text(decodescope: Command, checkpoint: str) -> None:
    run = ("run", "--model", checkpoint, "--device", "cpu", "--tokens", "20", "--prompt", PROMPT)
    shown = decodescope(*run)
    assert (shown.code, unsafe(shown.out + shown.err)) == (0, ""), shown.err
    assert TEXT_LINE in shown.out
    data = decodescope(*run, "--json")
    assert (data.code, unsafe(data.out)) == (0, "")
    assert HOSTILE in json.loads(data.out)["output_text"]


@pytest.mark.parametrize("page", ["step", "log", "files"])
def test_a_recording_shows_it_as_text(decodescope: Command, recording: Path, page: str) -> None:
    texts = [
        frame.message.text
        for frame in read_recording(recording).frames()
        if isinstance(frame.message, Stats)
    ]
    assert texts == [f"{HOSTILE}\n{HOSTILE}\x1b"]
    done = decodescope("open", str(recording), "--once", "--page", page, "--size", "200x60")
    assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
    assert SHOWN[:16] in done.out
    for options in ((), ("--json",)):
        analysed = decodescope("analyze", str(recording), *options)
        assert (analysed.code, unsafe(analysed.out + analysed.err)) == (0, "")


async def test_a_browser_gets_it_as_text(recording: Path) -> None:
    """What the app draws, and the messages beside it, which the page obeys."""
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("textual_serve")
    drawn = b""
    with serving(str(recording)) as served:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as client, asyncio.timeout(60):
            async with client.get(served.address) as answer:
                assert unsafe(await answer.text()) == ""
            socket = await client.ws_connect(f"{served.root}/ws?width=200&height=60")
            while TEXT_LINE.encode() not in drawn:
                message = await socket.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, message
                drawn += message.data
    assert unsafe(drawn.decode(errors="ignore"), OWN_SEQUENCES) == ""
