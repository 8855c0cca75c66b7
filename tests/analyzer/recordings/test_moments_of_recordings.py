"""The past, the marks and the head of a recording."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.messages import (
    Bye,
    Hello,
    Log,
    Progress,
    State,
    Stats,
    TraceReady,
)
from decodescope.analyzer.recordings.bundled import recording_head
from decodescope.analyzer.recordings.recording import RecordingMark, read_recording
from tests.helpers.recordings import hello, record, stats, window


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.dsrec"


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
        frames = list(recording.frames())
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
        hello(),
        State("building", "a"),
        State("running", "a"),
        window(tmp_path, 1, "a"),
        stats(1),
        State("paused", "a"),
        State("running", "b"),
        window(tmp_path, 2, "b"),
    ]
    recording = read_recording(record(path, messages, interval_ns=1000))
    assert recording.marks() == (
        RecordingMark(2000, "switch", "a"),
        RecordingMark(4000, "window", "a"),
        RecordingMark(7000, "switch", "b"),
        RecordingMark(8000, "window", "b"),
    )
    assert [recording.number_after(t_ns) for t_ns in (0, 999, 1000, 7999, 9000)] == [0, 0, 1, 7, 8]


def test_the_head_says_what_was_recorded_without_reading_on(path, tmp_path):
    messages = [Progress("a"), hello(), State("building", "a"), *(stats(n) for n in range(99))]
    record(path, messages)
    whole = path.read_bytes()
    head = recording_head(path)
    assert (head.hello.model, head.variant, head.hello.batch) == ("m", "a", 1)
    path.write_bytes(whole[: len(whole) // 2])
    assert recording_head(path).variant == "a"
    assert recording_head(record(tmp_path / "none.dsrec", [Bye("x")])) is None
    with pytest.raises(TraceError, match="cannot be read"):
        recording_head(tmp_path / "missing.dsrec")
