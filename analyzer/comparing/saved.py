"""Reads what `compare --json` and `diff --json` wrote."""

import re
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.report import SCHEMA_VERSION

_START = re.compile(rb'\s*\{\s*"schema_version"\s*:')
_START_BYTES = 200


class _Header(Struct, frozen=True):
    """A comparison has `runs`, a diff has a `pair`."""

    schema_version: int
    runs: msgspec.Raw = msgspec.Raw()
    pair: msgspec.Raw = msgspec.Raw()


_Decoded = TypeVar("_Decoded", bound=Struct)


def may_be_saved(path: Path) -> bool:
    """Whether the file begins as our JSON does. A trace does not.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return _START.match(file.read(_START_BYTES)) is not None


def read_saved(saved_json: bytes, path: str) -> Comparison | Diff:
    """The comparison or diff in `saved_json`, which was read from `path`.

    Raises:
        InputError: it is neither, or has another schema version.
    """
    advice = "measure again with compare --json"
    header = decode_saved(saved_json, path, _Header, advice)
    if bytes(header.pair) and not bytes(header.runs):
        return _decode(saved_json, path, Diff)
    if not bytes(header.runs):
        raise InputError(
            f"{path}: neither a comparison nor a diff; give a file that compare --json or "
            "diff --json wrote"
        )
    decoded = _decode(saved_json, path, Comparison)
    if len(decoded.comparison.variants) < 2 or not decoded.runs:
        raise InputError(f"{path}: a comparison of fewer than two variants; {advice}")
    return decoded


def decode_saved(saved_json: bytes, path: str, kind: type[_Decoded], advice: str) -> _Decoded:
    """`saved_json` as `kind`; `advice` is what to do about another schema version.

    Raises:
        InputError: it has another schema version, or is not such a structure.
    """
    version = _decode(saved_json, path, _Header).schema_version
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: has schema version {version}, this decodescope reads {SCHEMA_VERSION}; "
            f"{advice}"
        )
    return _decode(saved_json, path, kind)


def _decode(saved_json: bytes, path: str, kind: type[_Decoded]) -> _Decoded:
    try:
        return msgspec.json.decode(saved_json, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: not the JSON of a comparison ({error}); give a file that compare --json wrote"
        ) from error
