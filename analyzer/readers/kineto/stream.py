"""Events of a Chrome trace, batch by batch, without holding the whole document in memory.

The array of events is cut where one event seems to end and the next to begin, and each cut is
proved by decoding: text that starts at an event and is a valid list once "]" is added can only
have been cut between two events. Text that the typed decoder rejects (NaN, odd types, broken text)
goes through the standard library's decoder, event by event.
"""

import json
import re
from collections.abc import Iterator

import msgspec

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kineto.event import Event, clean, clean_text, event_of

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
_NEXT_EVENT = re.compile(rb"\s*,\s*(?=\{)")


_MAX_DIGITS = 4_000
_batch_decoder = msgspec.json.Decoder(list[Event])
# `int` refuses more than 4,300 digits; as a float such a number is infinite, which none is here.
_value_decoder = json.JSONDecoder(
    strict=False, parse_int=lambda text: int(text) if len(text) <= _MAX_DIGITS else float(text)
)
_event_decoder = json.JSONDecoder(
    strict=False, parse_float=str, parse_int=str, parse_constant=lambda _: None
)


class _Incomplete(Exception):
    """The text ends inside a value."""


class _Broken(Exception):
    """The text is not JSON here."""


class _Stopped(Exception):
    """The text holds more than a trace has."""


_TOO_DEEP = "a value with more levels than can be read"


