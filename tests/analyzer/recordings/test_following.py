"""Reading a recording while it is written: nothing is lost or doubled, and its end is noticed."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.io.files import GrowingFile, growing_file
from decodescope.analyzer.protocol.messages import Log, State, Stats
from decodescope.analyzer.recordings.following import FollowedRecording, is_being_written
from decodescope.analyzer.recordings.frames import HEADER, MessageFrame, encoded
from decodescope.analyzer.recordings.recording import Recording, read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter

MESSAGES = [
    State("running", "eager"),
    *(Stats(seq, 0, "eager", seq, 10, 1, 5, 100.5, 10, 20, 30, "t" * seq) for seq in range(20)),
    Log("info", "x" * 3000),
    State("paused", "eager"),
]
FRAMES = [encoded(MessageFrame(number, message)) for number, message in enumerate(MESSAGES)]
DATA = HEADER + b"".join(FRAMES)
WRITE_AND_WAIT = """
import sys
from pathlib import Path
from decodescope.analyzer.protocol.messages import Log
from decodescope.analyzer.recordings.writer import RecordingWriter

writer = RecordingWriter(Path(sys.argv[1]))
for number in range(3):
    writer.write(Log("info", str(number)))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.dsrec"


def parts(recording: Recording) -> tuple[object, ...]:
    return (
        list(recording.times_ns),
        list(recording.offsets),
        recording.events,
        recording.end,
        recording.findings,
        [frame.message for frame in recording.frames()],
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, len(DATA)), max_size=40).map(sorted))
def test_however_the_bytes_arrive_every_frame_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.dsrec"
    file = GrowingFile(path)
    with closing(FollowedRecording(file.partial)) as followed:
        one_by_one = followed.recording.frames(0)
        taken = []
        for start, end in zip([0, *cuts], [*cuts, len(DATA)], strict=True):
            file.append(DATA[start:end])
            followed.read_on()
            assert followed.growing
            assert not followed.read_on()
            known = followed.recording.end
            assert known <= end
            assert end - known < max(len(HEADER), *map(len, FRAMES))
            taken += [next(one_by_one) for _ in range(len(taken), len(followed.recording.times_ns))]
        file.close()
        assert followed.read_on()
        assert not followed.growing
        assert followed.ending() == "complete"
        assert [frame.message for frame in taken] == MESSAGES
        assert parts(followed.recording) == parts(read_recording(path))


def test_a_growing_recording_is_found_by_the_name_that_it_will_have(
    path: Path, tmp_path: Path
) -> None:
    assert growing_file(path) is None
    with closing(RecordingWriter(path)) as writer:
        writer.write(MESSAGES[0])
        partial = tmp_path / "run.dsrec.partial"
        assert growing_file(path) == partial
        assert is_being_written(partial)
        link = tmp_path / "link"
        link.symlink_to(path.name)
        assert growing_file(link) == partial
        for other in ("run", partial.name, "none/run.dsrec", "/dev/fd/1"):
            assert growing_file(tmp_path / other) is None
    assert growing_file(path) is None
    assert not is_being_written(path)


def test_of_several_the_last_run_counts_and_none_that_was_left(path: Path, tmp_path: Path) -> None:
    (tmp_path / "run.dsrec.partial").write_bytes(DATA)
    os.mkfifo(tmp_path / "run.dsrec-7.partial")
    with closing(RecordingWriter(path)):
        assert growing_file(path) == tmp_path / "run.dsrec-2.partial"
        with closing(RecordingWriter(path)):
            assert growing_file(path) == tmp_path / "run.dsrec-3.partial"
        assert growing_file(path) == tmp_path / "run.dsrec-2.partial"
    assert growing_file(path) is None


def test_followers_do_not_hinder_the_writer_or_each_other(path: Path) -> None:
    with closing(RecordingWriter(path)) as writer:
        partial = growing_file(path)
        first, second = FollowedRecording(partial), FollowedRecording(partial)
        for number, message in enumerate(MESSAGES[-2:], 1):
            writer.write(message)
            for follower in (first, second):
                assert follower.read_on()
                assert len(follower.recording.times_ns) == number
    for follower in (first, second):
        assert follower.read_on()
        assert (follower.growing, follower.ending()) == (False, "complete")
        assert [frame.message for frame in follower.recording.frames()] == MESSAGES[-2:]
        follower.close()
        with pytest.raises(TraceError, match="no longer followed"):
            next(follower.recording.frames())


