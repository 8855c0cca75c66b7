"""Names of kernels as libraries and engines write them, and what decodescope says of each."""

import tomllib
from pathlib import Path
from typing import NamedTuple


class EngineName(NamedTuple):
    """A kernel's name, where it comes from, and what it says: a table of engine_names.toml. `file`
    is the file of the project that defines it."""

    source: str
    name: str
    short: str
    kind: str
    family: str
    operation: str | None = None
    communication: str | None = None
    file: str | None = None


_DOCUMENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ENGINE_NAMES = tuple(EngineName(**row) for row in _DOCUMENT["name"])
