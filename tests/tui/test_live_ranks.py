"""The app shows a live run on several ranks: a track for each, and who waits for whom."""

import re
from pathlib import Path

from msgspec.structs import replace

from decodescope.analyzer.protocol.messages import State, TraceReady
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.recording import Recorder
from tests.helpers import scripted
from tests.helpers.ranks.own import CAPTURE, STEPS, own_files
from tests.helpers.ranks.runs import PER_STEP, a_run
from tests.helpers.scripted import settle, text_of


async def test_windows_of_all_ranks_are_shown_on_one_clock(tmp_path: Path) -> None:
    first, second = own_files(tmp_path, a_run(2, STEPS * PER_STEP))
    capture = replace(CAPTURE, variant="eager")
    session = scripted.Session(tmp_path)
    async with session.app.run_test(size=(120, 40)) as pilot:
        hello = replace(scripted.hello(), tp=2)
        ready = TraceReady(str(first), capture, requested=False, others=(str(second),))
        session.link.say(hello, State("running", "eager"), scripted.stats(1), ready)
        await settle(pilot)
        assert "TP 2" in text_of(session.app)
        await pilot.press("2")
        await settle(pilot)
        shown = text_of(session.app)
        await pilot.press("7")
        await settle(pilot)
        compared = text_of(session.app)
    assert "r0g0 wait" in shown
    assert "r1g0 wait" in shown
    assert "Ranks: who waits for whom" in compared
    assert re.search(r"rank +transfer +wait .*\n.* 0 .*\n.* 1 ", compared)


async def test_a_recording_keeps_the_windows_of_all_ranks(tmp_path: Path) -> None:
    first, second = own_files(tmp_path, a_run(2, STEPS * PER_STEP))
    ready = TraceReady(str(first), CAPTURE, requested=False, others=(str(second),))
    written: list[TraceReady] = []

    class Writer(RecordingWriter):
        def __init__(self) -> None:
            pass

        def write(self, message: object) -> None:
            assert isinstance(message, TraceReady)
            written.append(message)

    assert await Recorder(Writer()).record(ready) is None
    assert written == [ready]
