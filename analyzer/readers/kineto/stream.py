"""Events of a Chrome trace, batch by batch, without holding the whole document in memory."""

import json
from collections.abc import Iterator

import msgspec

from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.json_text import (
    TOO_DEEP,
    Broken,
    Entries,
    Incomplete,
    JsonText,
    Stopped,
)
from decodescope.analyzer.readers.kineto.event import Event, clean, clean_text, event_of

_EVENTS = Entries(
    many=msgspec.json.Decoder(list[Event]),
    convert=event_of,
    # Numbers stay text, so that times are converted exactly.
    one=json.JSONDecoder(
        strict=False, parse_float=str, parse_int=str, parse_constant=lambda _: None
    ),
)


class EventStream(JsonText):
    """Iterate `batches()`; afterwards `metadata` holds the document's other keys.

    What was wrong with the document is noted as by `JsonText`, and the events before it are
    returned. Proton may write one document after another. `trailing_bytes` follow the document,
    and begin as another document if `trailing_document`.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__(source)
        self.metadata: dict[str, object] = {}
        self.trailing_bytes = 0
        self.trailing_document = False
        self.found_events = False

    @property
    def of_proton(self) -> bool:
        """Whether the keys before the events are Proton's: only it has this unit of time."""
        return self.metadata.get("displayTimeUnit") == "us"

    def batches(self) -> Iterator[list[Event]]:
        """Batches of events in file order. Raises `TraceError` if this is not a JSON trace."""
        first = self.peek()
        if first == b"":
            kind = "a broken compressed file" if self.source.truncated else "an empty file"
            raise self.error(f"{kind}, not a trace", "record it again")
        if first not in (b"{", b"["):
            raise self.error("not a JSON trace", "give a Kineto or Chrome trace (.json, .json.gz)")
        try:
            yield from self._events() if first == b"[" else self._document()
            while self.of_proton and self.peek() == b"{":
                yield from self._document()
            if self.broken_at is None and not self.stopped and not self.truncated:
                self.trailing_bytes, self.trailing_document = self.rest()
        except Incomplete:
            self.truncated = True
        except Broken:
            self.broken_at = self.offset
        except Stopped as why:
            self.stopped, self.stopped_at = str(why), self.offset
        self.truncated = self.truncated or self.source.truncated
        if not self.found_events:
            broken = self.truncated or self.broken_at is not None
            problem = f"{'broken ' * broken}JSON without a traceEvents list"
            if self.stopped:
                problem = f"{self.stopped}, and no traceEvents list before"
            raise self.error(problem, "give a Kineto or Chrome trace")

    def _document(self) -> Iterator[list[Event]]:
        for key in self.members():
            if key == "traceEvents" and self.expect() == b"[":
                yield from self._events()
            else:
                value = self.value()
                try:
                    self.metadata[clean_text(key)] = clean(value)
                except RecursionError:
                    raise Stopped(TOO_DEEP) from None

    def _events(self) -> Iterator[list[Event]]:
        self.found_events = True
        yield from self.entries(_EVENTS)
