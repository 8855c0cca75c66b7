"""The address of a server, from the URL that a user gives."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_line

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = "127.0.0.1"
_MAX_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server; `path` precedes the paths of its endpoints and does not end with
    "/"."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def url(self) -> str:
        """The address as a URL with a port, printable."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return plain_line(f"{self.scheme}://{host}:{self.port}{self.path}")[:_MAX_SHOWN]

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether requests go to another machine unencrypted."""
        return self.scheme == "http" and not self.is_local


def parse_address(text: str) -> Address:
    """The address that `text` names: "http://host:8000", "host:8000", or ":8000" on this machine.

    "/v1" at the end, which clients of the OpenAI API have in their URL, is left out.

    Raises:
        InputError: no URL of a server, or one with a name, a password or a query (it may be a key).
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        (parts.hostname or "").encode("idna")
        port = parts.port
    except ValueError:  # a port that is no number, brackets, a label that no host name can have
        raise _no_url(text) from None
    if parts.username is not None or parts.password is not None or parts.query:
        raise InputError(
            f"{parts.scheme}://{plain_line(parts.hostname or '')}: a URL with a name, a password "
            "or a query is not taken, as command lines are public; give a token in a file or in "
            "an environment variable"
        )
    if parts.scheme not in _PORTS or parts.fragment:
        raise _no_url(text)
    path = parts.path.rstrip("/").removesuffix("/v1")
    if not path.isprintable() or not path.isascii() or " " in path:
        raise _no_url(text)
    host = parts.hostname or _LOOPBACK
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, path)


def _no_url(text: str) -> InputError:
    return InputError(
        f"{shown_address(text)}: is no URL of a server; give one as http://127.0.0.1:8000"
    )


def shown_address(text: str) -> str:
    """`text`, meant as an address, without what may be a secret: the part before an "@", and what
    follows a "?" or "#"."""
    return plain_line(re.split("[?#]", text)[0].rpartition("@")[2])[:_MAX_SHOWN]
