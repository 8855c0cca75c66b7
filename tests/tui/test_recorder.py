"""Recording a link while it is used."""

from decodescope.analyzer.protocol.messages import Bye, Failure, Progress, Stats, TraceReady
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.recording import Recorder
from tests.tui.test_replay_link import stats, window


async def test_every_event_is_recorded(tmp_path):
    writer = RecordingWriter(tmp_path / "run.dsrec")
    recorder = Recorder(writer)
    for event in (Progress("a"), window(tmp_path, 1), stats(1), WorkerDied(1, ()), Bye("quit")):
        assert await recorder.record(event) is None
    assert recorder.records
    writer.close()
    frames = [frame.message for frame in read_recording(tmp_path / "run.dsrec").frames()]
    assert [type(message) for message in frames] == [Progress, TraceReady, Stats, Failure, Bye]


async def test_a_recording_that_cannot_continue_is_reported_once(tmp_path, monkeypatch):
    def full(data):
        raise OSError(28, "No space left on device")

    writer = RecordingWriter(tmp_path / "run.dsrec")
    monkeypatch.setattr(writer._file, "append", full)
    recorder = Recorder(writer)
    failure, *others = [await recorder.record(Progress(stage)) for stage in "abc"]
    writer.close()
    assert isinstance(failure, Failure)
    assert "No space left" in failure.message
    assert others == [None, None]
    assert not recorder.records
