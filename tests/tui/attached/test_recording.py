"""What the app saw of a target is recorded, and replayed as it was."""

import gzip
from contextlib import closing
from pathlib import Path

import pytest

from decodescope.analyzer.protocol.attach_messages import ServerSample, Target, WindowTaken
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.base import Seek
from decodescope.tui.link.recording import Recorder
from decodescope.tui.model.sources import AttachSource, ReplaySource
from tests.helpers.scripted import settle, text_of
from tests.helpers.scripted_door import TARGET, metrics
from tests.tui.attached.test_group import GONE, NAMES, GroupOfTwo, group, on_one_clock


@pytest.fixture
async def recording(attachment, tmp_path: Path) -> Path:
    """A session with two windows of two servers, of which one vanishes at the end."""
    path = tmp_path / "seen.dsrec"
    attachment.door.__class__ = GroupOfTwo
    attachment.door.write = on_one_clock
    attachment.door.answers = [group(1), group(2)]
    with closing(RecordingWriter(path)) as writer:
        source = AttachSource(attachment.link, recorder=Recorder(writer))
        attachment.app = DecodescopeApp(source, None, attachment.clock, tmp_path)
        async with attachment.app.run_test(size=(120, 40)) as pilot:
            await attachment.until(pilot, lambda: attachment.view.attached.is_known)
            assert "rec" in attachment.shown.splitlines()[0]
            await attachment.take(pilot, 6)
            attachment.door.answers = [group(3, GONE)]
            await attachment.until(pilot, lambda: GONE in str(attachment.view.banner))
    return path


def test_messages_and_traces_come_back(recording: Path, tmp_path: Path) -> None:
    found = read_recording(recording)
    messages = [frame.message for frame in found.frames()]
    target, *others = messages
    assert isinstance(target, Target)
    assert target.name == TARGET
    samples = [message.figures for message in others if isinstance(message, ServerSample)]
    assert [server.name for server in samples[-1].servers] == list(NAMES)
    assert samples[-1].servers[1].problem == GONE
    windows = [message for message in others if isinstance(message, WindowTaken)]
    assert [window.paths for window in windows] == [
        (f"w{number}-0.json", f"w{number}-1.json") for number in (1, 2)
    ]
    assert [part.server for part in windows[0].servers] == list(NAMES)
    for number, frame in enumerate(found.windows, 1):
        packed = [gzip.decompress(trace_gz) for trace_gz in found.packed_traces(frame)]
        assert packed == [
            (tmp_path / f"w{number}-{server}.json").read_bytes() for server in range(2)
        ]
    assert [mark.variant for mark in found.marks()] == ["window-1", "window-2"]


async def test_a_replay_shows_windows_and_figures(recording: Path, attachment, tmp_path) -> None:
    for trace in tmp_path.glob("*.json"):
        trace.unlink()
    app = DecodescopeApp(ReplaySource(recording), None, attachment.clock, tmp_path)
    attachment.app = app
    async with app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.window is not None)
        shown = text_of(app)
        assert TARGET in shown.splitlines()[0]
        assert "replay" in shown.splitlines()[0]
        assert "16 running" in shown
        assert NAMES[1] in shown
        assert attachment.view.variant == "window-2"
        assert recording in app._feeds.shown.source.paths
        assert len(attachment.view.window.report.devices) == 2
        await pilot.press("v", "1")
        await attachment.until(pilot, lambda: not attachment.view.analysing)
        assert attachment.view.variant == f"window-1 {NAMES[0]}"
        assert len(attachment.view.window.report.steps) == 10
        await pilot.press("t")
        await attachment.until(pilot, lambda: bool(list(tmp_path.glob("decodescope-*.json.gz"))))
        first = app._feeds.shown.link.playback().marks[0]
        await app._feeds.shown.send(Seek(first.t_ns))
        await attachment.until(pilot, lambda: len(attachment.view.choices) == 3)
        await attachment.until(pilot, lambda: attachment.view.variant == "window-1")
        await app._feeds.shown.send(Seek(0))
        await attachment.until(pilot, lambda: not attachment.view.choices)
        await settle(pilot)
        assert "no window until this moment" in text_of(app)
        await pilot.press("]", "]", "]", "]", "]", "]", "p")
        await attachment.until(pilot, lambda: attachment.view.state == "ended")
        assert GONE in text_of(app)
        assert sum(line.text == f"attached to {TARGET}" for line in attachment.view.log) == 1


async def test_a_window_whose_traces_are_gone_is_said(attachment, tmp_path: Path) -> None:
    path = tmp_path / "seen.dsrec"
    attachment.door.answers = [metrics(1)]
    attachment.door.write = lambda folder, number: (folder / "missing.json",)
    with closing(RecordingWriter(path)) as writer:
        source = AttachSource(attachment.link, recorder=Recorder(writer))
        attachment.app = DecodescopeApp(source, None, attachment.clock, tmp_path)
        async with attachment.app.run_test(size=(120, 40)) as pilot:
            await attachment.take(pilot, 1)
    reasons = [str(frame.message) for frame in read_recording(path).events]
    assert any("missing.json: cannot be read (No such file" in reason for reason in reasons)
