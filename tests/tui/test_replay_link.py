"""Playing a recording."""

import asyncio
import json
import math
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.protocol.messages import (
    Bye,
    CaptureTrace,
    Failure,
    Hello,
    Pause,
    Progress,
    Resume,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
)
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.frames import HEADER, MessageFrame, WindowFrame, encoded
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.tui.link import replay
from decodescope.tui.link.base import FileHealth, Jumped, Seek, Speed
from decodescope.tui.link.replay import RECENT_FRAMES, ReplayLink
from tests.helpers.scripted import hello

NS = 1_000_000_000

KERNEL = {
    "ph": "X",
    "cat": "kernel",
    "name": "k",
    "pid": 0,
    "tid": 7,
    "ts": 5.0,
    "dur": 3.5,
    "args": {"correlation": 7, "device": 0, "stream": 7},
}


def stats(seq: int) -> Stats:
    return Stats(seq, 0, "eager", seq, 10, 1, 5, 100.5, 10, 20, 30, "text")


def window(folder: Path, number: int, variant: str = "eager") -> TraceReady:
    path = folder / f"window-{number:04d}.json"
    path.write_text(json.dumps({"traceEvents": [KERNEL] * number}))
    capture = CaptureInfo("cuda", "H200", "m", "random", variant, "bf16", 1, 8, 9, 4, 99, None, "0")
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


async def from_the_start(path: Path) -> ReplayLink:
    """A link that plays from the start."""
    link = ReplayLink(path)
    await link.restart()
    assert await link.receive() == Jumped(0, ())
    return link


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
    link = await from_the_start(record(path, timed))
    events = await play(link)
    await link.close()
    assert [event for _, event in events] == [*(m for _, m in timed), Bye("end of recording")]
    for (came, _), (at, _) in zip(events, timed, strict=False):
        assert came >= at - 0.05


async def test_a_recording_opens_on_its_last_window_and_is_paused_there(path, tmp_path):
    timed = [
        (1, hello()),
        (2, State("running", "eager")),
        (3, stats(1)),
        (4, window(tmp_path, 1)),
        (5, stats(2)),
        (6, window(tmp_path, 2)),
        (7, stats(3)),
        (9, Bye("quit")),
    ]
    link = ReplayLink(record(path, timed))
    await link.start()
    jumped = await link.receive()
    assert isinstance(jumped, Jumped)
    assert jumped.t_ns == 6e9
    assert [type(message) for _, message in jumped.past] == [Hello, State, Stats, Stats, TraceReady]
    assert [t_ns for t_ns, _ in jumped.past] == [1e9, 2e9, 3e9, 5e9, 6e9]
    assert len(load(jumped.past[-1][1].path).ops) == 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.receive(), 0.2)
    playback = link.playback()
    assert (playback.position_ns, playback.duration_ns, playback.state) == (6e9, 9e9, "paused")
    assert link.now(123.0) == 6.0
    await link.send(Resume())
    assert link.playback().state == "playing"
    assert await asyncio.wait_for(link.receive(), 5) == stats(3)
    await link.close()


async def test_a_recording_without_a_window_opens_on_its_end(path):
    link = ReplayLink(record(path, [(1, State("running", "eager")), (3, stats(1))]))
    await link.start()
    jumped, bye = [event for _, event in await play(link)]
    assert [message for _, message in jumped.past] == [State("running", "eager"), stats(1)]
    assert bye == Bye("end of recording")
    assert (link.playback().state, link.playback().position_ns) == ("ended", 3e9)
    await link.close()


async def test_a_seek_reports_the_past_of_that_moment_and_only_the_last_seek_counts(path):
    timed = [(0, State("running", "eager")), *((second, stats(second)) for second in range(1, 90))]
    link = ReplayLink(record(path, timed))
    await link.start()
    await play(link)
    for second in (10, 80, 40):
        await link.send(Seek(second * NS + 5))
        assert link.playback().position_ns == second * NS + 5
    jumped = await asyncio.wait_for(link.receive(), 5)
    assert jumped.t_ns == 40 * NS + 5
    assert jumped.past[-1] == (40 * NS, stats(40))
    assert len(jumped.past) == 41
    assert link.playback().state == "paused"
    await link.send(Resume())
    assert await asyncio.wait_for(link.receive(), 5) == stats(41)
    await link.send(Pause())
    for t_ns, place in ((-5, 0), (1 << 70, 89 * NS)):
        await link.send(Seek(t_ns))
        assert (await asyncio.wait_for(link.receive(), 5)).t_ns == place
    await link.close()


