"""HTTP requests to a server: bounded in time and in size, and never to another host."""

import http.client
import socket
import ssl
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.text.plain import plain_line
from decodescope.attach.deadline import conversation
from decodescope.attach.servers.address import Address, parse_address
from decodescope.attach.servers.tokens import Token

T = TypeVar("T")

# With its own start, a command says within 10 s that a server is silent.
LIMIT_S = 9.0
# The metrics of a large deployment are below 2 MB.
MAX_BYTES = 16 << 20
_CHUNK_BYTES = 64 << 10
_MAX_REDIRECTS = 3
_MAX_SHOWN = 120
# What OpenSSL says of an answer that is no record of TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request for `url`; `location` is where it redirects to."""

    url: str
    status: int
    body: bytes
    location: str | None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def required(self) -> "Answer":
        """The answer itself if it is a success.

        Raises:
            MissingRequirement: the server refuses, or fails.
        """
        if self.is_success:
            return self
        raise MissingRequirement(f"{self.url}: {self._refusal()}")

    def json(self, kind: type[T]) -> T:
        """The body as a `kind`, from JSON.

        Raises:
            InputError: the body is something else.
        """
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InputError(
                f"{self.url}: the answer is not what such a server sends "
                f"({self._beginning() or 'nothing'}); check the URL"
            ) from None

    def _refusal(self) -> str:
        if self.status in (401, 403):
            return (
                f"the server asks for a token, or refuses the one that was given ({self.status}); "
                "give its token in a file or in an environment variable"
            )
        if self.status == 404:
            return "the server has no such endpoint (404); check the URL"
        beginning = f": {text}" if (text := self._beginning()) else ""
        return f"the server answers {self.status}{beginning}; its log says why"

    def _beginning(self) -> str:
        return plain_line(self.body[:_MAX_SHOWN].decode(errors="replace").strip())


@dataclass(frozen=True, slots=True)
class ServerClient:
    """Requests to the server at `address`. A request opens a connection and closes it within
    `limit_s`."""

    address: Address
    token: Token | None = None
    limit_s: float = LIMIT_S

    def get(self, path: str) -> Answer:
        """The answer to `GET path`; a redirect to another path of the same server is followed.

        Raises:
            MissingRequirement: no answer within the time.
            InputError: the answer is not HTTP, is too large, or is a redirect to another server.
        """
        target = path
        for _ in range(_MAX_REDIRECTS):
            answer = self._request("GET", target, None, self.limit_s)
            if answer.location is None:
                return answer
            target = self._same_server(answer.url, answer.location)
        raise InputError(f"{self.address.url}{path}: redirects without end; check the URL")

    def post(self, path: str, body: object = None, limit_s: float | None = None) -> Answer:
        """The answer to `POST path` with `body` as JSON; raises as `get`."""
        data = None if body is None else msgspec.json.encode(body)
        limit = self.limit_s if limit_s is None else limit_s
        answer = self._request("POST", path, data, limit)
        if answer.location is not None:
            raise InputError(f"{answer.url}: redirects a POST; give the URL of the server itself")
        return answer

    def _request(self, method: str, path: str, body: bytes | None, limit_s: float) -> Answer:
        url, address = f"{self.address.url}{path}", self.address
        talk = partial(self._answer, url, method, f"{address.path}{path}", body)
        try:
            return conversation(
                address.host, address.port, limit_s, talk, address.scheme == "https"
            )
        except (OSError, HTTPException, UnicodeError) as error:
            raise _as_ours(error, url, limit_s) from None

    def _answer(
        self, url: str, method: str, path: str, body: bytes | None, raw: socket.socket
    ) -> Answer:
        connection = HTTPConnection(self.address.host, self.address.port)
        connection.sock = raw
        headers = {"Accept-Encoding": "identity", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = self.token.header
        connection.request(method, path, body, headers)
        with connection.getresponse() as response:
            redirects = 300 <= response.status < 400
            location = response.getheader("Location") if redirects else None
            body = _body(response, url)
        if self.token is not None:
            # What is shown, recorded or read of an answer is read from here.
            body = self.token.taken_from(body)
            location = location and self.token.taken_from(location.encode()).decode()
        return Answer(url, response.status, body, location)

    def _same_server(self, url: str, moved: str) -> str:
        """The path to which `moved` redirects a request for `url`."""
        try:
            target = urljoin(url, moved)
            there = parse_address(target)
            is_here = replace(there, path=self.address.path) == self.address
            new_path = urlsplit(target).path if is_here else ""
        except (InputError, ValueError):
            new_path = ""
        if not new_path.startswith(f"{self.address.path}/"):
            shown = plain_line(moved.rpartition("@")[2])[:_MAX_SHOWN]
            raise InputError(f"{url}: redirects to {shown}; give the URL of the server itself")
        return new_path.removeprefix(self.address.path)


def _body(response: HTTPResponse, url: str) -> bytes:
    too_large = InputError(
        f"{url}: the answer has more than {MAX_BYTES >> 20} MB, which no such server sends; check "
        "the URL"
    )
    if response.length is not None and response.length > MAX_BYTES:
        raise too_large
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_BYTES:
            raise too_large
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return bytes(body)


def _as_ours(error: Exception, url: str, limit_s: float) -> InputError | MissingRequirement:
    """An error of a connection as a line that says what to do."""
    match error:
        case TimeoutError():
            failure = f"no whole answer within {limit_s:g} s; see whether the server still works"
        case ConnectionRefusedError():
            failure = "nothing listens there; start the server, or check the host and the port"
        case socket.gaierror() | UnicodeError():
            failure = "the name of the host is not known; check it"
        case ssl.SSLCertVerificationError():
            failure = (
                f"its certificate is not accepted ({plain_line(error.verify_message)}); use the "
                "host name that the certificate is for, or name the file of its authority in "
                "SSL_CERT_FILE"
            )
        case ssl.SSLError() if error.reason in _NO_TLS:
            failure = "the server does not speak TLS; give it as http://"
        case ssl.SSLError():
            failure = (
                f"TLS fails ({plain_line(error.reason or 'no reason')}); the server may want a "
                "certificate of the client, or another version of TLS"
            )
        case ConnectionError() | http.client.IncompleteRead():
            failure = (
                "the server closed the connection before it had answered; see whether it still runs"
            )
        case HTTPException():
            return InputError(f"{url}: the answer is not HTTP; check the port, and http or https")
        case _:
            reason = getattr(error, "strerror", None) or "no connection"
            failure = f"cannot be reached ({reason}); check the host and the port"
    return MissingRequirement(f"{url}: {failure}")
