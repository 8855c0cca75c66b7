"""`serve`: the app in a browser on this machine, for its own pages only."""

import asyncio
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.cli.serve import open_command
from tests.helpers.command import Command
from tests.helpers.processes import children, gone
from tests.helpers.scripted import hello, stats

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

TRACE = Path(__file__).resolve().parents[1] / "data" / "cpu_two_blocks.json.gz"
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of a trace whose name is for shells to stumble on."""
    trace = tmp_path / "two $(words); 'quoted'.json.gz"
    trace.write_bytes(TRACE.read_bytes())
    port = free_port()
    command = [sys.executable, "-m", "decodescope", "serve", str(trace), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(f"http://127.0.0.1:{port} shows two $(words)")
    assert "every user of this machine" in line
    yield process, port
    process.kill()
    process.wait()
    process.stderr.close()


async def until_drawn(socket_: aiohttp.ClientWebSocketResponse, text: bytes) -> None:
    drawn = b""
    async with asyncio.timeout(PATIENCE_S):
        while text not in drawn:
            message = await socket_.receive()
            assert message.type is aiohttp.WSMsgType.BINARY, message
            drawn += message.data


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def command_line(pid: int) -> str:
    """The arguments of a process, each ended by a zero byte; those of a shell are none."""
    arguments = Path(f"/proc/{pid}/cmdline").read_text()
    return "" if arguments.startswith("/bin/sh\0") else arguments


async def test_each_browser_has_an_app_of_its_own_which_ends_with_it(served) -> None:
    process, port = served
    address = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as browser:
        page = await (await browser.get(address)).text()
        assert f"ws://127.0.0.1:{port}/ws" in page
        first = await browser.ws_connect(f"{address}/ws?width=100&height=30", origin=address)
        await until_drawn(first, b"two-blocks")
        second = await browser.ws_connect(f"{address}/ws?width=100&height=30")
        await until_drawn(second, b"two-blocks")
        apps = children(process.pid)
        assert len(apps) == 2
        await first.close()
        end = time.monotonic() + PATIENCE_S
        while len(children(process.pid)) > 1:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE_S) == 143
        assert all(gone(app) for app in apps)


async def test_browsers_follow_a_run_each_by_itself_and_start_none(tmp_path: Path) -> None:
    path, port = tmp_path / "run.dsrec", free_port()
    command = [sys.executable, "-m", "decodescope", "serve", str(path), "--port", str(port)]
    with (
        closing(RecordingWriter(path)) as writer,
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
    ):
        for message in (hello(), State("running", "eager"), stats(1, tokens_per_s=11.5)):
            writer.write(message)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "shows run.dsrec (as it is recorded) to every user of this machine" in said
        address = f"http://127.0.0.1:{port}"
        try:
            async with aiohttp.ClientSession() as client:
                browsers = [
                    await client.ws_connect(f"{address}/ws?width=100&height=30") for _ in range(2)
                ]
                for browser in browsers:
                    await until_drawn(browser, b"following")
                commands = [command_line(pid) for pid in descendants(process.pid)]
                assert sum(f"open\0{path}" in command for command in commands) == 2
                assert not any("worker" in command for command in commands)
                await browsers[0].close()
                await asyncio.sleep(0.3)
                writer.write(stats(2, tokens_per_s=98.5))
                await until_drawn(browsers[1], b"98.5")
                writer.close()
                await until_drawn(browsers[1], b"ended")
                # The same name, and the finished file by now.
                late = await client.ws_connect(f"{address}/ws?width=100&height=30")
                await until_drawn(late, b"98.5")
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait, PATIENCE_S)


async def test_pages_of_others_cannot_connect(served) -> None:
    _, port = served
    address = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as browser:
        for headers in ({"Origin": "http://evil.example"}, {"Host": f"evil.example:{port}"},
                        {"Origin": "null"}):  # fmt: skip
            answer = await browser.get(f"{address}/ws", headers=headers)
            assert answer.status == 403, headers
        assert (await browser.get(f"http://localhost:{port}/")).status == 200


def test_it_listens_on_the_loopback_only(served) -> None:
    _, port = served
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]


def test_a_port_that_is_in_use_is_one_line(fresh_decodescope: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = fresh_decodescope("serve", str(TRACE), "--port", port)
    assert done.code == 2
    assert f"--port {port}: is in use" in done.only_line


def test_what_cannot_be_served_is_one_line(decodescope: Command, tmp_path: Path) -> None:
    assert "no such file" in decodescope("serve", str(tmp_path / "none.json")).only_line
    assert "each browser reads it" in decodescope("serve", "-").only_line


def test_without_textual_serve_the_line_to_install_it(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    done = decodescope("serve", str(TRACE))
    assert done.code == 3
    assert "pip install '.[serve]'" in done.only_line


def test_the_served_command_opens_the_files_whatever_their_names(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("-x.json", "a b'c\"d$(e).json", "\n")]
    words = shlex.split(open_command(names))
    assert words == [sys.executable, "-m", "decodescope", "open", *map(str, names)]
