"""The file that keeps the columns of a trace.

It is `_MAGIC`, the length and the SHA-256 of the description, the description (`_Description` as
MessagePack: the trace, with the place of each column in place of the column), and the columns as
NumPy holds them, each at a multiple of 64 bytes behind the description, and with a SHA-256 of its
own. Nothing in it can run. A file that is damaged anywhere raises one of `UNUSABLE`.
"""

import os
import stat
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct

from decodescope.analyzer.schema.report import Source
from decodescope.analyzer.trace import Trace

# What reading a file that is damaged, or something else, can raise.
UNUSABLE = (OSError, ValueError, RecursionError, msgspec.MsgspecError)
_MAGIC = b"decodescope columns\n"
_LENGTH_AND_DIGEST = struct.Struct("<Q32s")
_HEAD_BYTES = len(_MAGIC) + _LENGTH_AND_DIGEST.size
_ALIGNED_BYTES = 64

_Column = np.ndarray[Any, np.dtype[Any]]


class EntryOrigin(Struct):
    """`code` is the digest of the analyzer that read the trace, `content` that of its file, and
    `state` what the file system said of the file."""

    code: bytes
    content: bytes
    state: tuple[int, ...]


class _Description(EntryOrigin):
    trace: Trace


class _SourceOf(Struct):
    source: Source


class _DescribedSource(Struct):
    trace: _SourceOf


class _Place(Struct, array_like=True):
    """A column whose first byte is `at` bytes behind the description."""

    dtype: str
    at: int
    rows: int
    digest: bytes


class NewEntry:
    """An entry to write. Raises `ValueError` or `OverflowError` if MessagePack cannot hold a string
    or a number of the trace."""

    def __init__(self, origin: EntryOrigin, trace: Trace) -> None:
        self._columns: list[tuple[int, memoryview]] = []
        self._end = 0
        description = _Description(origin.code, origin.content, origin.state, trace)
        self._description = msgspec.msgpack.encode(description, enc_hook=self._place)

    @property
    def size_bytes(self) -> int:
        return _HEAD_BYTES + len(self._description) + self._end

    def write(self, file: BinaryIO) -> None:
        digest = sha256(self._description).digest()
        file.write(_MAGIC + _LENGTH_AND_DIGEST.pack(len(self._description), digest))
        file.write(self._description)
        end = 0
        for at, data in self._columns:
            file.write(bytes(at - end))
            file.write(data)
            end = at + len(data)

    def _place(self, column: object) -> _Place:
        assert isinstance(column, np.ndarray)
        data = np.ascontiguousarray(column).view(np.uint8).data
        at = -(-self._end // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._columns.append((at, data))
        self._end = at + len(data)
        return _Place(column.dtype.str, at, len(column), sha256(data).digest())


def open_entry(path: Path) -> BinaryIO:
    """An entry of this user, to read; anything else is one of `UNUSABLE`."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(path, "rb", opener=lambda name, own: os.open(name, own | flags))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        file.close()
        raise ValueError("no file of this user")
    return file


def read_description(file: BinaryIO) -> bytes:
    """The description of an open entry, whose columns follow."""
    head = file.read(_HEAD_BYTES)
    if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
        raise ValueError("no entry")
    length, digest = _LENGTH_AND_DIGEST.unpack_from(head, len(_MAGIC))
    description = file.read(min(length, os.fstat(file.fileno()).st_size))
    if sha256(description).digest() != digest:
        raise ValueError("damaged")
    return description


def described_origin(description: bytes) -> EntryOrigin:
    return msgspec.msgpack.decode(description, type=EntryOrigin)


def described_source(description: bytes) -> Source:
    return msgspec.msgpack.decode(description, type=_DescribedSource).trace.source


def described_trace(description: bytes, file: BinaryIO) -> Trace:
    """The trace of an open entry whose description was read. Its columns cannot be written to."""
    data = file.read()

    def column(kind: object, stored: object) -> _Column:
        place = msgspec.convert(stored, _Place)
        if not place.rows:
            return np.zeros(0, place.dtype)
        found = np.frombuffer(data, place.dtype, place.rows, place.at)
        if sha256(found.data).digest() != place.digest:
            raise ValueError("damaged")
        return found

    return msgspec.msgpack.decode(description, type=_Description, dec_hook=column).trace
