"""Recordings are written: whole or marked as partial, bounded, and read back as they were."""

import gzip
import json
import os
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.io.files import GrowingFile
from decodescope.analyzer.protocol.messages import Bye, Log, Progress, State, Stats, TraceReady
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from tests.helpers.recordings import capture, hello, record, stats, window


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.dsrec"


def test_messages_come_back_with_their_times(path):
    messages = [hello(), Progress("a", "b"), State("running", "eager"), stats(1), Bye("quit")]
    recording = read_recording(record(path, messages))
    assert [frame.message for frame in recording.frames()] == messages
    assert [frame.t_ns for frame in recording.frames()] == [300_000_000 * i for i in range(1, 6)]
    assert recording.duration_ns == 1_500_000_000
    assert recording.findings == ()
    assert recording.windows == ()


def test_the_file_has_its_name_only_when_it_is_closed(path):
    writer = RecordingWriter(path)
    writer.write(hello())
    assert not path.exists()
    partial = path.with_name("run.dsrec.partial")
    assert [frame.message for frame in read_recording(partial).frames()] == [hello()]
    writer.close()
    writer.close()
    writer.write(Bye("after the end"))
    assert [p.name for p in path.parent.iterdir()] == ["run.dsrec"]


def test_a_recording_left_by_a_killed_run_is_never_touched(path):
    partial = path.with_name("run.dsrec.partial")
    record(path, [hello()]).rename(partial)
    record(path, [Bye("quit")])
    assert [frame.message for frame in read_recording(partial).frames()] == [hello()]
    assert [frame.message for frame in read_recording(path).frames()] == [Bye("quit")]


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
    assert len(list(read_recording(path).frames())) == 1


def test_statistics_are_thinned_to_four_a_second_and_nothing_else_is(path):
    messages = []
    for seq in range(100):
        messages += [stats(seq), Log("info", str(seq))]
    record(path, messages, interval_ns=25_000_000)
    kept = [f for f in read_recording(path).frames() if isinstance(f.message, Stats)]
    assert len(kept) == 20
    assert all(b.t_ns - a.t_ns >= 250_000_000 for a, b in pairwise(kept))
    assert sum(isinstance(f.message, Log) for f in read_recording(path).frames()) == 100


def test_windows_are_embedded_and_bounded_per_variant(path, tmp_path):
    ready = [
        window(tmp_path, number, variant, requested=number == 9)
        for number, variant in enumerate(["a", "b", "a", "a", "a", "b", "a", "a", "a", "a"])
    ]
    record(path, ready, max_windows_per_variant=2)
    recording = read_recording(path)
    for announced in ready:
        Path(announced.path).unlink()
    texts = [gzip.decompress(recording.packed_traces(one)[0]) for one in recording.windows]
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
    assert [frame.message for frame in read_recording(path).frames()] == [Bye("x")]


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


def test_a_disk_that_is_full_from_the_start_keeps_no_empty_file(path, monkeypatch):
    def full(file, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GrowingFile, "append", full)
    with pytest.raises(InputError, match=r"No space left on device\)$"):
        RecordingWriter(path)
    assert list(path.parent.iterdir()) == []


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
    assert [frame.message for frame in partial.frames()] == [hello()]


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
