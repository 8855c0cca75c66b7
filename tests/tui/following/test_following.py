"""Following a recording while a run writes it: the link."""

import asyncio
import gzip
import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.io.files import GrowingFile
from decodescope.analyzer.protocol.messages import (
    Bye,
    Failure,
    Heartbeat,
    Log,
    Pause,
    Resume,
    State,
    Stats,
    TraceReady,
)
from decodescope.analyzer.recordings.frames import HEADER, MessageFrame, encoded
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link import following
from decodescope.tui.link.base import NEWEST_NS, FileHealth, Jumped, Seek, Speed, WorkerDied
from decodescope.tui.link.following import FollowLink
from decodescope.tui.link.recording import Recorder
from decodescope.tui.link.replay import ReplayLink
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.sources import ReplaySource
from tests.helpers.scripted import StillClock, ready, stats, write_trace
from tests.tui.following.run import NS, Run

PATIENCE_S = 20.0
ENDED = [Log("info", "the run has ended, and its recording is complete"), Bye("end of recording")]


async def next_of(link: FollowLink):
    return await asyncio.wait_for(link.receive(), PATIENCE_S)


async def nothing_comes(link: FollowLink) -> bool:
    try:
        await asyncio.wait_for(link.receive(), 0.4)
    except TimeoutError:
        return True
    return False


async def test_it_opens_on_the_newest_moment_and_delivers_what_comes(run):
    link = run.link()
    await link.start()
    jumped = await next_of(link)
    assert isinstance(jumped, Jumped)
    assert [type(message).__name__ for _, message in jumped.past] == ["Hello", "State", "Stats"]
    assert await nothing_comes(link)
    assert (link.playback().state, link.playback().growing) == ("following", True)
    for number in range(2, 6):
        run.say(number, stats(number))
        assert await next_of(link) == stats(number)
        assert link.playback().position_ns == link.playback().duration_ns == number * NS
        assert number <= link.now(0.0) < number + 1
    await link.close()


async def test_figures_age_while_nothing_is_said(run):
    link = run.link()
    await link.start()
    await next_of(link)
    began = link.now(0.0)
    assert await nothing_comes(link)
    assert 0.3 < link.now(0.0) - began < 5
    assert link.playback().position_ns == 1 * NS
    await link.close()


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 2000), st.booleans()), min_size=1, max_size=12))
def test_however_the_bytes_arrive_each_frame_is_delivered_once(tmp_path_factory, pieces) -> None:
    """`pieces`: how many bytes are written at once, and whether the reader gets a turn."""
    messages = [stats(seq, text="t" * (37 * seq % 500)) for seq in range(12)]
    frames = [encoded(MessageFrame(number * NS, m)) for number, m in enumerate(messages)]
    data = HEADER + b"".join(frames)

    async def follow() -> list:
        file = GrowingFile(tmp_path_factory.mktemp("run") / "run.dsrec")
        link, got = ReplaySource(file.partial).open_link(), []
        reading, started = None, asyncio.Event()

        async def read() -> None:
            await link.start()
            started.set()
            while not isinstance(event := await link.receive(), Bye):
                got.append(event)

        at = 0
        for length, turn in [*pieces, (len(data), True)]:
            file.append(data[at : at + length])
            at += length
            if reading is None:
                reading = asyncio.create_task(read())
            if turn:
                await asyncio.sleep(0.005)
        # Who comes later plays a recording that is complete.
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        file.close()
        await asyncio.wait_for(reading, PATIENCE_S)
        await link.close()
        return got

    before, following.POLL_S = following.POLL_S, 0.001
    try:
        got = asyncio.run(follow())
    finally:
        following.POLL_S = before
    past = [m for event in got if isinstance(event, Jumped) for _, m in event.past]
    assert past + [event for event in got if isinstance(event, Stats)] == messages
    assert [e for e in got if not isinstance(e, Jumped | Stats)] == ENDED[:1]


async def test_a_pause_holds_it_while_the_recording_grows_and_then_it_plays_on(run):
    link = run.link()
    await link.start()
    await next_of(link)
    await link.send(Pause())
    assert link.playback().state == "paused"
    run.say(2, stats(2))
    run.say(3, stats(3))
    assert await nothing_comes(link)
    playback = link.playback()
    assert (playback.state, playback.duration_ns, playback.growing) == ("paused", 3 * NS, True)
    assert playback.position_ns < 2 * NS
    await link.send(Speed(32.0))
    await link.send(Resume())
    assert link.playback().state == "playing"
    assert [await next_of(link), await next_of(link)] == [stats(2), stats(3)]
    assert await nothing_comes(link)
    # It has caught up, and nothing comes sooner than it happens.
    assert (link.playback().state, link.playback().speed) == ("following", 1.0)
    await link.send(Speed(8.0))
    assert link.playback().speed == 1.0
    await link.close()


async def test_seeking_back_plays_from_there_and_newest_follows_again(run):
    for second in range(2, 30):
        run.say(second, stats(second))
    link = run.link()
    await link.start()
    await next_of(link)
    await link.send(Seek(10 * NS))
    assert (await next_of(link)).past[-1] == (10 * NS, stats(10))
    assert link.playback().state == "playing"
    run.say(30, stats(30), State("running", "compiled"))
    assert await next_of(link) == stats(11)
    assert link.playback().state == "playing"
    for _ in range(100):
        if link.playback().duration_ns == 30 * NS:
            break
        await asyncio.sleep(0.05)
    assert link.playback().marks[-1].variant == "compiled"
    await link.send(Pause())
    await link.send(Seek(NEWEST_NS))
    jumped = await next_of(link)
    assert [m for _, m in jumped.past][-2:] == [stats(30), State("running", "compiled")]
    assert link.playback().state == "following"
    run.say(31, stats(31, "compiled"))
    assert await next_of(link) == stats(31, "compiled")
    await link.send(Seek(NEWEST_NS))
    assert await nothing_comes(link)
    await link.restart()
    assert await next_of(link) == Jumped(0, ())
    assert link.playback().state == "playing"
    await link.close()


