"""The page of `serve` in a real browser: it works, loads nothing from elsewhere, and no other page
reaches it."""

import base64
import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from decodescope.analyzer.io.files import write_atomically
from tests.helpers.app.serving import Served, serving
from tests.helpers.chromium import ANSWER_WITHIN_S, Browser, Tab
from tests.helpers.kineto_events import call, document, op
from tests.helpers.processes import children

pytest.importorskip("textual_serve")
pytestmark = pytest.mark.browser

TRACE = Path(__file__).resolve().parents[1] / "data" / "cpu_two_blocks.json.gz"
# Of kernels whose export takes longer than it takes to see that it has begun.
NAME, TIMES_NS = "planted_gemm", range(0, 400_000, 10)
FIRST_BYTE = "document.body.classList.contains('-first-byte')"


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(str(TRACE)) as started:
        yield started


@pytest.fixture
def foreign(served: Served) -> Iterator[str]:
    """A page of another port of this machine that frames the server's page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<iframe src='{served.root}/'></iframe>".encode())

        def log_message(self, *message: object) -> None:
            """Nothing."""

    # A browser also opens connections that it may need later; each would hold the only thread.
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def until_ended(process_id: int) -> None:
    end = time.monotonic() + ANSWER_WITHIN_S
    while children(process_id):
        assert time.monotonic() < end
        time.sleep(0.05)


def until_drawn(tab: Tab, text: str) -> None:
    """Wait until the app has drawn a text; the browser receives its frames as they come."""

    def drawn() -> str:
        frames = [one for one in tab.events if one["method"] == "Network.webSocketFrameReceived"]
        answers = [frame["params"]["response"] for frame in frames]
        data = [base64.b64decode(one["payloadData"]) for one in answers if one["opcode"] == 2]
        return b"".join(data).decode(errors="replace")

    end = time.monotonic() + ANSWER_WITHIN_S
    while text not in drawn():
        assert time.monotonic() < end, drawn()[-3000:]
        tab.evaluate("1")
        time.sleep(0.05)


def test_a_user_drives_the_app(browser: Browser, served: Served) -> None:
    tab = Tab(browser)
    tab.open(served.address)
    tab.until(FIRST_BYTE)
    assert tab.evaluate("location.href") == f"{served.root}/"
    assert len(children(served.process.pid)) == 1
    tab.until("[...document.fonts].some(font => font.status === 'loaded')")
    tab.evaluate("document.querySelector('.xterm-helper-textarea').focus()")
    tab.press("q")
    tab.until("document.body.classList.contains('-closed')")
    until_ended(served.process.pid)
    own = (f"{served.root}/", f"ws://127.0.0.1:{served.port}/", "data:", "blob:", "about:")
    assert [url for url in tab.requested() if not url.startswith(own)] == []
    # A machine without a GPU draws more slowly, and the browser warns of it.
    entries = [each["params"]["entry"] for each in tab.complaints() if "entry" in each["params"]]
    assert [entry for entry in entries if entry["source"] != "rendering"] == []


def test_a_page_that_is_closed_ends_its_app(browser: Browser, served: Served) -> None:
    tab = Tab(browser)
    tab.open(served.address)
    tab.until(FIRST_BYTE)
    tab.call("Page.navigate", url="about:blank")
    until_ended(served.process.pid)
    assert served.process.poll() is None


def test_a_page_that_is_closed_in_an_export_leaves_a_whole_file_or_none(
    browser: Browser, tmp_path: Path
) -> None:
    path, folder = tmp_path / "trace.json", tmp_path / "folder"
    folder.mkdir()
    pairs = ((call(at, at + 5, at), op(at + 6, at + 9, at, name=NAME)) for at in TIMES_NS)
    path.write_bytes(document([event for pair in pairs for event in pair]))
    with serving(str(path), folder=folder) as served:
        tab = Tab(browser)
        tab.open(served.address)
        tab.until(FIRST_BYTE)
        tab.evaluate("document.querySelector('.xterm-helper-textarea').focus()")
        until_drawn(tab, NAME)
        tab.press("e")
        until_drawn(tab, "Chrome trace")
        tab.press("\r")
        end = time.monotonic() + ANSWER_WITHIN_S
        while not any(folder.iterdir()):
            assert time.monotonic() < end
        tab.call("Page.navigate", url="about:blank")
        until_ended(served.process.pid)
    # What an app leaves that was ended, the next one removes when it writes there; a thread of the
    # app may have been the last to end.
    end = time.monotonic() + ANSWER_WITHIN_S
    while [*folder.glob(".*")]:
        assert time.monotonic() < end
        write_atomically(folder / "later.csv", b"")
    for file in folder.glob("*.gz"):
        assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert {file.suffix for file in folder.iterdir()} <= {".gz", ".csv"}


def test_no_other_page_frames_or_connects(browser: Browser, served: Served, foreign: str) -> None:
    own = Tab(browser)
    own.open(served.address)
    own.until(FIRST_BYTE)
    (app,) = children(served.process.pid)
    # The browser has the session's cookie, and sends it from any port of the same host.
    tab = Tab(browser)
    tab.open(foreign)
    refused = [
        event["params"]["response"]["status"]
        for event in tab.events
        if event["method"] == "Network.responseReceived"
        and event["params"]["response"]["url"] == f"{served.root}/"
    ]
    assert refused == [403]
    connected = tab.evaluate(
        "new Promise(done => {"
        f" const socket = new WebSocket('ws://127.0.0.1:{served.port}/ws');"
        " socket.onopen = () => done('open'); socket.onerror = () => done('refused'); })"
    )
    assert connected == "refused"
    assert children(served.process.pid) == [app]
