"""The token of a server that asks for one; it is in no message and no `repr`."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_line

_MAX_BYTES = 16 << 10
_SECRET_BYTES = 6


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. `header` is the value of `Authorization`."""

    header: str = field(repr=False)

    def taken_from(self, answer: bytes) -> bytes:
        """`answer` without the token, which a server may echo, also in the escapes of JSON. One of
        a few characters stays: they are in any text."""
        secret = self.header.removeprefix("Bearer ").encode()
        if len(secret) < _SECRET_BYTES:
            return answer
        characters = (rb"(?:\\?%b|\\u00(?i:%02x))" % (re.escape(bytes([c])), c) for c in secret)
        return re.sub(b"".join(characters), "…".encode(), answer)


def read_token(file: Path | None, variable: str | None) -> Token | None:
    """The token that `file` holds on one line, or the environment variable of this name; None
    without either.

    Raises:
        InputError: both are given, one cannot be read, or it holds no token.
    """
    if file is not None and variable is not None:
        raise InputError("--token-file and --token-variable: give one of the two")
    if file is not None:
        text, where = _text_in(file), str(file)
    elif variable is not None:
        text, where = _text_of(variable), f"the environment variable {plain_line(variable)}"
    else:
        return None
    secret = text.strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError(f"{where}: holds no token; it is one word of printable ASCII on one line")
    return Token(f"Bearer {secret}")


def _text_in(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise InputError(
            f"{file}: the token cannot be read ({error.strerror}); name a file that holds it"
        ) from None


def _text_of(variable: str) -> str:
    if (value := os.environ.get(variable)) is None:
        raise InputError(f"{plain_line(variable)}: this environment variable is not set; set it")
    return value