def test_a_killed_writer_is_noticed_and_what_it_wrote_stays(path: Path) -> None:
    command = [sys.executable, "-c", WRITE_AND_WAIT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        partial = growing_file(path)
        assert partial is not None
        with closing(FollowedRecording(partial)) as followed:
            followed.read_on()
            assert followed.growing
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert followed.read_on()
            assert not followed.growing
            assert followed.ending() == "unfinished"
            assert [frame.message.text for frame in followed.recording.frames()] == ["0", "1", "2"]
    assert growing_file(path) is None
    assert not is_being_written(partial)


def test_half_a_frame_is_a_finding_only_after_its_writer_has_ended(path: Path) -> None:
    file = GrowingFile(path)
    file.append(DATA[:-3])
    with closing(FollowedRecording(file.partial)) as followed:
        followed.read_on()
        assert followed.recording.findings == ()
        file.abandon()
        followed.read_on()
        assert "ends inside a frame" in followed.recording.findings[0].message
        assert (followed.growing, followed.ending()) == (False, "unfinished")
        assert len(followed.recording.times_ns) == len(MESSAGES) - 1


def test_a_recording_that_replaces_nothing_is_removed(path: Path) -> None:
    path.write_bytes(b"an older recording")
    writer = RecordingWriter(path)
    writer.write(MESSAGES[0])
    with closing(FollowedRecording(growing_file(path))) as followed:
        followed.read_on()
        writer.close()
        followed.read_on()
        assert (followed.growing, followed.ending()) == (False, "removed")
        assert [frame.message for frame in followed.recording.frames()] == MESSAGES[:1]


@pytest.mark.parametrize("left", [0, 30, len(DATA) - 1])
def test_a_file_that_shrinks_is_an_error(path: Path, left: int) -> None:
    file = GrowingFile(path)
    file.append(DATA)
    with closing(FollowedRecording(file.partial)) as followed:
        followed.read_on()
        os.truncate(file.partial, left)
        with pytest.raises(TraceError, match="was cut while it was read"):
            followed.read_on()
    file.abandon()


def test_bytes_that_disappear_between_two_looks_are_an_error_when_they_are_read(path: Path) -> None:
    """The writer goes on where it was, so the file is as long as before, with a hole."""
    file = GrowingFile(path)
    file.append(DATA)
    with closing(FollowedRecording(file.partial)) as followed:
        followed.read_on()
        os.truncate(file.partial, 30)
        file.append(FRAMES[0])
        assert followed.read_on()
        assert followed.recording.findings == ()
        with pytest.raises(TraceError, match="damaged frame"):
            list(followed.recording.frames())
        assert next(followed.recording.frames(len(MESSAGES))).message == MESSAGES[0]
    file.abandon()


def test_what_is_no_recording_or_not_there_is_one_line(path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        FollowedRecording(path)
    path.write_bytes(b"garbage")
    with (
        closing(FollowedRecording(path)) as followed,
        pytest.raises(TraceError, match="not a decodescope recording"),
    ):
        followed.read_on()


def test_a_growing_file_keeps_its_lock_until_it_has_its_name(path: Path, monkeypatch) -> None:
    file = GrowingFile(path)
    file.append(DATA)
    seen = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(is_being_written(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    file.close()
    assert seen == [True]
    assert not is_being_written(path)


def test_a_file_system_without_locks_still_takes_recordings(path: Path, monkeypatch) -> None:
    def refuse(file: object, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with closing(RecordingWriter(path)) as writer:
        writer.write(MESSAGES[0])
        assert growing_file(path) is None
    assert [frame.message for frame in read_recording(path).frames()] == MESSAGES[:1]


def test_a_writer_that_cannot_make_its_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the recording"):
        RecordingWriter(tmp_path / "none" / "run.dsrec")