class EventStream:
    """Iterate `batches()`; afterwards `metadata` holds the document's other keys.

    `truncated` is set if the document ended early, `broken_at` is the byte at which it stopped
    being JSON, `skipped` counts array elements that are not events. `stopped` says why the rest
    from `stopped_at` on was not read: time and memory are bounded for text that is no trace.
    `trailing_bytes` follow the document, and begin as another document if `trailing_document`.
    """

    def __init__(self, source: ByteSource) -> None:
        self.metadata: dict[str, object] = {}
        self.truncated = False
        self.broken_at: int | None = None
        self.stopped = ""
        self.stopped_at = 0
        self.skipped = 0
        self.trailing_bytes = 0
        self.trailing_document = False
        self.found_events = False
        self._source = source
        self._buffer = b""
        self._at = 0
        self._offset = 0

    def batches(self) -> Iterator[list[Event]]:
        """Batches of events in file order. Raises `TraceError` if this is not a JSON trace."""
        first = self._peek()
        if first == b"":
            kind = "a broken gzip file" if self._source.truncated else "an empty file"
            raise self._error(f"{kind}, not a trace", "record it again")
        if first not in (b"{", b"["):
            raise self._error("not a JSON trace", "give a Kineto or Chrome trace (.json, .json.gz)")
        try:
            yield from self._events() if first == b"[" else self._document()
            self._pass_over_rest()
        except _Incomplete:
            self.truncated = True
        except _Broken:
            self.broken_at = self._offset
        except _Stopped as why:
            self.stopped, self.stopped_at = str(why), self._offset
        self.truncated = self.truncated or self._source.truncated
        if not self.found_events:
            broken = self.truncated or self.broken_at is not None
            problem = f"{'broken ' * broken}JSON without a traceEvents list"
            if self.stopped:
                problem = f"{self.stopped}, and no traceEvents list before"
            raise self._error(problem, "give a Kineto or Chrome trace")

    def _document(self) -> Iterator[list[Event]]:
        self._drop(1)
        keys = 0
        while self._expect(_SEPARATORS) != b"}":
            keys += 1
            if keys > _MAX_KEYS:
                raise _Stopped(f"over {_MAX_KEYS:,} keys")
            key = self._value()
            if not isinstance(key, str) or self._expect() != b":":
                raise _Broken
            self._drop(1)
            if self._expect() == b"[" and key == "traceEvents":
                yield from self._events()
            else:
                value = self._value()
                try:
                    self.metadata[clean_text(key)] = clean(value)
                except RecursionError:
                    raise _Stopped(_TOO_DEEP) from None
        self._drop(1)

    def _pass_over_rest(self) -> None:
        if self.broken_at is not None or self.stopped or self.truncated:
            return
        self.trailing_document = self._peek() in (b"{", b"[")
        self.trailing_bytes = len(self._buffer) - self._at
        while piece := self._source.read():
            self.trailing_bytes += len(piece)

    def _events(self) -> Iterator[list[Event]]:
        self._drop(1)
        self.found_events = True
        while True:
            batch = self._fast_batch()
            if batch:
                yield batch
                self._grow()
                continue
            batch, ended = self._careful_batch()
            yield batch
            if self.skipped > _MAX_OTHERS:
                raise _Stopped(f"over {_MAX_OTHERS:,} entries that are no events")
            if ended:
                return

    def _fast_batch(self) -> list[Event] | None:
        """The events up to the last provable cut in the buffer, or None."""
        self._strip(_SEPARATORS)
        position, attempts = len(self._buffer), 0
        for _ in range(_CUT_CANDIDATES):
            position = self._buffer.rfind(b"}", self._at, position)
            if position < 0 or attempts == _CUT_ATTEMPTS:
                return None
            comma = _NEXT_EVENT.match(self._buffer, position + 1)
            if comma is None:
                continue
            attempts += 1
            try:
                batch = self._decode_until(position + 1)
            except msgspec.ValidationError:
                return None
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._drop(comma.end() - self._at)
            return batch
        return None

    def _decode_until(self, end: int) -> list[Event]:
        try:
            return _batch_decoder.decode(self._as_list(end))
        except msgspec.DecodeError as error:
            if isinstance(error, msgspec.ValidationError) or not self._blank_non_finite():
                raise
            return _batch_decoder.decode(self._as_list(end))

    def _as_list(self, end: int) -> bytes:
        return b"".join((b"[", memoryview(self._buffer)[self._at : end], b"]"))

    def _blank_non_finite(self) -> bool:
        """Replace values such as nan and inf, which are not JSON, by ""; whether there were any."""
        before = self._buffer
        self._buffer = _NON_FINITE.sub(lambda match: b'""'.ljust(len(match[0])), before)
        return self._buffer != before

    def _careful_batch(self) -> tuple[list[Event], bool]:
        """All complete events of the buffer, and whether the array ended."""
        batch: list[Event] = []
        self._blank_non_finite()
        text = self._text()
        position, ended = 0, False
        while not ended and self.skipped <= _MAX_OTHERS:
            position = _skip(text, position)
            if text[position : position + 1] == "]":
                position, ended = position + 1, True
                break
            try:
                value, end = _decode_at(_event_decoder, text, position)
            except _Incomplete:
                break
            except _Broken:
                self.broken_at = self._offset + _byte_length(text, position)
                ended = True
                break
            except _Stopped as why:
                self.stopped = str(why)
                self.stopped_at = self._offset + _byte_length(text, position)
                ended = True
                break
            position = end
            event = event_of(value)
            if event is None:
                self.skipped += 1
            else:
                batch.append(event)
        self._drop(_byte_length(text, position))
        if not batch and not ended and position == 0:
            self.truncated = ended = not self._grow_for(text)
        return batch, ended

    def _value(self) -> object:
        window = _WINDOW_BYTES
        while True:
            self._expect()
            text = self._text(window)
            rest_outside = window < len(self._buffer) - self._at
            window *= 2
            try:
                value, end = _decode_at(_value_decoder, text, 0)
            except _Incomplete:
                if not rest_outside and not self._grow_for(text):
                    raise
            except _Broken:
                if not self._blank_non_finite():
                    raise
            else:
                # A number may go on: "1." and "1e+" decode as 1.
                whole = end < len(text) - _MAX_LITERAL
                if whole or (not rest_outside and not self._grow()):
                    self._drop(_byte_length(text, end))
                    return value

    def _text(self, most: int | None = None) -> str:
        """The next `most` bytes; bytes that are not UTF-8 become surrogates."""
        end = None if most is None else self._at + most
        return self._buffer[self._at : end].decode("utf-8", "surrogateescape")

    def _peek(self, passing: re.Pattern[bytes] = _SPACES) -> bytes:
        """The next character that is not passed over, b"" at the end of the file."""
        while True:
            self._strip(passing)
            if self._at < len(self._buffer) or not self._grow():
                return self._buffer[self._at : self._at + 1]

    def _expect(self, passing: re.Pattern[bytes] = _SPACES) -> bytes:
        character = self._peek(passing)
        if not character:
            raise _Incomplete
        return character

    def _drop(self, count: int) -> None:
        self._at += count
        self._offset += count

    def _strip(self, passing: re.Pattern[bytes]) -> None:
        run = passing.match(self._buffer, self._at)
        self._drop(run.end() - self._at if run else 0)

    def _grow_for(self, text: str) -> bool:
        """Read as much again as `text`, which ends inside a value; False at the file's end."""
        if len(text) > _MAX_VALUE_BYTES:
            raise _Stopped(f"a value of over {_MAX_VALUE_BYTES >> 20} MiB")
        return self._grow(max(len(text), 1))

    def _grow(self, at_least: int = 1) -> bool:
        pieces = [self._buffer[self._at :]]
        added = 0
        while added < at_least:
            piece = self._source.read()
            if not piece:
                break
            pieces.append(piece)
            added += len(piece)
        self._buffer, self._at = b"".join(pieces), 0
        return added > 0

    def _error(self, problem: str, remedy: str) -> TraceError:
        return TraceError(f"{self._source.path}: {problem}; {remedy}")


def _skip(text: str, position: int) -> int:
    run = _SEPARATORS_IN_TEXT.match(text, position)
    return run.end() if run else position


def _decode_at(decoder: json.JSONDecoder, text: str, position: int) -> tuple[object, int]:
    try:
        return decoder.raw_decode(text, position)
    except json.JSONDecodeError as error:
        cut_short = error.msg.startswith("Unterminated string")
        if not cut_short and error.pos < len(text) - _MAX_LITERAL:
            raise _Broken from None
        raise _Incomplete from None
    except RecursionError:
        raise _Stopped(_TOO_DEEP) from None
    except ValueError:
        raise _Broken from None


def _byte_length(text: str, position: int) -> int:
    return len(text[:position].encode("utf-8", "surrogateescape"))
