"""Requests to servers that are slow, wrong or gone: each one line, in bounded time and memory."""

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.attach.servers.address import Address, parse_address
from decodescope.attach.servers.client import MAX_BYTES, ServerClient
from decodescope.attach.servers.tokens import Token
from tests.helpers.servers.http_server import HttpServer, Reply

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def dripping(first: bytes, each: bytes = b"x") -> Iterator[str]:
    """A server that writes `first` and then `each` every 20 ms without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        done = threading.Event()

        def serve() -> None:
            connection = listening.accept()[0]
            with connection:
                connection.recv(4096)
                try:
                    connection.sendall(first)
                    while not done.wait(0.02):
                        connection.sendall(each)
                except OSError:  # the client has closed
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def client(url: str, limit_s: float = 10.0) -> ServerClient:
    return ServerClient(parse_address(url), limit_s=limit_s)


def line_of(client: ServerClient, path: str = "/metrics") -> str:
    with pytest.raises(DecodescopeError) as caught:
        client.get(path).required()
    line = str(caught.value)
    assert line.isprintable()
    assert line.startswith(client.address.url)
    assert "; " in line  # what to do
    return line


def test_a_request_brings_the_path_the_body_and_the_token() -> None:
    with HttpServer(lambda request: Reply(b"yes")) as server:
        asking = ServerClient(Address("http", "127.0.0.1", server.port, "/a"), Token("Bearer t"))
        assert asking.post("/start", {"steps": 3}).body == b"yes"
        assert asking.get("/metrics").body == b"yes"
    post, get = server.requests
    assert (post.path, post.body, post.headers["Authorization"]) == (
        "/a/start",
        b'{"steps":3}',
        "Bearer t",
    )
    assert (get.path, get.body) == ("/a/metrics", b"")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "asks for a token"),
        (403, "refuses the one that was given (403)"),
        (404, "has no such endpoint (404)"),
        (500, "answers 500: out of \\x1b memory; its log says why"),
        (503, "answers 503"),
    ],
)
def test_each_status_is_one_line(status: int, said: str) -> None:
    with HttpServer(lambda request: Reply(b"out of \x1b memory", status)) as server:
        assert said in line_of(client(server.url))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "closed the connection"),
        (b"\x16\x03\x01garbage\r\n\r\n", "is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP"),
        (OK + b"Content-Length: 90\r\n\r\nshort", "closed the connection"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "closed the connection"),
        (OK + b"x" * 70_000 + b"\r\n\r\n", "is not HTTP"),
        (OK + b"a: b\r\n" * 500 + b"\r\n", "is not HTTP"),
    ],
)
def test_what_is_no_answer_is_one_line(raw: bytes, said: str) -> None:
    with HttpServer(lambda request: Reply(raw=raw)) as server:
        assert said in line_of(client(server.url))


@pytest.mark.parametrize(
    ("first", "each"),
    [
        (b"", b""),
        (OK + b"X-Slow: ", b"x"),
        (OK + b"\r\n", b"x"),
        (OK + b"Content-Length: 999999\r\n\r\n", b"x"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["nothing", "headers", "body", "length", "chunks", "continue"],
)
def test_an_answer_that_never_ends_has_a_limit(first: bytes, each: bytes) -> None:
    begin = time.monotonic()
    with dripping(first, each) as url:
        assert "no whole answer within 0.3 s" in line_of(client(url, 0.3))
    assert time.monotonic() - begin < 5


def test_100_mb_are_refused_by_their_length_without_reading_them() -> None:
    head = OK + b"Content-Length: 100000000\r\n\r\n"
    with dripping(head) as url:  # which never sends them
        assert "has more than 16 MB" in line_of(client(url))


def test_100_mb_without_a_length_are_read_up_to_the_limit() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        with connection:
            connection.recv(4096)
            connection.sendall(OK + b"\r\n")
            try:
                while sent < 100 << 20:
                    sent += connection.send(b"x" * (1 << 16))
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: endless(listening.accept()[0]))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert "has more than 16 MB" in line_of(client(url))
        thread.join()
    assert MAX_BYTES < sent < 3 * MAX_BYTES


def test_nobody_listens_and_no_such_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert "nothing listens there" in line_of(client(f"http://127.0.0.1:{port}"))
    assert "name of the host is not known" in line_of(client("http://nowhere.invalid:1"))


def test_a_slow_name_service_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: answered.wait(30))
    begin = time.monotonic()
    assert "no whole answer within 0.1 s" in line_of(client("http://slow:1", 0.1))
    assert time.monotonic() - begin < 5
    answered.set()


def test_a_redirect_is_followed_on_the_same_server_only() -> None:
    def answer(request: object) -> Reply:
        path = server.requests[-1].path
        target = {"/metrics": "/metrics/", "/round": "/round"}.get(path, "http://evil.example/m")
        if path == "/metrics/":
            return Reply(b"here")
        return Reply(b"", 307, {"Location": target})

    with HttpServer(answer) as server:
        asking = ServerClient(parse_address(server.url), Token("Bearer sk-abc"))
        assert asking.get("/metrics").body == b"here"
        with pytest.raises(InputError, match=r"redirects to http://evil.example/m; give"):
            asking.get("/elsewhere")
        with pytest.raises(InputError, match="redirects without end"):
            asking.get("/round")
        with pytest.raises(InputError, match="redirects a POST"):
            asking.post("/elsewhere")


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with HttpServer(lambda request: Reply(b"direct")) as server:
        assert client(server.url).get("/metrics").body == b"direct"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=test", "-addext"]
    command += ["subjectAltName=IP:127.0.0.1", "-out", names[0], "-keyout", names[1]]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl, to make a certificate")
    return names


def test_a_certificate_is_checked_and_one_may_be_named(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with HttpServer(lambda request: Reply(b"secret"), context) as server:
        line = line_of(client(server.url))
        assert "certificate is not accepted (self-signed certificate); use" in line
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", os.fspath(certificate[0]))
        assert client(server.url).get("/metrics").body == b"secret"
        wrong_name = server.url.replace("127.0.0.1", "localhost")
        assert "certificate is not accepted (Hostname mismatch" in line_of(client(wrong_name))


def test_http_and_https_confused_is_said() -> None:
    with HttpServer(lambda request: Reply(b"")) as server:
        assert "does not speak TLS" in line_of(client(server.url.replace("http:", "https:")))


def test_another_fault_of_tls_gives_no_advice_to_go_without(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token would go unencrypted. This server wants a certificate of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(certificate[0]))
    with HttpServer(lambda request: Reply(b""), context) as server:
        line = line_of(client(server.url))
    assert "http://" not in line
    assert "TLS fails" in line


@pytest.mark.parametrize(
    ("status", "headers"),
    [(500, {}), (200, {}), (302, {"Location": "http://elsewhere:9/?t=Bearer sk-hunter2"})],
)
def test_a_token_that_the_server_echoes_is_shown_nowhere(
    status: int, headers: dict[str, str]
) -> None:
    with HttpServer(lambda request: Reply(b"bad Bearer sk-hunter2", status, headers)) as server:
        asking = ServerClient(parse_address(server.url), Token("Bearer sk-hunter2"))
        with pytest.raises(DecodescopeError) as caught:
            asking.get("/metrics").required().json(dict[str, str])
    assert server.requests[0].headers["Authorization"] == "Bearer sk-hunter2"
    assert "hunter2" not in str(caught.value)
    assert "Bearer …" in str(caught.value)


def test_a_redirect_that_is_no_url_is_one_line() -> None:
    with HttpServer(lambda request: Reply(b"", 302, {"Location": "//[::"})) as server:
        assert "redirects to //[::" in line_of(client(server.url))


def test_json_of_another_shape_is_one_line() -> None:
    with (
        HttpServer(lambda request: Reply(b"<html>\x07 nginx")) as server,
        pytest.raises(InputError, match=r"is not what such a server sends \(<html>\\x07 nginx"),
    ):
        client(server.url).get("/version").json(dict[str, str])


def test_a_refusal_is_a_missing_requirement() -> None:
    with HttpServer(lambda request: Reply(b"", 500)) as server:
        answer = client(server.url).get("/metrics")
    with pytest.raises(MissingRequirement):
        answer.required()
