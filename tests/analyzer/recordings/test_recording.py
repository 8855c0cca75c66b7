"""Recordings: messages are read back, a cut-off tail is reported, garbage is a one-line error."""

import gzip
import json
import os
import tempfile
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.protocol import (
    PROTOCOL_VERSION,
    Bye,
    Hello,
    Log,
    Progress,
    State,
    Stats,
    TraceReady,
    VariantInfo,
)
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.bundled import bundled_recordings, recording_head
from decodescope.analyzer.recordings.frames import HEADER, MAGIC, VERSION, MessageFrame, encoded
from decodescope.analyzer.recordings.recording import Mark, read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.schema.report import CaptureInfo

KINETO = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 1_000,
    "traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
         "ts": 1.0, "dur": 2.0, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "gemv", "pid": 0, "tid": 7, "ts": 5.0, "dur": 3.5,
         "args": {"correlation": 7, "device": 0, "stream": 7}},
    ],
}  # fmt: skip


class Clock:
    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def __call__(self) -> int:
        return self.ns


def hello(protocol: int = PROTOCOL_VERSION) -> Hello:
    return Hello(
        protocol, 1, "cuda", "H200", "m", "random", "bf16", 1, 8, 9,
        (VariantInfo("eager", "as is"),), None, 4.8e12, {"torch": "2.13", "cores": 2},
    )  # fmt: skip


def stats(seq: int) -> Stats:
    return Stats(seq, 0, "eager", seq, 10, 1, 5, 100.5, 10, 20, 30, "text")


def capture(variant: str = "eager") -> CaptureInfo:
    return CaptureInfo("cuda", "H200", "m", "random", variant, "bf16", 1, 8, 9, 4, 99, None, "0")


def window(folder: Path, number: int, variant: str = "eager", requested: bool = False):
    path = folder / f"window-{number:04d}.json"
    path.write_text(json.dumps(KINETO | {"number": number}))
    return TraceReady(str(path), capture(variant), requested)


def record(path: Path, messages, interval_ns: int = 300_000_000, **options) -> Path:
    clock = Clock()
    with closing(RecordingWriter(path, clock_ns=clock, **options)) as writer:
        for message in messages:
            clock.ns += interval_ns
            writer.write(message)
    return path


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.dsrec"


def test_messages_come_back_with_their_times(path):
    messages = [hello(), Progress("a", "b"), State("running", "eager"), stats(1), Bye("quit")]
    recording = read_recording(record(path, messages))
    assert [frame.message for frame in recording.frames] == messages
    assert [frame.t_ns for frame in recording.frames] == [300_000_000 * i for i in range(1, 6)]
    assert recording.duration_ns == 1_500_000_000
    assert recording.findings == ()
    assert recording.windows == ()


def test_the_file_has_its_name_only_when_it_is_closed(path):
    writer = RecordingWriter(path)
    writer.write(hello())
    assert not path.exists()
    partial = path.with_name("run.dsrec.partial")
    assert [frame.message for frame in read_recording(partial).frames] == [hello()]
    writer.close()
    writer.close()
    writer.write(Bye("after the end"))
    assert [p.name for p in path.parent.iterdir()] == ["run.dsrec"]


def test_a_recording_left_by_a_killed_run_is_never_touched(path):
    partial = path.with_name("run.dsrec.partial")
    record(path, [hello()]).rename(partial)
    record(path, [Bye("quit")])
    assert [frame.message for frame in read_recording(partial).frames] == [hello()]
    assert [frame.message for frame in read_recording(path).frames] == [Bye("quit")]


