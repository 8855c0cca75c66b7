"""stdout and stderr of a command: always open, for any text, and with errors that say what failed.

Python leaves a closed stream as None and a terminal without UTF-8 raises on the first box of a
table. What cannot be written to stdout ends the command; stderr has nowhere to report, so what it
cannot take is lost. Messages of ours and of libraries quote names and file contents, so all that
goes to stderr becomes plain text there.
"""

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_text, to_ascii

if TYPE_CHECKING:
    from typing_extensions import Buffer

_IN_ASCII = "decodescope.ascii"


class ReaderGone(Exception):
    """Whoever read stdout has closed it, as `head` does when it has enough."""


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """For the time of a command, `sys.stdout` and `sys.stderr` are streams of this module.

    A stream that is not this process's own (a test's) stays, but stderr becomes `Messages` to it.
    Writing to stdout, or flushing it, raises `ReaderGone`, or `InputError` for a full disk or a
    closed stream.
    """
    _open_closed_ones()
    codecs.register_error(_IN_ASCII, _in_ascii)
    before = sys.stdout, sys.stderr
    sys.stdout = _wrapped(sys.stdout, _Stdout(1, "wb", closefd=False))
    sys.stderr = Messages(_wrapped(sys.stderr, _Stderr(2, "wb", closefd=False)))
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


class Messages(io.TextIOBase, TextIO):
    """Writes to `styled` as `plain_text`; a carriage return begins another line.

    Only a spinner, which is ours, writes escape sequences: to `styled` itself.
    """

    def __init__(self, styled: TextIO) -> None:
        self.styled = styled

    def write(self, text: str, /) -> int:
        lines = text.replace("\r\n", "\n").replace("\r", "\n")
        self.styled.write(plain_text(lines))
        if lines.endswith("\n"):
            self.styled.flush()
        return len(text)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.styled.encoding

    def flush(self) -> None:
        self.styled.flush()

    def isatty(self) -> bool:
        return self.styled.isatty()

    def fileno(self) -> int:
        return self.styled.fileno()


class _Stdout(io.FileIO):
    """Raises on the first failed write only: later ones empty the buffers at the end."""

    _failed = False

    def write(self, data: "Buffer", /) -> int:
        if self._failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError as error:
            self._failed = True
            raise ReaderGone from error
        except OSError as error:
            self._failed = True
            raise InputError(f"stdout: cannot be written ({error.strerror})") from error


class _Stderr(io.FileIO):
    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _open_closed_ones() -> None:
    """Give a closed standard stream its number back, so that no file of ours gets it.

    It can only be read: writing to it fails, as to a closed one.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)


def _wrapped(stream: TextIO | None, raw: io.FileIO) -> TextIO:
    if stream is not None and not _is_at(stream, raw.fileno()):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=None if stream is None else stream.encoding,
        errors=_IN_ASCII,
        line_buffering=raw.isatty(),
    )


def _is_at(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except OSError:
        return False


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The codec error handler: ASCII for what an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    return to_ascii(error.object[error.start : error.end]), error.end