async def test_a_jump_into_hours_is_bounded(path):
    timed = [(0, State("running", "eager")), *((s / 4, stats(s)) for s in range(1, 4001))]
    link = ReplayLink(record(path, timed))
    await link.start()
    jumped = await link.receive()
    await link.close()
    assert jumped.past[0] == (0, State("running", "eager"))
    numbers = [message.seq for _, message in jumped.past[1:]]
    assert numbers == list(range(4001 - RECENT_FRAMES, 4001))


async def test_the_window_of_another_variant_is_not_reported(path, tmp_path):
    timed = [
        (0, State("running", "eager")),
        (1, window(tmp_path, 1)),
        (2, State("running", "other")),
        (3, window(tmp_path, 2, "other")),
        (4, State("running", "eager")),
        (5, stats(1)),
    ]
    link = ReplayLink(record(path, timed))
    await link.start()
    await link.receive()
    found = {}
    for second in (2, 3, 5):
        await link.send(Seek(second * NS))
        past = (await asyncio.wait_for(link.receive(), 5)).past
        found[second] = [m.capture.variant for _, m in past if isinstance(m, TraceReady)]
    await link.close()
    assert found == {2: [], 3: ["other"], 5: ["eager"]}


@pytest.mark.parametrize(("speed", "seconds"), [(2.0, 0.45), (0.5, 1.8)])
async def test_speed_scales_the_time_between_messages(path, speed, seconds):
    link = await from_the_start(record(path, [(0.0, stats(0)), (0.9, stats(1))]))
    await link.send(Speed(speed))
    events = await play(link)
    await link.close()
    assert [event.seq for _, event in events[:2]] == [0, 1]
    assert events[1][0] - events[0][0] >= seconds - 0.05


async def test_the_fastest_replay_waits_for_nothing_and_lets_keys_through(path, monkeypatch):
    monkeypatch.setattr(replay, "_YIELD_S", -1.0)
    timed = [(s * 60, stats(s)) for s in range(3000)]
    link = await from_the_start(record(path, timed))
    await link.send(Speed(math.inf))
    turns, playing = 0, asyncio.create_task(play(link))
    while not playing.done():
        turns += 1
        await asyncio.sleep(0)
    events = [event for _, event in playing.result()]
    await link.close()
    assert [event.seq for event in events[:-1]] == list(range(3000))
    assert turns >= 3000


async def test_long_silences_are_shortened_after_a_pause_too(path):
    link = await from_the_start(record(path, [(0, stats(0)), (600, stats(1)), (600.5, stats(2))]))
    assert isinstance(await link.receive(), Stats)
    await link.send(Pause())
    await link.send(Resume())
    events = await play(link, seconds=4)
    sequence = [event.seq for _, event in events if isinstance(event, Stats)]
    assert sequence == [1, 2]
    assert events[-1][0] >= 1.0
    await link.close()


async def test_after_the_end_the_replay_holds_until_it_is_restarted_or_closed(path):
    link = await from_the_start(record(path, [(0, stats(1))]))
    await play(link)
    await link.send(Resume())
    assert link.playback().state == "ended"
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await link.restart()
    assert await asyncio.wait_for(waiting, 5) == Jumped(0, ())
    assert await link.receive() == stats(1)
    assert await link.receive() == Bye("end of recording")
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0)
    await link.close()
    assert await asyncio.wait_for(waiting, 5) is None


async def test_pause_stops_the_clock_and_resume_goes_on(path):
    timed = [(0.0, State("running", "eager")), (0.3, stats(1)), (0.4, stats(2))]
    link = await from_the_start(record(path, timed))
    assert await link.receive() == State("running", "eager")
    await link.send(SwitchVariant("compiled"))
    await link.send(CaptureTrace())
    await link.send(Pause())
    await link.send(Pause())
    assert link.playback().state == "paused"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.receive(), 0.6)
    await link.send(Resume())
    assert await asyncio.wait_for(link.receive(), 5) == stats(1)
    await link.close()


async def test_a_seek_reaches_a_receive_that_already_waits(path):
    link = await from_the_start(record(path, [(0, State("running", "eager")), (60, stats(1))]))
    await link.receive()
    await link.send(Pause())
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.05)
    await link.send(Seek(60 * NS))
    assert (await asyncio.wait_for(waiting, 5)).past[-1] == (60 * NS, stats(1))
    await link.close()


