"""A worker that hangs, ends slowly or has nothing to show, and what the app says of it."""

import asyncio
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import (
    Bye,
    Heartbeat,
    Log,
    Meters,
    Progress,
    State,
    StepOnce,
    encode_frame,
)
from decodescope.analyzer.recordings.recording import is_recording, read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link import process
from decodescope.tui.link.recording import Recorder
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource, ReplaySource, source_for
from tests.helpers.app.worker import is_a, scripted, sending, until
from tests.helpers.scripted import (
    ScriptedLink,
    Session,
    StillClock,
    hello,
    live_app,
    ready,
    settle,
    stats,
    text_of,
)

PATIENCE_S = 20


async def later(session: Session, pilot, seconds: float) -> str:
    """The title after `seconds` in which nothing arrived."""
    session.app._painter.paint()
    session.clock.now += seconds
    session.app._painter.paint()
    await pilot.pause()
    return text_of(session.app).splitlines()[0]


async def test_a_running_worker_that_falls_silent_does_not_stay_green(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot)
        assert "no word" not in await later(session, pilot, 1)
        silent = await later(session, pilot, 19)
        assert "no word from the worker for 20 s" in silent
        assert "running" not in silent
        await pilot.press("R")
        await settle(pilot)
        assert session.link.restarts == 1


async def test_a_worker_that_speaks_again_runs(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot)
        await later(session, pilot, 20)
        session.link.say(stats(2))
        await settle(pilot)
        title = text_of(session.app).splitlines()[0]
        assert "no word" not in title
        assert "running" in title


async def test_slow_steps_are_no_silence(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, stats(2, tokens_per_s=0.5))
        assert "no word" not in await later(session, pilot, 20)
        assert "no word" in await later(session, pilot, 60)


async def test_a_paused_worker_is_heard_and_missed(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, State("paused", "eager"))
        for _ in range(20):
            session.link.say(Heartbeat())
            await pilot.pause()
            assert "paused" in await later(session, pilot, 1)
        assert "no word from the worker for 20 s" in await later(session, pilot, 19)


@pytest.mark.parametrize("state", ["building", "loading", "capturing"])
async def test_what_takes_long_may_be_silent(session, state):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, State(state, "eager"))
        assert "no word" not in await later(session, pilot, 20)
        assert "no word" in await later(session, pilot, 280)


