"""`serve`: the app in a browser on this machine, for its own pages only."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.cli.serve import open_command
from decodescope.cli.streams import standard_streams
from tests.helpers.app.serving import Served, free_port, serving
from tests.helpers.command import Command
from tests.helpers.processes import children, gone
from tests.helpers.scripted import hello, stats

aiohttp = pytest.importorskip("aiohttp")
web = pytest.importorskip("aiohttp.web")
pytest.importorskip("textual_serve")

from decodescope.cli.app import MAX_CELLS  # noqa: E402
from decodescope.cli.app_server import HOST, AppServer  # noqa: E402

TRACE = Path(__file__).resolve().parents[1] / "data" / "cpu_two_blocks.json.gz"
PATIENCE_S = 60.0


@asynccontextmanager
async def browsers(served: Served, count: int = 1) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Browsers that have opened the printed address, each with its own cookies."""
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(count):
            # The cookies of an address without a name are kept as well.
            jar = aiohttp.CookieJar(unsafe=True)
            client = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
            async with client.get(served.address) as answer:
                assert (answer.status, str(answer.url)) == (200, f"{served.root}/")
            clients.append(client)
        yield clients


@pytest.fixture(scope="module")
def asked() -> Iterator[Served]:
    """A server that tests ask, and leave as it was."""
    with serving(str(TRACE)) as started:
        yield started


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of a trace whose name is for shells to stumble on."""
    trace = tmp_path / "two $(words); 'quoted'.json.gz"
    trace.write_bytes(TRACE.read_bytes())
    with serving(str(trace)) as started:
        assert " shows two $(words)" in started.said
        assert "who has this address" in started.said
        yield started


async def socket_of(
    served: Served, client: aiohttp.ClientSession, size: str = "width=100&height=30", **more: str
) -> aiohttp.ClientWebSocketResponse:
    return await client.ws_connect(f"{served.root}/ws?{size}", **more)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.05)


async def fetched(
    client: aiohttp.ClientSession, url: str, **headers: str
) -> tuple[int, str, Mapping[str, str]]:
    """The status, the text and the headers of an answer."""
    async with client.get(url, headers=headers) as answer:
        return answer.status, (await answer.read()).decode(errors="replace"), answer.headers


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
    """The arguments of a process, each ended by a zero byte; "" of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_each_browser_has_an_app_of_its_own_which_ends_with_it(served: Served) -> None:
    async with browsers(served, 2) as (one, other):
        _, page, _ = await fetched(one, served.root)
        assert f"ws://127.0.0.1:{served.port}/ws" in page
        assert "https:" not in page
        first = await socket_of(served, one, origin=served.root)
        await until_drawn(first, b"two-blocks")
        second = await socket_of(served, other)
        await until_drawn(second, b"two-blocks")
        assert len(children(served.process.pid)) == 2
        await first.close()
        await until(lambda: len(children(served.process.pid)) == 1)
        apps = children(served.process.pid)
        served.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(served.process.wait, PATIENCE_S) == 143
        assert all(gone(app) for app in apps)


async def test_a_browser_that_opens_the_page_again_has_one_app(served: Served) -> None:
    async with browsers(served) as (browser,):
        first = await socket_of(served, browser)
        await until_drawn(first, b"two-blocks")
        (before,) = children(served.process.pid)
        second = await socket_of(served, browser)
        await until_drawn(second, b"two-blocks")
        await until(lambda: gone(before))
        assert len(children(served.process.pid)) == 1
        while not (await first.receive()).type.name.startswith("CLOS"):
            pass


@asynccontextmanager
async def scripted_apps(
    app: str, sessions: int
) -> AsyncIterator[tuple[str, list[aiohttp.ClientSession], web.AppRunner]]:
    """A server in this process of at most two apps, which are Python, with its sessions."""
    app = f"import sys; print('__GANGLION__', flush=True); {app}"
    server = AppServer([sys.executable, "-c", app], port := free_port(), most_apps=2)
    root, runner = f"http://{HOST}:{port}", web.AppRunner(server.application())
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        clients = []
        for _ in range(sessions):
            jar = aiohttp.CookieJar(unsafe=True)
            client = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
            await fetched(client, f"{root}/?token={server.guard.token}")
            clients.append(client)
        yield root, clients, runner


