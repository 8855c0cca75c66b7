"""The app's link to worker processes that misbehave."""

import asyncio
import signal
import sys

import pytest

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    Bye,
    ChangeSettings,
    Failure,
    Hello,
    Log,
    Pause,
    Progress,
    Settings,
    State,
    Stats,
    encode_frame,
)
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.worker import WorkerLink
from decodescope.tui.model.sources import LiveSource
from tests.helpers.app.worker import PATIENCE_S, config, is_a, of, scripted, sending, until
from tests.helpers.processes import alive
from tests.helpers.scripted import StillClock, settle, text_of


async def test_a_crash_is_delivered_after_all_messages_with_the_log(tmp_path):
    said = [Log("info", "x" * 50_000), Progress("importing")]
    body = sending(*map(encode_frame, said)) + (
        "print('printed by a library')\nsys.exit('CUDA error: unspecified')\n"
    )
    link = scripted(tmp_path, body)
    await link.start()
    events = await until(link, is_a(WorkerDied))
    await link.close()
    assert events[:-1] == said
    assert events[-1] == WorkerDied(1, ("printed by a library", "CUDA error: unspecified"))


async def test_a_death_is_noticed_while_a_child_holds_the_socket_open(tmp_path):
    body = "os.fork() or (time.sleep(20), os._exit(0))\nos._exit(7)\n"
    link = scripted(tmp_path, body)
    await link.start()
    (died,) = of(await until(link, is_a(WorkerDied), 10), WorkerDied)
    await link.close()
    assert died.exit_code == 7


async def test_only_the_latest_statistics_wait_for_a_slow_app(tmp_path):
    def stats(seq):
        return encode_frame(Stats(seq, 0, "eager", seq, 1, 1, 1, 1.0, 1, 1, 1, "t" * 2000))

    frames = [stats(seq) for seq in range(30)]
    frames.insert(10, encode_frame(State("running", "eager")))
    frames.append(encode_frame(Bye("quit")))
    link = scripted(tmp_path, sending(*frames))
    await link.start()
    await until(link, lambda event: True)
    await asyncio.sleep(1)
    events = await until(link, is_a(WorkerDied))
    await link.close()
    assert len(of(events, Stats)) == 1
    assert of(events, Stats)[0].seq == 29
    assert of(events, Bye)


async def test_another_protocol_version_is_refused_with_both_numbers(tmp_path):
    hello = Hello(
        PROTOCOL_VERSION + 1, 1, "cpu", "cpu", "m", "random", "fp32", 1, 1, 1, (), None, None, {}
    )
    body = sending(encode_frame(hello), encode_frame(Progress("on"))) + "time.sleep(60)\n"
    link = scripted(tmp_path, body)
    await link.start()
    events = await until(link, is_a(WorkerDied), 10)
    await link.close()
    (failure,) = of(events, Failure)
    assert failure.fatal
    assert f"protocol {PROTOCOL_VERSION + 1}, this app {PROTOCOL_VERSION}" in failure.message
    assert not of(events, Progress)
    assert events[-1].exit_code == -signal.SIGTERM


async def test_garbage_from_the_worker_is_a_fatal_failure(tmp_path):
    link = scripted(tmp_path, sending(b"\x00\x00\x00\x04abcd") + "time.sleep(60)\n")
    await link.start()
    events = await until(link, is_a(WorkerDied), 10)
    await link.close()
    assert "unreadable" in of(events, Failure)[0].message


async def test_a_worker_that_ignores_quit_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("decodescope.tui.link.process._TERMINATE_GRACE_S", 0.3)
    body = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        + sending(encode_frame(Progress("deaf")))
        + "time.sleep(60)\n"
    )
    link = scripted(tmp_path, body)
    link.quit_grace_s = 0.3
    await link.start()
    await until(link, is_a(Progress))
    pid = link.pid
    await link.close()
    assert not alive(pid)


async def test_a_receive_that_waits_ends_when_the_link_closes(tmp_path):
    link = scripted(tmp_path, "control.recv(100)\n")
    await link.start()
    waiting = asyncio.create_task(link.receive())
    await asyncio.sleep(0.1)
    await link.close()
    assert await asyncio.wait_for(waiting, 5) is None
    await link.send(Pause())


async def test_a_worker_may_be_started_before_there_is_an_event_loop(tmp_path):
    link = scripted(tmp_path, sending(encode_frame(Progress("early"))) + "control.recv(100)\n")
    await asyncio.to_thread(link.spawn)
    pid, folder = link.pid, link._folder.path
    await link.start()
    assert link.pid == pid
    await until(link, is_a(Progress))
    await link.close()
    assert not alive(pid)
    assert not folder.exists()


def test_a_worker_whose_app_never_ran_leaves_nothing(tmp_path):
    link = scripted(tmp_path, "time.sleep(600)\n")
    link.spawn()
    pid, folder = link.pid, link._folder.path
    link.discard()
    assert not alive(pid)
    assert not folder.exists()
    link.discard()


async def test_a_worker_that_cannot_be_started_is_dead_and_can_be_started_again(tmp_path):
    python = tmp_path / "python"
    link = WorkerLink(config("none"), argv=(str(python), "-c", "raise SystemExit(5)"))
    with pytest.raises(MissingRequirement, match=str(python)):
        link.spawn()
    await link.start()
    await link.restart()
    failure, died = await until(link, is_a(WorkerDied))
    assert (failure.exit_code, failure.fatal) == (3, True)
    assert str(python) in failure.message
    assert died == WorkerDied(3, ())
    await link.send(ChangeSettings(Settings(11, 7, model="c")))
    assert link.settings == Settings(11, 7, model="c")
    python.symlink_to(sys.executable)
    await link.restart()
    assert await until(link, is_a(WorkerDied)) == [WorkerDied(5, ())]
    await link.close()


async def test_the_app_starts_a_worker_that_could_not_be_started(tmp_path):
    link = scripted(tmp_path, sending(encode_frame(Progress("here it is"))) + "control.recv(9)\n")
    argv, link._argv = link._argv, (str(tmp_path / "none"),)
    app = DecodescopeApp(LiveSource(link), None, StillClock(), tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        assert "the worker cannot be started" in text_of(app)
        assert "R restart it" in text_of(app)
        link._argv = argv
        await pilot.press("R")
        async with asyncio.timeout(PATIENCE_S):
            while "here it is" not in text_of(app):
                await asyncio.sleep(0.05)
                await settle(pilot)
        assert "cannot be started" not in text_of(app)