def test_a_recording_goes_through_a_pipe(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    record(fifo, [Bye("quit")])
    reader.join(10)
    assert [p.name for p in tmp_path.iterdir()] == ["fifo"]
    assert read == [record(tmp_path / "run.dsrec", [Bye("quit")]).read_bytes()]


def test_an_interrupted_run_still_finishes_its_recording(path):
    def interrupted() -> None:
        with closing(RecordingWriter(path)) as writer:
            writer.write(hello())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(list(read_recording(path).frames)) == 1


def test_statistics_are_thinned_to_four_a_second_and_nothing_else_is(path):
    messages = []
    for seq in range(100):
        messages += [stats(seq), Log("info", str(seq))]
    record(path, messages, interval_ns=25_000_000)
    kept = [f for f in read_recording(path).frames if isinstance(f.message, Stats)]
    assert len(kept) == 20
    assert all(b.t_ns - a.t_ns >= 250_000_000 for a, b in pairwise(kept))
    assert sum(isinstance(f.message, Log) for f in read_recording(path).frames) == 100


def test_windows_are_embedded_and_bounded_per_variant(path, tmp_path):
    ready = [
        window(tmp_path, number, variant, requested=number == 9)
        for number, variant in enumerate(["a", "b", "a", "a", "a", "b", "a", "a", "a", "a"])
    ]
    record(path, ready, max_windows_per_variant=2)
    recording = read_recording(path)
    for announced in ready:
        Path(announced.path).unlink()
    texts = [gzip.decompress(recording.packed_trace(one)) for one in recording.windows]
    numbers = [json.loads(text)["number"] for text in texts]
    assert numbers == [0, 1, 2, 5, 9]
    assert [w.message.path for w in recording.windows][-1] == "window-0009.json"
    assert [w.message.requested for w in recording.windows] == [False] * 4 + [True]


def test_a_long_run_has_a_window_every_five_minutes_and_all_that_were_asked_for(path, tmp_path):
    """One automatic window every 50 s, of two variants in turn; every seventh was asked for."""
    ready = [
        window(tmp_path, number, "ab"[number % 2], requested=number % 7 == 3)
        for number in range(60)
    ]
    recording = read_recording(record(path, ready, 50_000_000_000, max_windows_per_variant=1))
    asked = [frame for frame in recording.windows if frame.message.requested]
    assert [frame.message.path for frame in asked] == [
        f"window-{number:04d}.json" for number in range(3, 60, 7)
    ]
    for variant in "ab":
        mine = [frame for frame in recording.windows if frame.message.capture.variant == variant]
        assert sum(not frame.message.requested for frame in mine) >= 5
        for before, after in pairwise(mine):
            assert after.t_ns - before.t_ns <= 400_000_000_000
            assert after.message.requested or after.t_ns - before.t_ns >= 300_000_000_000


def test_a_window_whose_file_is_gone_is_left_out(path):
    record(path, [TraceReady("/nowhere/window-0001.json", capture(), False), Bye("x")])
    assert [frame.message for frame in read_recording(path).frames] == [Bye("x")]


def test_the_last_window_is_the_trace_of_a_recording(path, tmp_path):
    record(path, [window(tmp_path, 1), hello(), window(tmp_path, 2), stats(1)])
    trace = load(path)
    assert trace.source.format == "recording"
    assert trace.source.path == str(path)
    assert (trace.ops.end_ns - trace.ops.start_ns).tolist() == [3_500]
    assert trace.ops.launch.tolist() == [0]


def test_a_recording_without_windows_is_no_trace(path):
    record(path, [hello()])
    with pytest.raises(TraceError, match=r"run\.dsrec: the recording holds no captured window"):
        load(path)


def test_every_truncation_keeps_the_whole_frames_and_says_so(path, tmp_path):
    messages = [hello(), State("running", "eager"), window(tmp_path, 1), stats(1), Bye("quit")]
    data = record(path, messages).read_bytes()
    offsets = [frame.offset for frame in read_recording(path).frames] + [len(data)]
    for size in range(len(MAGIC) + 1, len(data)):
        path.write_bytes(data[:size])
        recording = read_recording(path)
        whole = sum(end <= size for end in offsets[1:])
        assert len(list(recording.frames)) == whole
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


def test_another_worker_protocol_is_refused(path):
    record(path, [hello(PROTOCOL_VERSION + 1)])
    with pytest.raises(TraceError, match=f"protocol {PROTOCOL_VERSION + 1}"):
        read_recording(path)


def test_recordings_of_every_earlier_protocol_open(path):
    for protocol in range(1, PROTOCOL_VERSION + 1):
        record(path, [hello(protocol), stats(1)])
        assert next(read_recording(path).frames).message.protocol == protocol


def test_the_bundled_recordings_are_of_the_first_protocol_and_open():
    greetings = []
    for bundled in bundled_recordings():
        greetings += [event.message for event in read_recording(bundled).events
                      if isinstance(event.message, Hello)]  # fmt: skip
    assert len(greetings) == len(bundled_recordings()) > 0
    assert all(greeting.protocol <= PROTOCOL_VERSION for greeting in greetings)
    first = [greeting for greeting in greetings if greeting.protocol == 1]
    assert all((g.settings, g.models, g.gpu_uuid) == (None, (), None) for g in first)


def test_a_later_version_may_add_fields(path):
    record(path, [hello(), stats(1)])
    later = msgspec.to_builtins(MessageFrame(5, stats(2)))
    later[2]["of_the_future"] = {"more": [1, 2]}
    body = msgspec.msgpack.encode(later)
    path.write_bytes(path.read_bytes() + len(body).to_bytes(4, "big") + body)
    recording = read_recording(path)
    assert recording.findings == ()
    assert list(recording.frames)[-1].message == stats(2)


def test_a_window_that_cannot_be_unpacked_is_a_trace_error(path, tmp_path):
    data = bytearray(record(path, [window(tmp_path, 1)]).read_bytes())
    start = data.index(gzip.compress(b"")[:3])
    data[start : start + 3] = b"abc"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="cannot be unpacked"):
        load(path)


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
        list(recording.frames)
        load(path.with_name("damaged"))
    except TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_garbage_after_the_header_is_a_finding_or_frames(path, garbage):
    path.write_bytes(MAGIC + bytes([VERSION]) + garbage)
    recording = read_recording(path)
    assert (recording.end < path.stat().st_size) == bool(recording.findings)