async def test_a_stage_says_how_long_it_takes(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        session.link.say(Progress("importing torch"))
        await settle(pilot)
        assert "importing torch, 3 s" in await later(session, pilot, 3)
        session.link.say(State("loading", "eager"), Progress("loading tiny"))
        await settle(pilot)
        title = await later(session, pilot, 2)
        assert "loading tiny, 2 s" in title
        assert "loading: " not in title


async def test_steps_are_single_while_paused_and_stay_out_of_the_history(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot)
        await pilot.press("x")
        await pilot.pause()
        assert session.link.sent == []
        session.link.say(State("paused", "eager"))
        await settle(pilot)
        await pilot.press("x", "x")
        await pilot.pause()
        assert session.link.sent == [StepOnce(), StepOnce()]
        samples = session.app.view().samples
        session.link.say(stats(2, tokens_per_s=3.25))
        await settle(pilot)
        assert "3.25" in text_of(session.app)
        assert session.app.view().samples == samples


async def test_meters_are_part_of_the_view(session):
    async with session.app.run_test(size=(120, 30)) as pilot:
        await session.run(pilot, Meters(power_w=312.0))
        assert session.app.view().meters == Meters(power_w=312.0)


class SlowToEnd(ScriptedLink):
    """Does not end before `may_end` is set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.may_end = asyncio.Event()

    async def close(self) -> None:
        await self.may_end.wait()
        await super().close()


async def test_leaving_says_at_once_that_the_worker_is_being_ended(tmp_path):
    link = SlowToEnd()
    app = live_app(link, StillClock(), tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        link.say(Progress("importing torch"))
        await settle(pilot)
        await pilot.press("q", "q")
        await pilot.pause()
        assert "ending: the worker" in text_of(app).splitlines()[0]
        link.may_end.set()
    assert link.closed


async def test_what_a_worker_says_while_it_is_replaced_is_not_shown(tmp_path):
    body = sending(encode_frame(hello())) + (
        "control.recv(100)\n" + sending(encode_frame(Bye("quit"))) + "time.sleep(0.5)\n"
    )
    link = scripted(tmp_path, body)
    await link.start()
    seen: list[object] = []

    async def read() -> None:
        while (event := await link.receive()) is not None:
            seen.append(event)

    reading = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE_S):
        while not seen:
            await asyncio.sleep(0.01)
        await link.restart()
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        await link.close()
        await reading
    assert [type(event).__name__ for event in seen] == ["Hello", "Hello"]


@pytest.mark.parametrize("said", [[Progress("importing")], [hello(), State("building", "eager")]])
async def test_a_worker_that_would_not_read_quit_is_not_waited_for(tmp_path, monkeypatch, said):
    monkeypatch.setattr(process, "_TERMINATE_GRACE_S", 600.0 if len(said) == 1 else 1.0)
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if len(said) == 1 else ""
    link = scripted(tmp_path, body + sending(*map(encode_frame, said)) + "time.sleep(600)\n")
    link.quit_grace_s = 600.0
    await link.start()
    await until(link, is_a(type(said[-1])))
    async with asyncio.timeout(PATIENCE_S):
        await link.close()
    assert link.pid is None


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file can grow beyond 30,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


async def test_a_full_disk_ends_the_recording_and_not_the_run(tmp_path, small_disk):
    path = tmp_path / "run.dsrec"
    path.write_bytes(b"an older recording")
    writer = RecordingWriter(path)
    recorder = Recorder(writer)
    events = (hello(), *[Log("info", "x" * 10_000)] * 3, stats(1))
    (failure,) = filter(None, [await recorder.record(event) for event in events])
    writer.close()
    assert not failure.fatal
    partial = tmp_path / "run.dsrec.partial"
    assert str(partial) in failure.message
    assert path.read_bytes() == b"an older recording"
    assert next(type(f.message) for f in read_recording(partial).frames()) is type(hello())


async def test_the_title_says_that_the_run_is_recorded_until_it_is_not(tmp_path, monkeypatch):
    source = ScriptedLink()
    writer = RecordingWriter(tmp_path / "run.dsrec")
    app = DecodescopeApp(
        LiveSource(source, recorder=Recorder(writer)), None, StillClock(), tmp_path
    )
    async with app.run_test(size=(100, 30)) as pilot:
        source.say(hello(), State("running", "eager"), stats(1))
        await settle(pilot)
        assert text_of(app).splitlines()[0].endswith("rec")

        def full(message: object) -> None:
            raise InputError("run.dsrec: cannot write the recording (No space left on device)")

        monkeypatch.setattr(writer, "write", full)
        source.say(Log("info", "x"), Log("info", "y"))
        await settle(pilot)
        shown = text_of(app)
        assert not shown.splitlines()[0].endswith("rec")
        assert "No space left on device" in shown
    writer.close()


def recorded(path: Path, *messages: object) -> RecordingWriter:
    writer = RecordingWriter(path)
    for message in messages:
        writer.write(message)
    writer.close()
    return writer


@pytest.mark.parametrize("said", [[], [Progress("importing")], [hello(), Log("info", "x")]])
def test_a_recording_without_figures_replaces_no_older_one(tmp_path, said):
    path = tmp_path / "run.dsrec"
    recorded(path, hello(), stats(1))
    before = path.read_bytes()
    writer = recorded(path, *said)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["run.dsrec"]
    assert ("not replaced" in writer.note) == bool(said)
    assert recorded(path, hello(), stats(2)).note == ""
    assert path.read_bytes() != before


def test_heartbeats_are_not_recorded_and_other_settings_have_windows_of_their_own(
    tmp_path, trace_file
):
    window, path = ready(trace_file), tmp_path / "run.dsrec"
    run = [hello(), *[window] * 9, Heartbeat(), Meters(power_w=1.0)]
    recorded(path, *run, *run)
    recording = read_recording(path)
    assert len(recording.windows) == 6
    kinds = [type(frame.message) for frame in recording.frames()]
    assert Heartbeat not in kinds
    assert kinds.count(Meters) == 2
    assert Meters not in [type(event.message) for event in recording.events]


@pytest.mark.parametrize("name", ["run.dsrec", "run.dsrec.partial", "run.dsrec-2.partial"])
def test_what_was_named_as_a_recording_opens_as_one(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    assert not is_recording(path)
    assert source_for(path) == ReplaySource(path)


async def test_an_end_of_a_worker_that_was_asked_for_is_no_death(tmp_path):
    link: WorkerLink = scripted(tmp_path, sending(encode_frame(hello())) + "control.recv(100)\n")
    await link.start()
    await until(link, is_a(type(hello())))
    async with asyncio.timeout(PATIENCE_S):
        await link.close()
    assert await link.receive() is None