async def test_the_number_of_apps_is_bounded() -> None:
    def running() -> int:
        return sum("__GANGLION__" in command_line(pid) for pid in children(os.getpid()))

    async with scripted_apps("sys.stdin.buffer.read(1)", 3) as (root, clients, runner):
        first, _ = [await client.ws_connect(f"{root}/ws") for client in clients[:2]]
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await clients[2].ws_connect(f"{root}/ws")
        await until(lambda: running() == 2)
        await first.close()
        await until(lambda: running() == 1)
        await asyncio.sleep(0.1)
        await clients[2].ws_connect(f"{root}/ws")
        await until(lambda: running() == 2)
        await runner.cleanup()
    assert running() == 0


async def test_what_an_app_says_is_plain_text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    app = r"sys.stderr.buffer.write(b'\x1b]0;title\x07 \xe2\x82\xac \xff\n' * 9000)"
    with standard_streams():
        async with scripted_apps(app, 1) as (root, (client,), _):
            socket_ = await client.ws_connect(f"{root}/ws")
            async with asyncio.timeout(PATIENCE_S):
                while not socket_.closed:
                    await socket_.receive()
    out, err = capsys.readouterr()
    assert err == "\\x1b]0;title\\x07 € \ufffd\n" * 9000
    assert out == ""


async def test_an_app_ends_when_its_server_is_killed(served: Served) -> None:
    async with browsers(served) as (browser,):
        await until_drawn(await socket_of(served, browser), b"two-blocks")
        (app,) = children(served.process.pid)
        served.process.kill()
        await until(lambda: gone(app))


async def test_an_app_that_hangs_is_ended(served: Served) -> None:
    async with browsers(served) as (browser,):
        socket_ = await socket_of(served, browser)
        await until_drawn(socket_, b"two-blocks")
        (app,) = children(served.process.pid)
        os.kill(app, signal.SIGSTOP)
        await socket_.close()
        await until(lambda: gone(app))
        assert served.process.poll() is None


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        ("width=100000&height=100000", (MAX_CELLS, MAX_CELLS)),
        ("width=-5&height=0", (80, 1)),
        ("width=nine&height=%00", (80, 24)),
        ("", (80, 24)),
    ],
)
async def test_the_size_that_a_page_asks_for_is_clamped(
    asked: str, size: tuple[int, int], served: Served
) -> None:
    async with browsers(served) as (browser,):
        socket_ = await socket_of(served, browser, asked)
        environment = b""

        def has_begun() -> bool:
            nonlocal environment
            for app in children(served.process.pid):
                environment = Path(f"/proc/{app}/environ").read_bytes()
            return b"ROWS=" in environment

        await until(has_begun)
        variables = dict(each.split(b"=", 1) for each in environment.split(b"\0") if each)
        assert (int(variables[b"COLUMNS"]), int(variables[b"ROWS"])) == size
        await socket_.close()


async def test_a_malformed_message_ends_the_connection_in_silence(served: Served) -> None:
    messages = ("[" * 9999, b"\x00")
    async with browsers(served) as (browser,):
        for message in messages:
            socket_ = await socket_of(served, browser)
            send = socket_.send_bytes if isinstance(message, bytes) else socket_.send_str
            await send(message)
            async with asyncio.timeout(PATIENCE_S):
                while not socket_.closed:
                    await socket_.receive()
            assert socket_.close_code == aiohttp.WSCloseCode.UNSUPPORTED_DATA, message
        await until_drawn(await socket_of(served, browser), b"two-blocks")
    served.process.send_signal(signal.SIGTERM)
    _, said = await asyncio.to_thread(served.process.communicate)
    assert said.strip() == ""


