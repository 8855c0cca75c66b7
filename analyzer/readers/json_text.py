"""A JSON document piece by piece: its keys, values and lists, without holding it in memory.

A list of objects is cut where one object seems to end and the next to begin, and each cut is proved
by decoding: text that starts at an entry and is a valid list once "]" is added can only have been
cut between two entries. Text that the typed decoder rejects (NaN, odd types, broken text) and the
end of a list go through the standard library's decoder, entry by entry.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource

# Decoded values take up to 30 times the memory of their text; events are at most some 100 kB long.
_MAX_VALUE_BYTES = 16 << 20
# Profilers write about 20 keys.
_MAX_KEYS = 10_000
_MAX_OTHERS = 10_000
_WINDOW_BYTES = 256
_CUT_CANDIDATES = 64
_CUT_ATTEMPTS = 4
_MAX_LITERAL = 16
_SPACES = re.compile(rb"[ \t\r\n]*")
_SEPARATORS = re.compile(rb"[ \t\r\n,]*")
_SEPARATORS_IN_TEXT = re.compile(r"[ \t\r\n,]*")
# A quote inside a string is escaped, so an unescaped one and a colon are never inside a string.
_NON_FINITE = re.compile(
    rb'(?<=[^\\]":)\s*-?(?:nan(?:\(\w*\))?|inf(?:inity)?)(?=\s*[,}\]])', re.IGNORECASE
)
_NEXT_ENTRY = re.compile(rb"\s*,\s*(?=\{)")
_MAX_DIGITS = 4_000
# `int` refuses more than 4,300 digits; as a float such a number is infinite, which none is here.
value_decoder = json.JSONDecoder(
    strict=False, parse_int=lambda text: int(text) if len(text) <= _MAX_DIGITS else float(text)
)
TOO_DEEP = "a value with more levels than can be read"
_Entry = TypeVar("_Entry")


class Incomplete(Exception):
    """The text ends inside a value."""


class Broken(Exception):
    """The text is not JSON here."""


class Stopped(Exception):
    """The text holds more than a trace has."""


@dataclass(frozen=True, slots=True)
class Entries(Generic[_Entry]):
    """How the entries of a list are decoded: many at once, and one that `one` decoded, where None
    says that it is no entry."""

    many: msgspec.json.Decoder[list[_Entry]]
    convert: Callable[[object], _Entry | None]
    one: json.JSONDecoder = value_decoder


class JsonText:
    """The text of `source`, read from its start on.

    `truncated` is set if the document ended early, `broken_at` is the byte at which it stopped
    being JSON, `skipped` counts entries of lists that are none. `stopped` says why the rest from
    `stopped_at` on was not read: time and memory are bounded for text that is no trace. All but
    `entries` raise `Incomplete`, `Broken` and `Stopped` instead.
    """

    def __init__(self, source: ByteSource) -> None:
        self.truncated = False
        self.broken_at: int | None = None
        self.stopped = ""
        self.stopped_at = 0
        self.skipped = 0
        self.offset = 0
        self.source = source
        self._buffer = b""
        self._at = 0

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; what iterates reads each one's value."""
        self._drop(1)
        keys = 0
        while self.expect(_SEPARATORS) != b"}":
            keys += 1
            if keys > _MAX_KEYS:
                raise Stopped(f"over {_MAX_KEYS:,} keys")
            key = self.value()
            if not isinstance(key, str) or self.expect() != b":":
                raise Broken
            self._drop(1)
            self.expect()
            yield key
        self._drop(1)

    def items(self) -> Iterator[None]:
        """Stop at each entry of the list that begins here; what iterates reads it."""
        self._drop(1)
        while self.expect(_SEPARATORS) != b"]":
            yield
        self._drop(1)

    def entries(self, decoded_as: Entries[_Entry]) -> Iterator[list[_Entry]]:
        """Batches of the entries of the list that begins here."""
        self._drop(1)
        while True:
            batch = self._fast_batch(decoded_as.many)
            if batch:
                yield batch
                self._grow()
                continue
            batch, ended = self._careful_batch(decoded_as)
            yield batch
            if self.skipped > _MAX_OTHERS:
                raise Stopped(f"over {_MAX_OTHERS:,} entries that are no events")
            if ended:
                return

    def pass_over(self) -> None:
        """Pass over the value that begins here, however large it is."""
        first = self.expect()
        if first == b"[":
            for _ in self.entries(_ANY):
                self.check()
        elif first == b"{":
            for _ in self.members():
                self.pass_over()
        else:
            self.value()

    def check(self) -> None:
        """Raise what `entries` noted instead."""
        if self.truncated:
            raise Incomplete
        if self.broken_at is not None:
            raise Broken
        if self.stopped:
            raise Stopped(self.stopped)

    def rest(self) -> tuple[int, bool]:
        """The number of bytes that are left, and whether they begin as another document; all are
        read."""
        is_document = self.peek() in (b"{", b"[")
        count = len(self._buffer) - self._at
        while piece := self.source.read():
            count += len(piece)
        return count, is_document

    def value(self) -> object:
        """The value that begins here, of at most 16 MiB."""
        window = _WINDOW_BYTES
        while True:
            self.expect()
            text = self._text(window)
            rest_outside = window < len(self._buffer) - self._at
            window *= 2
            try:
                value, end = _decode_at(value_decoder, text, 0)
            except Incomplete:
                if not rest_outside and not self._grow_for(text):
                    raise
            except Broken:
                if not self._blank_non_finite():
                    raise
            else:
                # A number may go on: "1." and "1e+" decode as 1.
                whole = end < len(text) - _MAX_LITERAL
                if whole or (not rest_outside and not self._grow()):
                    self._drop(_byte_length(text, end))
                    return value

    def peek(self, passing: re.Pattern[bytes] = _SPACES) -> bytes:
        """The next character that is not passed over, b"" at the end of the file."""
        while True:
            self._strip(passing)
            if self._at < len(self._buffer) or not self._grow():
                return self._buffer[self._at : self._at + 1]

    def expect(self, passing: re.Pattern[bytes] = _SPACES) -> bytes:
        character = self.peek(passing)
        if not character:
            raise Incomplete
        return character

    def _fast_batch(self, decoder: msgspec.json.Decoder[list[_Entry]]) -> list[_Entry] | None:
        """The entries up to the last provable cut in the buffer, or None."""
        self._strip(_SEPARATORS)
        position, attempts = len(self._buffer), 0
        for _ in range(_CUT_CANDIDATES):
            position = self._buffer.rfind(b"}", self._at, position)
            if position < 0 or attempts == _CUT_ATTEMPTS:
                return None
            comma = _NEXT_ENTRY.match(self._buffer, position + 1)
            if comma is None:
                continue
            attempts += 1
            try:
                batch = self._decode_until(decoder, position + 1)
            except msgspec.ValidationError:
                return None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._drop(comma.end() - self._at)
            return batch
        return None

    def _decode_until(self, decoder: msgspec.json.Decoder[list[_Entry]], end: int) -> list[_Entry]:
        try:
            return decoder.decode(self._as_list(end))
        except msgspec.DecodeError as error:
            if isinstance(error, msgspec.ValidationError) or not self._blank_non_finite():
                raise
            return decoder.decode(self._as_list(end))

    def _as_list(self, end: int) -> bytes:
        return b"".join((b"[", memoryview(self._buffer)[self._at : end], b"]"))

    def _blank_non_finite(self) -> bool:
        """Replace values such as nan and inf, which are not JSON, by ""; whether there were any."""
        before = self._buffer
        self._buffer = _NON_FINITE.sub(lambda match: b'""'.ljust(len(match[0])), before)
        return self._buffer != before

    def _careful_batch(self, decoded_as: Entries[_Entry]) -> tuple[list[_Entry], bool]:
        """All complete entries of the buffer, and whether the list ended."""
        batch: list[_Entry] = []
        self._blank_non_finite()
        text = self._text()
        position, ended = 0, False
        while not ended and self.skipped <= _MAX_OTHERS:
            position = _skip(text, position)
            if text[position : position + 1] == "]":
                position, ended = position + 1, True
                break
            try:
                value, end = _decode_at(decoded_as.one, text, position)
            except Incomplete:
                break
            except Broken:
                self.broken_at = self.offset + _byte_length(text, position)
                ended = True
                break
            except Stopped as why:
                self.stopped = str(why)
                self.stopped_at = self.offset + _byte_length(text, position)
                ended = True
                break
            position = end
            entry = decoded_as.convert(value)
            if entry is None:
                self.skipped += 1
            else:
                batch.append(entry)
        self._drop(_byte_length(text, position))
        if not batch and not ended and position == 0:
            self.truncated = ended = not self._grow_for(text)
        return batch, ended

    def _text(self, most: int | None = None) -> str:
        """The next `most` bytes; bytes that are not UTF-8 become surrogates."""
        end = None if most is None else self._at + most
        return self._buffer[self._at : end].decode("utf-8", "surrogateescape")

    def _drop(self, count: int) -> None:
        self._at += count
        self.offset += count

    def _strip(self, passing: re.Pattern[bytes]) -> None:
        run = passing.match(self._buffer, self._at)
        self._drop(run.end() - self._at if run else 0)

    def _grow_for(self, text: str) -> bool:
        """Read as much again as `text`, which ends inside a value; False at the file's end."""
        if len(text) > _MAX_VALUE_BYTES:
            raise Stopped(f"a value of over {_MAX_VALUE_BYTES >> 20} MiB")
        return self._grow(max(len(text), 1))

    def _grow(self, at_least: int = 1) -> bool:
        pieces = [self._buffer[self._at :]]
        added = 0
        while added < at_least:
            piece = self.source.read()
            if not piece:
                break
            pieces.append(piece)
            added += len(piece)
        self._buffer, self._at = b"".join(pieces), 0
        return added > 0

    def error(self, problem: str, remedy: str) -> TraceError:
        return TraceError(f"{self.source.path}: {problem}; {remedy}")


_ANY: Entries[Any] = Entries(msgspec.json.Decoder(list[msgspec.Raw]), lambda value: [value])


def _skip(text: str, position: int) -> int:
    run = _SEPARATORS_IN_TEXT.match(text, position)
    return run.end() if run else position


def _decode_at(decoder: json.JSONDecoder, text: str, position: int) -> tuple[object, int]:
    try:
        return decoder.raw_decode(text, position)
    except json.JSONDecodeError as error:
        cut_short = error.msg.startswith("Unterminated string")
        if not cut_short and error.pos < len(text) - _MAX_LITERAL:
            raise Broken from None
        raise Incomplete from None
    except RecursionError:
        raise Stopped(TOO_DEEP) from None
    except ValueError:
        raise Broken from None


def _byte_length(text: str, position: int) -> int:
    return len(text[:position].encode("utf-8", "surrogateescape"))
