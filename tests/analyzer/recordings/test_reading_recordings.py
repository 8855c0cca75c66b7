"""What is read of recordings that are damaged, foreign, or of another version."""

import gzip
import random
import secrets
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.messages import PROTOCOL_VERSION, Bye, Hello, State
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.frames import (
    HEADER,
    MAGIC,
    VERSION,
    MessageFrame,
    encoded,
    read_frame,
)
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.recordings import hello, record, stats, window


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.dsrec"


def framed(body: bytes) -> bytes:
    length = len(body).to_bytes(4, "big")
    return length + zlib.crc32(length + body).to_bytes(4, "big") + body


def test_every_truncation_keeps_the_whole_frames_and_says_so(path, tmp_path):
    messages = [hello(), State("running", "eager"), window(tmp_path, 1), stats(1), Bye("quit")]
    data = record(path, messages).read_bytes()
    offsets = [frame.offset for frame in read_recording(path).frames()] + [len(data)]
    for size in range(len(MAGIC) + 1, len(data)):
        path.write_bytes(data[:size])
        recording = read_recording(path)
        whole = sum(end <= size for end in offsets[1:])
        assert len(list(recording.frames())) == whole
        assert [f.code for f in recording.findings] == (
            [] if size in offsets else ["recording_cut"]
        )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a decodescope recording"),
        (MAGIC[:3], "not a decodescope recording"),
        (b'{"traceEvents": []}', "not a decodescope recording"),
        (MAGIC + bytes([VERSION + 1]) + b"rest", f"recording of format {VERSION + 1}"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(path, data, says):
    path.write_bytes(data)
    readers = (read_recording, load) if data.startswith(MAGIC) else (read_recording,)
    for reader in readers:
        with pytest.raises(TraceError, match=says) as raised:
            reader(path)
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.dsrec", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_recording(path)


def test_of_a_later_version_all_that_is_known_opens_and_the_rest_is_said(path, tmp_path):
    later = msgspec.structs.replace(
        hello(PROTOCOL_VERSION + 1), environment={"decodescope": "9.1.0"}
    )
    data = record(path, [later, window(tmp_path, 1)]).read_bytes()
    unknown = framed(msgspec.msgpack.encode(["m", 9, {"type": "of_the_future"}]))
    known = encoded(MessageFrame(10**9, stats(7)))
    path.write_bytes(data + unknown + known + framed(b"\xc1") + known)
    recording = read_recording(path)
    assert [frame.message for frame in recording.frames(2)] == [stats(7), stats(7)]
    (finding,) = recording.findings
    assert finding.code == "recording_newer"
    assert "2 frames are left out; open it with version 9.1.0" in finding.message
    assert len(load(path).ops) == 1


def test_recordings_of_every_earlier_protocol_open(path):
    for protocol in range(1, PROTOCOL_VERSION + 1):
        record(path, [hello(protocol), stats(1)])
        assert next(read_recording(path).frames()).message.protocol == protocol


def test_the_bundled_recordings_are_of_the_first_protocol_and_open():
    greetings = []
    for bundled in bundled_recordings():
        greetings += [
            event.message
            for event in read_recording(bundled).events
            if isinstance(event.message, Hello)
        ]
    assert len(greetings) == len(bundled_recordings()) > 0
    assert all(greeting.protocol <= PROTOCOL_VERSION for greeting in greetings)
    first = [greeting for greeting in greetings if greeting.protocol == 1]
    assert all((g.settings, g.models, g.gpu_uuid) == (None, (), None) for g in first)


def test_a_later_version_may_add_fields(path):
    record(path, [hello(), stats(1)])
    later = msgspec.to_builtins(MessageFrame(5, stats(2)))
    later[2]["of_the_future"] = {"more": [1, 2]}
    body = msgspec.msgpack.encode(later)
    path.write_bytes(path.read_bytes() + framed(body))
    recording = read_recording(path)
    assert recording.findings == ()
    assert list(recording.frames())[-1].message == stats(2)


def test_a_window_that_cannot_be_unpacked_is_a_trace_error(path, tmp_path):
    data = bytearray(record(path, [window(tmp_path, 1)]).read_bytes()[len(HEADER) + 8 :])
    start = data.index(gzip.compress(b"")[:3])
    data[start : start + 3] = b"abc"
    path.write_bytes(HEADER + framed(bytes(data)))
    with pytest.raises(TraceError, match="cannot be unpacked"):
        load(path)


def test_a_change_of_any_byte_is_found(path, tmp_path):
    data = record(
        path, [hello(), State("running", "eager"), window(tmp_path, 1), stats(1)]
    ).read_bytes()
    rng = random.Random(seed := secrets.randbits(32))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= rng.randrange(1, 256)
        path.write_bytes(damaged)
        try:
            found = [finding.code for finding in read_recording(path).findings]
        except TraceError as error:
            found = [str(error)]
        assert found, f"byte {at}, seed {seed}"


def test_a_recording_of_the_version_before_checksums_opens(path, tmp_path):
    messages = [hello(), window(tmp_path, 1), stats(1)]
    with record(path, messages).open("rb") as file:
        file.read(len(HEADER))
        bodies = [msgspec.msgpack.encode(read_frame(file)) for _ in messages]
    frames = [len(body).to_bytes(4, "big") + body for body in bodies]
    path.write_bytes(MAGIC + b"\x01" + b"".join(frames))
    recording = read_recording(path)
    assert [type(frame.message) for frame in recording.frames()] == [*map(type, messages)]
    assert recording.findings == ()
    assert len(load(path).ops) == 1
    path.write_bytes(path.read_bytes() + framed(b"\xc1"))
    assert [finding.code for finding in read_recording(path).findings] == ["recording_cut"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_damaged_recordings_give_frames_or_one_line(path, tmp_path, data):
    if not path.exists():
        record(path, [hello(), window(tmp_path, 1), stats(1), State("paused", "x"), Bye("q")])
        path.rename(tmp_path / "whole")
    whole = bytearray((tmp_path / "whole").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.with_name("damaged").write_bytes(whole)
    try:
        recording = read_recording(path.with_name("damaged"))
        list(recording.frames())
        load(path.with_name("damaged"))
    except TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_garbage_after_the_header_is_a_finding_or_frames(path, garbage):
    path.write_bytes(MAGIC + bytes([VERSION]) + garbage)
    recording = read_recording(path)
    assert (recording.end < path.stat().st_size) == bool(recording.findings)


def test_the_format_is_what_its_description_says(path):
    """An independent reading of the bytes: magic, version, length, checksum, msgpack array."""
    data = record(path, [Bye("quit")]).read_bytes()
    assert data[:6] == b"DSREC\x02"
    length = int.from_bytes(data[6:10], "big")
    assert int.from_bytes(data[10:14], "big") == zlib.crc32(data[6:10] + data[14:])
    assert len(data) == 14 + length
    assert msgspec.msgpack.decode(data[14:]) == [
        "m",
        300_000_000,
        {"type": "bye", "reason": "quit"},
    ]


def test_times_that_run_backwards_are_held(path):
    frames = [MessageFrame(t_ns, Bye(str(t_ns))) for t_ns in (5, 3, 9)]
    path.write_bytes(HEADER + b"".join(encoded(frame) for frame in frames))
    recording = read_recording(path)
    assert list(recording.times_ns) == [5, 5, 9]
    assert [frame.t_ns for frame in recording.frames()] == [5, 5, 9]


@pytest.mark.parametrize("t_ns", [-1, 1 << 63])
def test_a_time_that_cannot_be_leaves_its_frame_out(path, t_ns):
    body = msgspec.msgpack.encode(["m", t_ns, {"type": "bye", "reason": "x"}])
    path.write_bytes(HEADER + framed(body))
    recording = read_recording(path)
    assert [finding.code for finding in recording.findings] == ["recording_newer"]
    assert not recording.times_ns
