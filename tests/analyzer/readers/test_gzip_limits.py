"""Gzip that unpacks to more than a trace does, and gzip of many members."""

import gzip
import tracemalloc
import zlib
from pathlib import Path

import pytest

from decodescope.analyzer import load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.messages import TraceReady
from decodescope.analyzer.readers import byte_source
from decodescope.analyzer.recordings.frames import HEADER, WindowFrame, encoded
from tests.helpers.kineto_events import document, op, read
from tests.helpers.scripted import capture

MANY = [op(10 * i, 10 * i + 5, i + 1, name=f"kernel<{i % 7}>") for i in range(40)]


@pytest.mark.parametrize("in_recording", [False, True])
def test_what_unpacks_to_more_than_a_trace_does_is_refused(
    in_recording: bool, tmp_path: Path
) -> None:
    """A recording of 1 MB would take 1 GB of memory, and a file several GB."""
    events = document(MANY)[:-2]
    member = zlib.compressobj(9, wbits=31)
    packed = member.compress(events + b",")
    packed += b"".join(member.compress(b" " * (1 << 20)) for _ in range(160))
    packed += member.compress(events[-200:]) + member.flush()
    assert len(packed) < 1 << 20
    path = tmp_path / "bomb"
    path.write_bytes(recording_of(packed) if in_recording else packed)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="unpacks to over 200 times its size"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def recording_of(packed: bytes) -> bytes:
    """A recording whose only window is `packed`."""
    ready = TraceReady("window.json", capture(), False)
    frame = encoded(WindowFrame(0, ready, packed))
    assert frame is not None
    return HEADER + frame


def test_a_trace_as_repetitive_as_can_be_is_read() -> None:
    """Events that differ in their times and ids only, compressed as well as gzip can."""
    events = [op(1_000 * i, 1_000 * i + 500, i + 1) for i in range(100_000)]
    text = document(events)
    packed = gzip.compress(text, 9)
    assert len(text) < byte_source._MAX_RATIO / 4 * len(packed)
    assert len(read(packed).ops) == len(events)


def test_many_gzip_members_take_linear_time() -> None:
    """400,000 empty members; if each copied the megabyte after it, they would take minutes."""
    assert len(read(gzip.compress(b"") * 400_000 + gzip.compress(document(MANY))).ops) == len(MANY)