async def test_each_window_is_copied_to_a_file_once(path, tmp_path):
    ready = [window(tmp_path, number) for number in range(1, 7)]
    record(path, [(number / 100, message) for number, message in enumerate(ready)])
    for message in ready:
        Path(message.path).unlink()
    link = await from_the_start(path)
    announced = [event for _, event in await play(link) if isinstance(event, TraceReady)]
    assert [event.capture for event in announced] == [event.capture for event in ready]
    assert [len(load(event.path).ops) for event in announced] == [1, 2, 3, 4, 5, 6]
    folder = Path(announced[-1].path).parent
    await link.restart()
    assert [e.path for _, e in await play(link) if isinstance(e, TraceReady)] == [
        event.path for event in announced
    ]
    assert len(list(folder.iterdir())) == 6
    await link.close()
    assert not folder.exists()


async def test_a_truncated_recording_says_so_and_plays_its_whole_frames(path):
    data = record(path, [(0, Progress("a")), (0, stats(1))]).read_bytes()
    path.write_bytes(data[:-3])
    link = ReplayLink(path)
    await link.start()
    health, jumped, bye = [event for _, event in await play(link)]
    await link.close()
    assert isinstance(health, FileHealth)
    assert "ends inside a frame" in health.findings[0].message
    assert [message for _, message in jumped.past] == [Progress("a")]
    assert bye == Bye("end of recording")


async def test_a_recording_that_grows_is_read_on_after_a_restart(path):
    now = [0]
    with closing(RecordingWriter(path, clock_ns=lambda: now[0])) as writer:
        partial = path.with_name("run.dsrec.partial")
        writer.write(stats(1))
        link = ReplayLink(partial)
        await link.start()
        await play(link)
        now[0] = 2 * NS
        writer.write(stats(2))
        await link.restart()
        await link.send(Speed(math.inf))
        events = [event for _, event in await play(link)]
        await link.close()
    assert [event.seq for event in events if isinstance(event, Stats)] == [1, 2]


async def test_a_file_that_shrinks_while_it_plays_ends_the_replay(path):
    link = await from_the_start(record(path, [(0, stats(1)), (0.3, stats(2)), (0.6, stats(3))]))
    assert await link.receive() == stats(1)
    path.write_bytes(path.read_bytes()[:30])
    await link.send(Seek(NS))
    log, bye = [event for _, event in await play(link)][-2:]
    await link.close()
    assert "changed while it played" in log.text
    assert bye == Bye("end of recording")


async def test_a_file_that_is_not_a_recording_is_a_fatal_failure(tmp_path):
    path = tmp_path / "x.dsrec"
    path.write_bytes(b"garbage")
    link = ReplayLink(path)
    await link.start()
    failure, bye = [event for _, event in await play(link)]
    for message in (Resume(), Seek(1), Speed(2.0)):
        await link.send(message)
    assert link.playback() is None
    await link.close()
    assert isinstance(failure, Failure)
    assert (failure.fatal, failure.exit_code) == (True, 2)
    assert "not a decodescope recording" in failure.message
    assert isinstance(bye, Bye)


async def test_the_windows_of_all_ranks_are_replayed_and_no_other_file(tmp_path: Path) -> None:
    first, second = (window(tmp_path, number) for number in (1, 2))
    both = msgspec.structs.replace(first, others=(second.path,))
    path = record(tmp_path / "ranks.dsrec", [(0, hello()), (1, both)])
    # As written before others were kept.
    source = read_recording(path).packed_traces(read_recording(path).windows[0])[0]
    alone = tmp_path / "alone.dsrec"
    frames = MessageFrame(0, hello()), WindowFrame(NS, both, source)
    alone.write_bytes(HEADER + b"".join(encoded(frame) or b"" for frame in frames))
    for recording, numbers in ((path, [1, 2]), (alone, [1])):
        link = await from_the_start(recording)
        events = [event for _, event in await play(link)]
        (ready,) = (event for event in events if isinstance(event, TraceReady))
        files = [Path(file) for file in (ready.path, *ready.others)]
        assert [len(load(file).ops) for file in files] == numbers
        assert not any(file.is_relative_to(tmp_path) for file in files)
        await link.close()