def test_a_target_that_cannot_be_written_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot write the recording"):
        RecordingWriter(tmp_path / "no" / "folder.dsrec")


def test_a_full_disk_is_an_input_error_and_ends_the_recording(path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    path.symlink_to("/dev/full")
    with pytest.raises(InputError, match="No space left"):
        RecordingWriter(path)
    assert [p.name for p in path.parent.iterdir()] == ["run.dsrec"]
    assert path.is_symlink()


def test_a_disk_that_fills_up_is_said_once(path, monkeypatch):
    writer = RecordingWriter(path)
    writer.write(hello())

    def full(data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer._file, "append", full)
    with pytest.raises(InputError, match="No space left"):
        writer.write(Bye("x"))
    writer.write(Bye("y"))
    writer.close()
    partial = read_recording(path.with_name("run.dsrec.partial"))
    assert [frame.message for frame in partial.frames] == [hello()]


def test_closing_waits_for_a_window_being_packed(path, tmp_path, monkeypatch):
    ready = window(tmp_path, 1)
    reading, go_on = threading.Event(), threading.Event()
    read_bytes = Path.read_bytes

    def slow(self):
        reading.set()
        assert go_on.wait(10)
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", slow)
    writer = RecordingWriter(path)
    packer = threading.Thread(target=writer.write, args=(ready,))
    packer.start()
    assert reading.wait(10)
    closer = threading.Thread(target=writer.close)
    closer.start()
    go_on.set()
    packer.join(10)
    closer.join(10)
    assert len(read_recording(path).windows) == 1


def test_the_format_is_what_its_description_says(path):
    """An independent reading of the bytes: magic, version, length, msgpack array."""
    data = record(path, [Bye("quit")]).read_bytes()
    assert data[:6] == b"DSREC\x01"
    length = int.from_bytes(data[6:10], "big")
    assert len(data) == 10 + length
    assert msgspec.msgpack.decode(data[10:]) == [
        "m",
        300_000_000,
        {"type": "bye", "reason": "quit"},
    ]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_past_of_any_moment_is_what_a_reader_from_the_start_would_know(data):
    """Independent: fold all frames, then keep the last of what replaces itself."""
    kinds = [
        hello(),
        *(State("running", name) for name in "ab"),
        *(Log("info", str(number)) for number in range(3)),
        Progress("building"),
        stats(1),
    ]
    choices = data.draw(
        st.lists(st.sampled_from([*kinds, "window a", "window b"]), min_size=1, max_size=60)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        messages = [
            window(folder, number, choice[-1]) if isinstance(choice, str) else choice
            for number, choice in enumerate(choices)
        ]
        recording = read_recording(record(folder / "r.dsrec", messages, max_windows_per_variant=99))
        frames = list(recording.frames)
        number = data.draw(st.integers(0, len(frames)))
        recent = data.draw(st.integers(0, 12))
        past = recording.past(number, recent)
    before = frames[:number]
    assert [frame.offset for frame in past] == sorted({frame.offset for frame in past})
    assert {frame.offset for frame in past} <= {frame.offset for frame in before}

    def last(frames_, kind):
        return [frame.offset for frame in frames_ if isinstance(frame.message, kind)][-1:]

    for kind in (Hello, State):
        assert last(past, kind) == last(before, kind)
    windows = {
        frame.message.capture.variant: frame.offset
        for frame in before
        if isinstance(frame.message, TraceReady)
    }
    kept = [frame for frame in past if isinstance(frame.message, TraceReady)]
    assert {frame.message.capture.variant: frame.offset for frame in kept} == windows
    assert len(kept) == len(windows)
    for frame in before[max(number - recent, 0) :]:
        assert frame.offset in {one.offset for one in past} or isinstance(frame.message, TraceReady)
    assert sum(isinstance(frame.message, Stats) for frame in past) <= recent
    logs = [frame.offset for frame in before if isinstance(frame.message, Log | Progress)]
    assert {frame.offset for frame in past} >= set(logs)


def test_what_hours_ago_was_logged_is_bounded(path):
    messages = [hello(), *(Log("info", str(number)) for number in range(1000)), stats(1)]
    recording = read_recording(record(path, messages))
    past = recording.past(len(messages), 1)
    texts = [frame.message.text for frame in past if isinstance(frame.message, Log)]
    assert texts == [str(number) for number in range(800, 1000)]
    assert past[0].message == hello()
    assert past[-1].message == stats(1)


def test_marks_are_the_windows_and_the_changes_of_variant(path, tmp_path):
    messages = [
        hello(), State("building", "a"), State("running", "a"), window(tmp_path, 1, "a"), stats(1),
        State("paused", "a"), State("running", "b"), window(tmp_path, 2, "b"),
    ]  # fmt: skip
    recording = read_recording(record(path, messages, interval_ns=1000))
    assert recording.marks() == (
        Mark(2000, "switch", "a"),
        Mark(4000, "window", "a"),
        Mark(7000, "switch", "b"),
        Mark(8000, "window", "b"),
    )
    assert [recording.number_after(t_ns) for t_ns in (0, 999, 1000, 7999, 9000)] == [0, 0, 1, 7, 8]


def test_times_that_run_backwards_are_held(path):
    frames = [MessageFrame(t_ns, Bye(str(t_ns))) for t_ns in (5, 3, 9)]
    path.write_bytes(HEADER + b"".join(encoded(frame) for frame in frames))
    recording = read_recording(path)
    assert list(recording.times_ns) == [5, 5, 9]
    assert [frame.t_ns for frame in recording.frames] == [5, 5, 9]


@pytest.mark.parametrize("t_ns", [-1, 1 << 63])
def test_a_time_that_cannot_be_is_an_unreadable_frame(path, t_ns):
    body = msgspec.msgpack.encode(["m", t_ns, {"type": "bye", "reason": "x"}])
    path.write_bytes(HEADER + len(body).to_bytes(4, "big") + body)
    assert [finding.code for finding in read_recording(path).findings] == ["recording_cut"]


def test_the_head_says_what_was_recorded_without_reading_on(path, tmp_path):
    messages = [Progress("a"), hello(), State("building", "a"), *(stats(n) for n in range(99))]
    record(path, messages)
    whole = path.read_bytes()
    head = recording_head(path)
    assert (head.model, head.variant, head.batch, head.size_bytes) == ("m", "a", 1, len(whole))
    path.write_bytes(whole[: len(whole) // 2])
    assert recording_head(path).variant == "a"
    assert recording_head(record(tmp_path / "none.dsrec", [Bye("x")])) is None
    with pytest.raises(TraceError, match="cannot be read"):
        recording_head(tmp_path / "missing.dsrec")