async def test_browsers_follow_a_run_each_by_itself_and_start_none(tmp_path: Path) -> None:
    path = tmp_path / "run.dsrec"
    with closing(RecordingWriter(path)) as writer, serving(str(path)) as served:
        for message in (hello(), State("running", "eager"), stats(1, tokens_per_s=11.5)):
            writer.write(message)
        assert "shows run.dsrec (as it is recorded)" in served.said
        async with browsers(served, 3) as clients:
            sockets = [await socket_of(served, client) for client in clients[:2]]
            for socket_ in sockets:
                await until_drawn(socket_, b"following")
            commands = [command_line(pid) for pid in descendants(served.process.pid)]
            assert sum(f"open\0{path}" in command for command in commands) == 2
            assert not any("worker" in command for command in commands)
            await sockets[0].close()
            await asyncio.sleep(0.3)
            writer.write(stats(2, tokens_per_s=98.5))
            await until_drawn(sockets[1], b"98.5")
            writer.close()
            await until_drawn(sockets[1], b"ended")
            # The same name, and the finished file by now.
            await until_drawn(await socket_of(served, clients[2]), b"98.5")


async def test_pages_of_others_cannot_connect(asked: Served) -> None:
    foreign = (
        {"Origin": "http://evil.example"},
        {"Host": f"evil.example:{asked.port}"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        # A page of another port of this machine.
        {"Sec-Fetch-Site": "same-site"},
    )
    async with browsers(asked) as (browser,):
        for path in ("/ws", "/", "/page.css", "/static/js/textual.js", "/download/1"):
            for headers in foreign:
                status, _, _ = await fetched(browser, asked.root + path, **headers)
                assert status == 403, (path, headers)
        for headers in ({}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}):
            assert (await fetched(browser, f"{asked.root}/", **headers))[0] == 200
    assert children(asked.process.pid) == []


async def test_only_who_has_the_address_gets_a_page(asked: Served) -> None:
    paths = (
        "/",
        "/ws",
        "/page.css",
        "/static/js/textual.js",
        "/download/1",
        "/static/",
        "/?token=",
        "/?token=guess",
        "/ws?" + asked.address.split("?")[1],
    )
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as stranger:
        for path in paths:
            status, text, _ = await fetched(stranger, asked.root + path)
            assert status == 403, path
            assert "open the address" in text
        forged = {"Cookie": f"decodescope-{asked.port}=guess"}
        assert (await fetched(stranger, asked.root, **forged))[0] == 403
        async with stranger.get(asked.address, allow_redirects=False) as answer:
            (cookie,) = answer.headers.getall("Set-Cookie")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "token" not in answer.headers["Location"]
    assert children(asked.process.pid) == []


async def test_every_answer_says_what_a_page_may_do(asked: Served) -> None:
    async with browsers(asked) as (browser,):
        for path in ("/", "/page.css", "/static/js/textual.js", "/none", "/?token=guess"):
            _, _, headers = await fetched(browser, asked.root + path)
            policy = headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in policy, path
            assert "default-src 'none'" in policy
            hosts = re.findall(r"\w+://[^ ;]+", policy)
            assert {host.partition("://")[2] for host in hosts} == {
                f"127.0.0.1:{asked.port}",
                f"localhost:{asked.port}",
            }
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"


async def test_all_that_the_page_loads_is_of_this_server(asked: Served) -> None:
    async with browsers(asked) as (browser,):
        _, page, _ = await fetched(browser, asked.root)
        _, style, _ = await fetched(browser, f"{asked.root}/page.css")
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page) + re.findall(
            r'url\("([^"]+)"\)', style
        )
        assert len(loaded) >= 5
        for path in set(loaded) - {"data:,"}:
            assert path.startswith("/")
            assert (await fetched(browser, asked.root + path))[0] == 200, path


def test_it_listens_on_the_loopback_only(asked: Served) -> None:
    port = asked.port
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
    start = [sys.executable, "-P", "-m", "decodescope", "open"]
    assert open_command(names) == [*start, *map(str, names)]
