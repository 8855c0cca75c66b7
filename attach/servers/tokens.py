"""The token of a server that asks for one; it is in no message and no `repr`."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_line

_MAX_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. `header` is the value of `Authorization`."""

    header: str = field(repr=False)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The token that a file holds on one line.

        Raises:
            InputError: the file cannot be read, or holds no token.
        """
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_BYTES)
        except OSError as error:
            raise InputError(
                f"{path}: the token cannot be read ({error.strerror}); name a file that holds it"
            ) from None
        return cls._checked(data.decode("ascii", "replace"), str(path))

    @classmethod
    def from_variable(cls, name: str) -> Self:
        """The token that the environment variable `name` holds.

        Raises:
            InputError: the variable is not set, or holds no token.
        """
        value = os.environ.get(name)
        if value is None:
            raise InputError(f"{plain_line(name)}: this environment variable is not set; set it")
        return cls._checked(value, f"the environment variable {plain_line(name)}")

    @classmethod
    def _checked(cls, text: str, where: str) -> Self:
        secret = text.strip()
        if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise InputError(
                f"{where}: holds no token; it is one word of printable ASCII on one line"
            )
        return cls(f"Bearer {secret}")
