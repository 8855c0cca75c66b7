"""Files that are truncated, broken, hostile or not traces at all."""

import gzip
import json
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kineto.stream import EventStream
from tests.helpers.kineto_events import RECORDED, call, codes, document, op, read

MANY = [op(10 * i, 10 * i + 5, i + 1, name=f"kernel<{i % 7}>") for i in range(40)]


def test_every_truncation_of_json_uses_the_whole_events() -> None:
    text = document(MANY, deviceProperties=[{"id": 0, "name": "GPU"}])
    starts = [text.index(b'"traceEvents": [') + len(b'"traceEvents": [')]
    ends = []
    position = starts[0]
    decoder = json.JSONDecoder()
    for _ in MANY:
        _, end = decoder.raw_decode(text.decode(), position)
        ends.append(end)
        position = end + 2
    for cut in range(ends[0], len(text) - 2, 7):
        trace = read(text[:cut])
        assert len(trace.ops) == sum(end <= cut for end in ends)
        assert codes(trace) == {"truncated"}


def test_truncated_gzip_uses_the_whole_events() -> None:
    packed = gzip.compress(document(MANY * 200), mtime=0)
    trace = read(packed[: len(packed) // 2])
    assert 0 < len(trace.ops) < len(MANY) * 200
    assert "truncated" in codes(trace)


def test_a_missing_gzip_trailer_is_said() -> None:
    trace = read(gzip.compress(document(MANY))[:-8])
    assert (len(trace.ops), codes(trace)) == (40, {"truncated"})


def test_gzip_members_are_joined_and_padding_ignored() -> None:
    text = document(MANY)
    packed = gzip.compress(text[:500]) + gzip.compress(text[500:]) + b"\0" * 40
    assert len(read(packed).ops) == 40


@given(
    st.sampled_from([b"and text", b"\0" * 700, b"}", b"]", b'"a"', b"{", b"[1]", document(MANY)]),
    st.sampled_from([b"", b"\n", b" \r\n\t"]),
    st.booleans(),
    st.booleans(),
)
def test_what_follows_a_document_is_said_and_how_much(rest, spaces, is_array, packed) -> None:
    text = document(MANY)
    if is_array:
        text = json.dumps(json.loads(text)["traceEvents"]).encode()
    whole = text + spaces + rest + spaces
    trace = read(gzip.compress(whole) if packed else whole)
    assert len(trace.ops) == 40
    (finding,) = trace.findings
    assert finding.code == "trailing_data"
    assert f" {len(rest + spaces):,} bytes " in f" {finding.message}"
    assert ("another JSON document" in finding.message) == rest.startswith((b"{", b"["))
    assert codes(read(text + spaces)) == set()


def test_a_number_of_any_length_beside_the_events_is_none() -> None:
    """Python's `int` refuses more than 4,300 digits."""
    digits = "9" * 5_000
    keys = f'{{"baseTimeNanoseconds": {digits}, "other": [-{digits}], '
    data = keys.encode() + document([op(0, 10)])[1:]
    trace = read(data)
    assert len(trace.ops) == 1
    assert codes(trace) >= {"bad_base_time"}
    assert "broken_json" not in codes(trace)


@pytest.mark.parametrize("levels", [2_000, 200_000])
def test_levels_that_cannot_be_read_are_named(levels: int) -> None:
    deep = "[" * levels + "]" * levels
    events = document(MANY).decode()
    before = "more levels than can be read, and no traceEvents list before"
    with pytest.raises(TraceError, match=before):
        read('{"unused": ' + deep + ", " + events[1:])
    trace = read(events[:-2] + ', {"ph": "X", "args": {"deep": ' + deep + "}}]}")
    assert len(trace.ops) == 40
    (finding,) = trace.findings
    assert finding.code == "cut_trace"
    assert "more levels than can be read" in finding.message


def test_text_that_breaks_off_in_the_middle_is_reported_with_its_place() -> None:
    text = document(MANY)
    middle = text.index(b"{", len(text) // 2)
    trace = read(text[:middle] + b"@@@@" + text[middle:])
    assert 0 < len(trace.ops) < 40
    (finding,) = trace.findings
    assert finding.code == "broken_json"
    assert f"byte {middle}" in finding.message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "an empty file"),
        (b"  \n", "an empty file"),
        (b"hello", "not a JSON trace"),
        (b"\x89PNG\r\n\x1a\n....", "not a JSON trace"),
        (b"<html></html>", "not a JSON trace"),
        (b'{"a": 1}', "JSON without a traceEvents list"),
        (b'{"traceEvents": {"ph": "X"}}', "JSON without a traceEvents list"),
        (b'{"a": [1, 2', "broken JSON without a traceEvents list"),
        (b"{", "broken JSON without a traceEvents list"),
        (b'{"a" 1}', "broken JSON without a traceEvents list"),
        (b"[1, 2, 3]", "no trace events"),
        (b'[{"name": "x"}]', "no trace events"),
        (b"\x1f\x8b", "a broken compressed file"),
        (b"\x1f\x8b\x08\x00garbage-garbage", "a broken compressed file"),
        (gzip.compress(b"", mtime=0), "an empty file"),
        (gzip.compress(b"hello", mtime=0), "not a JSON trace"),
        (b"[" * 100_000, "more levels than can be read"),
        (b"[", "before its first complete event"),
        (b'{"traceEvents": [{"ph": "X", "na', "before its first complete event"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_what_is_no_trace_is_one_line(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as raised:
        load(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert says in message
    assert "\n" not in message


def test_missing_files_folders_and_unreadable_paths(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load(tmp_path / "none.json")
    with pytest.raises(TraceError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(TraceError, match="cannot be read"):
        load(str(tmp_path / "a\0b"))
    file = tmp_path / "file"
    file.write_bytes(b"[]")
    with pytest.raises(TraceError, match="cannot be read"):
        load(file / "below.json")


def test_a_trace_of_nothing_is_no_gpu_activity() -> None:
    report = analyze(read('{"traceEvents": []}')).report
    assert report.health.status == "no_gpu_activity"
    assert report.source.events == 0


def test_a_gzip_bomb_is_stopped() -> None:
    bomb = gzip.compress(b"[" + b" " * 40_000_000)
    source = ByteSource(BytesIO(bomb), "bomb.gz", max_bytes=10_000_000)
    with pytest.raises(TraceError, match="unpacks to more than"):
        list(EventStream(source).batches())


def test_one_endless_value_is_not_held_in_memory() -> None:
    bomb = gzip.compress(b'[{"ph": "' + b"x" * 200_000_000)
    trace = None
    with pytest.raises(TraceError):
        trace = read(bomb)
    assert trace is None


def survives(data: bytes) -> None:
    try:
        trace = read(data)
    except TraceError:
        return
    report = analyze(trace).report
    for device in report.devices:
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns


@given(st.data())
@settings(max_examples=75, deadline=None)
def test_mutated_bytes_give_a_trace_or_a_trace_error(data: st.DataObject) -> None:
    mutated = bytearray(RECORDED)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        kind = data.draw(st.sampled_from(["set", "cut", "insert", "double"]))
        if kind == "set":
            mutated[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del mutated[at : at + data.draw(st.integers(1, 400))]
        elif kind == "insert":
            tokens = [b"{", b"}", b"[", b"]", b'"', b",", b"\\", b"NaN", b"1e999", b"-", b"\xff"]
            mutated[at:at] = data.draw(st.sampled_from(tokens))
        else:
            mutated[at:at] = mutated[at : at + 300]
    survives(bytes(mutated))


@given(st.integers(0, len(RECORDED)))
@settings(max_examples=40, deadline=None)
def test_truncated_bytes_give_a_trace_or_a_trace_error(length: int) -> None:
    survives(RECORDED[:length])
    survives(gzip.compress(RECORDED)[: length // 10])


@given(st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_bytes_give_a_trace_or_a_trace_error(data: bytes) -> None:
    survives(data)
    survives(b'{"traceEvents": [' + data)
    survives(b"\x1f\x8b" + data)


@pytest.mark.parametrize(
    "value",
    [
        "1e300",
        "-1e300",
        "1.5",
        "5.0",
        "99999999999999999999",
        "true",
        "null",
        "[]",
        "{}",
        '"x"',
        '"007"',
        "-7",
        "1e999",
    ],
)
@pytest.mark.parametrize("key", ["correlation", "device", "stream", "External id", "graph id"])
def test_odd_ids_harm_nothing_but_their_own_link(key: str, value: str) -> None:
    text = document([call(0, 1, 9), op(2, 3, 9), op(5, 7, 9)]).decode()
    odd = (
        '{"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": 1, "dur": 2, '
        f'"args": {{"{key}": {value}}}}}'
    )
    trace = read(text.replace("]}", f", {odd}]}}"))
    assert len(trace.ops) == 3
    assert trace.ops.launch.tolist() == [0, 0, -1]
    report = analyze(trace).report
    assert sum(device.gpu_ops for device in report.devices) == 3
