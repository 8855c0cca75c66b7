"""Playing a recording, and recording a link while it is used."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.protocol import (
    Bye,
    CaptureTrace,
    Failure,
    Log,
    Pause,
    Progress,
    Resume,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
)
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.tui.link.base import LinkEvent, WorkerDied
from decodescope.tui.link.recording import RecordingLink
from decodescope.tui.link.replay import ReplayLink
from tests.helpers.scripted import ScriptedLink

KERNEL = {
    "ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5.0, "dur": 3.5,
    "args": {"correlation": 7, "device": 0, "stream": 7},
}  # fmt: skip


def stats(seq: int) -> Stats:
    return Stats(seq, 0, "eager", seq, 10, 1, 5, 100.5, 10, 20, 30, "text")


def window(folder: Path, number: int) -> TraceReady:
    path = folder / f"window-{number:04d}.json"
    path.write_text(json.dumps({"traceEvents": [KERNEL] * number}))
    capture = CaptureInfo("cuda", "H200", "m", "random", "eager", "bf16", 1, 8, 9, 4, 99, None, "0")
    return TraceReady(str(path), capture, False)


def record(path: Path, timed) -> Path:
    """Write `timed` pairs of seconds and message."""
    now = [0]
    with closing(
        RecordingWriter(path, clock_ns=lambda: now[0], max_windows_per_variant=99)
    ) as writer:
        for seconds, message in timed:
            now[0] = round(seconds * 1e9)
            writer.write(message)
    return path


async def play(link: ReplayLink, seconds: float = 10) -> list:
    """All events up to the end of the recording, with the time each came."""
    loop = asyncio.get_running_loop()
    began, events = loop.time(), []
    async with asyncio.timeout(seconds):
        while not events or not isinstance(events[-1][1], Bye):
            event = await link.receive()
            events.append((loop.time() - began, event))
    return events


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.dsrec"


async def test_messages_arrive_in_order_and_not_early(path):
    timed = [
        (0.0, Progress("a")),
        (0.2, State("running", "eager")),
        (0.5, stats(1)),
        (0.9, stats(2)),
    ]
    link = ReplayLink(record(path, timed))
    await link.start()
    events = await play(link)
    await link.close()
    assert [event for _, event in events] == [*(m for _, m in timed), Bye("end of recording")]
    for (came, _), (at, _) in zip(events, timed, strict=False):
        assert came >= at - 0.01


async def test_long_silences_are_shortened_after_a_pause_too(path):
    link = ReplayLink(record(path, [(0.0, stats(0)), (600.0, stats(1)), (600.5, stats(2))]))
    await link.start()
    assert isinstance(await link.receive(), Stats)
    await link.send(Pause())
    await link.send(Resume())
    events = await play(link, seconds=4)
    sequence = [event.seq for _, event in events if isinstance(event, Stats)]
    assert sequence == [1, 2]
    assert events[-1][0] >= 1.0
    await link.close()


async def test_after_the_end_the_replay_holds_until_it_is_restarted_or_closed(path):
    link = ReplayLink(record(path, [(0, stats(1))]))
    await link.start()
    await play(link)
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await link.restart()
    assert await asyncio.wait_for(waiting, 5) == stats(1)
    assert await link.receive() == Bye("end of recording")
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0)
    await link.close()
    assert await asyncio.wait_for(waiting, 5) is None


async def test_pause_stops_the_clock_and_resume_goes_on(path):
    timed = [(0.0, State("running", "eager")), (0.3, stats(1)), (0.4, stats(2))]
    link = ReplayLink(record(path, timed))
    await link.start()
    assert await link.receive() == State("running", "eager")
    await link.send(SwitchVariant("compiled"))
    await link.send(CaptureTrace())
    await link.send(Pause())
    await link.send(Pause())
    assert await link.receive() == State("paused", "eager")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.receive(), 0.6)
    await link.send(Resume())
    assert await link.receive() == State("running", "eager")
    assert await asyncio.wait_for(link.receive(), 5) == stats(1)
    await link.close()


async def test_a_pause_reaches_a_receive_that_already_waits(path):
    link = ReplayLink(record(path, [(0, State("running", "eager")), (60, stats(1))]))
    await link.start()
    await link.receive()
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.05)
    await link.send(Pause())
    assert await asyncio.wait_for(waiting, 5) == State("paused", "eager")
    await link.close()


async def test_windows_are_copied_to_files_and_the_latest_are_kept(path, tmp_path):
    ready = [window(tmp_path, number) for number in range(1, 7)]
    record(path, [(number / 100, message) for number, message in enumerate(ready)])
    for message in ready:
        Path(message.path).unlink()
    link = ReplayLink(path)
    await link.start()
    announced = [event for _, event in await play(link) if isinstance(event, TraceReady)]
    assert [event.capture for event in announced] == [event.capture for event in ready]
    exist = [Path(event.path).exists() for event in announced]
    assert exist == [False, False, True, True, True, True]
    assert len(load(announced[-1].path).ops) == 6
    folder = Path(announced[-1].path).parent
    await link.close()
    assert not folder.exists()


async def test_a_truncated_recording_plays_its_whole_frames_and_warns(path):
    data = record(path, [(0, Progress("a")), (0, stats(1))]).read_bytes()
    path.write_bytes(data[:-3])
    link = ReplayLink(path)
    await link.start()
    events = [event for _, event in await play(link)]
    await link.close()
    assert isinstance(events[0], Log)
    assert "ends inside a frame" in events[0].text
    assert events[1:] == [Progress("a"), Bye("end of recording")]


async def test_a_file_that_is_not_a_recording_is_a_fatal_failure(tmp_path):
    path = tmp_path / "x.dsrec"
    path.write_bytes(b"garbage")
    link = ReplayLink(path)
    await link.start()
    failure, bye = [event for _, event in await play(link)]
    await link.close()
    assert isinstance(failure, Failure)
    assert (failure.fatal, failure.exit_code) == (True, 2)
    assert "not a decodescope recording" in failure.message
    assert isinstance(bye, Bye)


def delivering(*events: LinkEvent) -> ScriptedLink:
    """A link that delivers `events` and is closed."""
    link = ScriptedLink()
    link.say(*events, None)
    return link


async def test_a_recording_link_passes_on_and_records_every_event(path, tmp_path):
    events = [Progress("a"), window(tmp_path, 1), stats(1), WorkerDied(1, ()), Bye("quit")]
    inner = delivering(*events)
    link = RecordingLink(inner, RecordingWriter(path))
    await link.start()
    assert [await link.receive() for _ in range(6)] == [*events, None]
    await link.send(Pause())
    assert inner.sent == [Pause()]
    await link.close()
    assert inner.closed
    frames = [frame.message for frame in read_recording(path).frames]
    assert [type(message) for message in frames] == [Progress, TraceReady, Stats, Bye]


async def test_a_recording_that_cannot_continue_is_reported_once(path, monkeypatch):
    def full(data):
        raise OSError(28, "No space left on device")

    writer = RecordingWriter(path)
    monkeypatch.setattr(writer._file, "append", full)
    link = RecordingLink(delivering(Progress("a"), Progress("b"), Progress("c")), writer)
    events = [await link.receive() for _ in range(4)]
    await link.close()
    assert events[0] == Progress("a")
    assert isinstance(events[1], Log)
    assert "No space left" in events[1].text
    assert events[2:] == [Progress("b"), Progress("c")]
