"""`--once`: one screen on standard output, drawn by the app itself, and the end."""

import asyncio
import os
import re
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.attach_messages import (
    ServerSample,
    Target,
    TracesOf,
    WindowTaken,
)
from decodescope.analyzer.protocol.messages import Bye, Failure, State
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.model.sources import ReplaySource, TraceSource
from decodescope.tui.once import draw_once
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers.scripted import ScriptedLink, StillClock, hello, live_app, ready, stats


def drawn(app: DecodescopeApp, size: tuple[int, int] = (100, 30)) -> list[str]:
    lines = draw_once(app, *size)
    assert [line.cell_length for line in lines] == [size[0]] * size[1]
    return [line.text for line in lines]


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (200, 50), (1, 1)])
def test_a_trace_is_drawn_in_any_size(trace_file: Path, size: tuple[int, int]) -> None:
    lines = drawn(DecodescopeApp(TraceSource((trace_file,))), size)
    assert size == (1, 1) or "host-bound" in "\n".join(lines)


def test_a_plain_terminal_gets_ascii(trace_file: Path) -> None:
    traits = TerminalTraits(unicode=False, color=False)
    text = "\n".join(drawn(DecodescopeApp(TraceSource((trace_file,)), traits)))
    assert text.isascii()
    assert "host-bound" in text


class Worker(ScriptedLink):
    """Says a part of what a worker says each time it is asked."""

    async def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.speak())

    async def speak(self) -> None:
        for event in self.script:
            await asyncio.sleep(0.05)
            self.say(event)


def live(folder: Path, *script: object) -> tuple[DecodescopeApp, Worker]:
    link = Worker()
    link.script = script
    return live_app(link, StillClock(), folder), link


def test_a_live_run_is_drawn_after_its_first_window_and_ended(trace_file: Path) -> None:
    app, link = live(
        trace_file.parent, hello(), State("running", "eager"), stats(1), ready(trace_file)
    )
    text = "\n".join(drawn(app))
    assert "47.2" in text
    assert "host-bound" in text
    assert link.closed


def test_a_run_that_dies_is_drawn_as_it_is(tmp_path: Path) -> None:
    app, link = live(tmp_path, hello(), WorkerDied(-9, ("last words",)))
    assert "last words" in "\n".join(drawn(app))
    assert link.closed


def test_of_a_run_that_never_began_there_is_only_the_failure(tmp_path: Path) -> None:
    failure = Failure("no model of that name", 3, fatal=True)
    app, _ = live(tmp_path, failure, Bye("failed"))
    assert draw_once(app, 80, 24) == []
    assert app.fatal_failure == failure


def test_a_recording_of_a_run_that_never_began_is_an_error(tmp_path: Path) -> None:
    with closing(RecordingWriter(tmp_path / "run.dsrec")) as writer:
        writer.write(Failure("no model of that name", 3, fatal=True))
    with pytest.raises(InputError, match="no model of that name"):
        draw_once(DecodescopeApp(ReplaySource(tmp_path / "run.dsrec")), 80, 24)


def test_windows_of_servers_that_cannot_be_read_are_drawn_as_they_are(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(b"no gzip")
    paths = (str(broken), str(broken))
    parts = (TracesOf("a", 1), TracesOf("b", 1))
    recording = tmp_path / "run.dsrec"
    with closing(RecordingWriter(recording)) as writer:
        writer.write(Target("2 servers", "a cost", "300 ms"))
        writer.write(ServerSample(ServerFigures("2 servers", elapsed_s=1.0, generated_per_s=18.0)))
        writer.write(WindowTaken(paths, ObserverReport("servers", "2 servers"), parts))
    text = "\n".join(drawn(DecodescopeApp(ReplaySource(recording))))
    assert "18.0 tok/s" in text
    assert "waiting for the first window" in text


def test_a_file_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("nothing")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "a.json"))):
        draw_once(DecodescopeApp(TraceSource((tmp_path / "a.json",))), 80, 24)


def test_a_signal_ends_the_wait_for_a_window_that_never_comes(tmp_path: Path) -> None:
    app, link = live(tmp_path, hello(), State("running", "eager"))
    seen = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    try:
        assert draw_once(app, 80, 24) == []
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, seen)
    assert app.return_code == 128 + signal.SIGTERM
    assert link.closed