async def test_windows_come_with_their_traces_also_after_the_run_has_ended(run, tmp_path):
    link = run.link()
    await link.start()
    await next_of(link)
    trace = write_trace(tmp_path / "window.json")
    whole = trace.read_bytes()
    run.say(2, ready(trace))
    found = await next_of(link)
    assert isinstance(found, TraceReady)
    trace.unlink()
    run.say(3, stats(3))
    assert await next_of(link) == stats(3)
    run.writer.close()
    assert [await next_of(link), await next_of(link)] == ENDED
    assert link.playback().state == "ended"
    assert not link.playback().growing
    Path(found.path).unlink()
    await link.send(Seek(2 * NS))
    again = (await next_of(link)).past[-1][1]
    assert gzip.decompress(Path(again.path).read_bytes()) == whole
    await link.close()


async def test_what_was_written_last_is_delivered_before_the_end(run):
    link = run.link()
    await link.start()
    await next_of(link)
    for second in range(2, 12):
        run.say(second, stats(second))
    run.writer.close()
    events = [await next_of(link) for _ in range(12)]
    assert [event for event in events if isinstance(event, Stats)] == [
        stats(second) for second in range(2, 12)
    ]
    assert [event for event in events if not isinstance(event, Stats)] == ENDED
    await link.close()


async def test_an_unfinished_recording_says_so_while_it_is_watched_elsewhere(run):
    run.say(2, stats(2))
    link = run.link()
    await link.start()
    await next_of(link)
    await link.send(Pause())
    await link.send(Seek(0))
    await next_of(link)
    run.writer._abandon(OSError(28, "No space left on device"))
    health = await next_of(link)
    assert isinstance(health, FileHealth)
    assert "killed" in health.findings[0].message
    assert (link.playback().state, link.playback().growing) == ("paused", False)
    await link.send(Seek(NEWEST_NS))
    assert (await next_of(link)).t_ns == 2 * NS
    await link.close()


async def test_a_recording_that_is_discarded_stays_on_the_screen(tmp_path):
    path = tmp_path / "run.dsrec"
    path.write_bytes(b"older")
    run = Run(path)
    run.say(1, State("loading", ""))
    link = run.link()
    await link.start()
    await next_of(link)
    run.writer.close()
    health, bye = await next_of(link), await next_of(link)
    assert "removed" in health.findings[0].message
    assert isinstance(bye, Bye)
    await link.send(Seek(0))
    assert isinstance(await next_of(link), Jumped)
    await link.close()


async def test_a_file_that_is_cut_ends_it_with_one_line(run):
    link = run.link()
    await link.start()
    await next_of(link)
    os.truncate(run.partial, 20)
    log, bye = await next_of(link), await next_of(link)
    assert isinstance(log, Log)
    assert "was cut" in log.text
    assert isinstance(bye, Bye)
    assert (link.playback().state, link.playback().growing) == ("ended", False)
    await link.close()


async def test_an_empty_recording_is_waited_for(tmp_path):
    file = GrowingFile(tmp_path / "run.dsrec")
    link = ReplaySource(file.partial).open_link()
    await link.start()
    assert await next_of(link) == Jumped(0, ())
    assert await nothing_comes(link)
    file.append(HEADER[:3])
    assert await nothing_comes(link)
    file.append(HEADER[3:] + encoded(MessageFrame(5, stats(1))))
    assert await next_of(link) == stats(1)
    file.close()
    assert [await next_of(link), await next_of(link)] == ENDED
    await link.close()


async def test_what_is_not_being_written_is_a_plain_replay(run):
    link = run.link()
    await link.close()
    run.writer.close()
    assert type(ReplaySource(run.path).open_link()) is ReplayLink
    assert type(ReplaySource(run.path.with_name("none")).open_link()) is ReplayLink


async def test_closing_ends_a_receive_that_waits(run):
    link = run.link()
    await link.start()
    await next_of(link)
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.05)
    await link.close()
    assert await asyncio.wait_for(waiting, PATIENCE_S) is None


async def test_the_death_of_a_worker_is_recorded_once(path):
    died = WorkerDied(-9, ("last words",))
    for events, recorded in (
        ((stats(1), died), [Stats, Failure]),
        ((Failure("no memory", 1, fatal=True), died), [Failure]),
        ((Failure("no switch", 1, fatal=False), Heartbeat(), died), [Failure, Failure]),
        ((Bye("quit"), died), [Bye]),
    ):
        path.unlink(missing_ok=True)
        writer = RecordingWriter(path)
        recorder = Recorder(writer)
        assert [await recorder.record(event) for event in events] == [None] * len(events)
        writer.close()
        messages = [frame.message for frame in read_recording(path).frames()]
        assert [type(message) for message in messages] == recorded
        assert not isinstance(messages[-1], Failure) or messages[-1].fatal


async def test_several_followers_of_one_run_are_independent(run):
    feeds = [open_feed(ReplaySource(run.partial), StillClock()) for _ in range(3)]
    links = [feed.link for feed in feeds]
    for link in links:
        await link.start()
        await next_of(link)
    await links[0].send(Pause())
    await links[1].close()
    run.say(2, stats(2))
    assert await next_of(links[2]) == stats(2)
    assert await nothing_comes(links[0])
    for link in (links[0], links[2]):
        await link.close()
