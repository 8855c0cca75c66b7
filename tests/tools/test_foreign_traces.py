"""Traces recorded by others are downloaded whole or not at all; the server here is on loopback."""

import hashlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_sessionfinish
from tests.helpers.foreign.traces import COMMAND, FOLDERS, trace_folder
from tools import foreign_traces
from tools.foreign_traces import (
    FOLDER,
    HOST,
    ForeignTrace,
    ForeignTraces,
    Source,
    is_intact,
    listed_traces,
    main,
)

Answer = Callable[[http.server.BaseHTTPRequestHandler, bytes], None]
ONE, TWO = b"the first trace" * 1000, b"the second trace" * 9000


def whole(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def cut_off(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[:-10])


def other(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, data[::-1])


def longer(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, data + b"!")


def absent(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    handler.send_error(404)


def no_http(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(b"SSH-2.0\r\n")


def reset(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
    """The connection ends before an answer."""


@dataclass
class Server:
    """What a server has, how it answers for a path, and what it was asked for."""

    source: Source
    files: dict[str, bytes]
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)


def silent(server: Server) -> Answer:
    """No answer before the end of the test."""
    return lambda handler, data: server.stopping.wait(30) and None


def trickling(server: Server) -> Answer:
    """A byte now and then, each before the server counts as silent."""

    def answer(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        while not server.stopping.wait(0.02):
            handler.wfile.write(b"x")

    return answer


def listed(name: str, data: bytes) -> ForeignTrace:
    digest = hashlib.sha256(data).hexdigest()
    return ForeignTrace(name, "someone/something", "c0ffee", f"data/{name}", len(data), digest)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server on loopback that has both traces of the list."""
    traces = ForeignTraces((listed("one.gz", ONE), listed("two.db", TWO)), ("ours.gz",))
    monkeypatch.setattr(foreign_traces, "listed_traces", lambda: traces)
    monkeypatch.setenv("no_proxy", "*")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.asked.append(self.path)
            answer = known.answers.get(self.path, whole)
            try:
                answer(self, known.files.get(self.path, b""))
            except ConnectionError:  # the client went away
                self.close_connection = True

        def log_message(self, format: str, *arguments: object) -> None: ...

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    host = f"http://127.0.0.1:{httpd.server_port}"
    files = {place(name): data for name, data in (("one.gz", ONE), ("two.db", TWO))}
    known = Server(Source(host, silence_s=0.5, whole_s=1), files)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield known
    known.stopping.set()
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def place(name: str) -> str:
    return f"/someone/something/c0ffee/data/{name}"


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def run(server: Server, folder: Path) -> int:
    return main(["--folder", str(folder)], server.source)


def test_every_trace_is_there_afterwards(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a" / "b"
    assert run(server, folder) == 0
    assert held(folder) == {"one.gz": ONE, "two.db": TWO}
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"{folder}/one.gz: 15,000 bytes from someone/something",
        f"{folder}/two.db: 144,000 bytes from someone/something",
        "ours.gz: in no public repository; its tests are skipped",
    ]


def test_only_what_is_missing_or_damaged_is_downloaded_again(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.gz").write_bytes(ONE)
    (tmp_path / "two.db").write_bytes(TWO[:-1] + b"?")
    (tmp_path / "ours.gz").write_bytes(b"mine")
    assert run(server, tmp_path) == 0
    assert server.asked == [place("two.db")]
    assert held(tmp_path) == {"one.gz": ONE, "two.db": TWO, "ours.gz": b"mine"}
    first, _ = capsys.readouterr().err.splitlines()
    assert first == "one.gz: already there"


@pytest.mark.parametrize(
    ("answer", "code", "complaint"),
    [
        (absent, 3, "answers 404 Not Found"),
        (cut_off, 2, "sent only 143,990 of 144,000 bytes; nothing was kept"),
        (longer, 2, "sent more of 144,000 bytes; nothing was kept"),
        (other, 2, f"expected {hashlib.sha256(TWO).hexdigest()}; nothing was kept"),
        (no_http, 3, "cannot be reached (SSH-2.0"),
        (reset, 3, "cannot be reached (Remote end closed connection"),
    ],
    ids=["404", "cut off", "longer", "other", "no http", "reset"],
)
def test_a_bad_answer_is_one_line_and_keeps_nothing(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: Answer,
    code: int,
    complaint: str,
) -> None:
    server.answers[place("two.db")] = answer
    assert run(server, tmp_path) == code
    assert held(tmp_path) == {"one.gz": ONE}
    _, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"foreign traces: two.db: {server.source.host}{place('two.db')} ")
    assert complaint in line


@pytest.mark.parametrize("slow", [silent, trickling])
def test_a_slow_server_is_given_up(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    slow: Callable[[Server], Answer],
) -> None:
    server.answers[place("one.gz")] = slow(server)
    assert run(server, tmp_path) == 3
    assert held(tmp_path) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("one.gz takes too long; try again later")


def test_without_a_network_one_line_says_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:  # bound, and nobody listens
        unused.bind(("127.0.0.1", 0))
        host = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert main(["--folder", str(tmp_path)], Source(host)) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("foreign traces: one.gz: ")
    assert "Connection refused" in line
    assert line.endswith("connect to the network and try again")
    assert held(tmp_path) == {}


def test_a_full_disk_and_a_folder_that_is_a_file_are_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert run(server, tmp_path / "file" / "folder") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("cannot be created (Not a directory)")
    if Path("/dev/full").exists():
        folder = tmp_path / "full"
        folder.mkdir()
        (folder / "one.gz").symlink_to("/dev/full")
        assert run(server, folder) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert (
            line == f"foreign traces: {folder}/one.gz: cannot be written (No space left on device)"
        )


def test_an_interruption_keeps_what_is_whole(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received = foreign_traces._received

    def interrupted(url: str, trace: ForeignTrace, source: Source) -> bytes:
        if trace.name == "two.db":
            raise KeyboardInterrupt
        return received(url, trace, source)

    monkeypatch.setattr(foreign_traces, "_received", interrupted)
    assert run(server, tmp_path) == 130
    assert held(tmp_path) == {"one.gz": ONE}
    _, line = capsys.readouterr().err.splitlines()
    assert line == "foreign traces: interrupted; start again to get the rest"


def test_the_list_names_every_trace_at_a_commit() -> None:
    traces = listed_traces()
    names = [*(trace.name for trace in traces.traces), *traces.unpublished]
    assert len(set(names)) == len(names) == 10
    for trace in traces.traces:
        assert len(bytes.fromhex(trace.commit)) == 20
        assert trace.repository.count("/") == 1
    assert HOST.startswith("https://")


def test_the_listed_hashes_are_those_of_the_traces_that_tests_read(foreign_traces: Path) -> None:
    for trace in listed_traces().traces:
        assert is_intact(trace, foreign_traces / trace.name)


def test_tests_look_where_the_traces_are_written(tmp_path: Path) -> None:
    assert FOLDERS[-1] == FOLDER
    first, last = tmp_path / "first", tmp_path / "last"
    assert trace_folder((first, last)) == last
    first.mkdir()
    (first / "one.gz").write_bytes(ONE)
    folder = trace_folder((first, last))
    assert folder / "one.gz" == first / "one.gz"
    with pytest.raises(pytest.skip.Exception, match=f"needs the foreign trace two.db, .* {first}"):
        folder / "two.db"


class Reporter:
    """A terminal's reporter with the outcomes of a session."""

    def __init__(self, *reasons: str) -> None:
        self.stats = {"skipped": [SimpleNamespace(longrepr=("f.py", 1, one)) for one in reasons]}
        self.lines: list[str] = []

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(("missing", "says"), [(0, None), (1, "1 test"), (2, "2 tests")])
def test_the_last_line_says_what_to_run(missing: int, says: str | None) -> None:
    skipped = "Skipped: needs the foreign trace a.gz, which is not in b"
    reporter = Reporter("Skipped: needs a CUDA device", *[skipped] * missing)
    manager = SimpleNamespace(get_plugin={"terminalreporter": reporter}.get)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=manager))
    finishing = pytest_sessionfinish(session)
    next(finishing)
    assert reporter.lines == []
    assert next(finishing, None) is None
    rest = f"skipped for want of traces by others; {COMMAND} gets those that are public"
    assert reporter.lines == ([] if says is None else [f"{says} {rest}"])
