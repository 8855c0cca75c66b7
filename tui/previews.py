"""Finds and reads the bundled recording of what a starting run is to decode."""

import asyncio
from dataclasses import replace
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.machine.meters import has_gpu
from decodescope.analyzer.recordings.bundled import bundled_recordings, recording_head
from decodescope.tui.background import analyse_files
from decodescope.tui.link.base import Jumped
from decodescope.tui.model.feed import open_feed
from decodescope.tui.model.sources import Asked, ReplaySource
from decodescope.tui.model.view import AppClock, Moment, Preview


def recording_of(asked: Asked) -> Path | None:
    """The bundled recording of the same model, variant, batch and dtype; None without one, or on a
    machine without a GPU, whose figures say nothing of it."""
    if not has_gpu():
        return None
    for path in bundled_recordings():
        head = recording_head(path)
        if head is None or (head.hello.model, head.variant) != (asked.model, asked.variant):
            continue
        if head.hello.batch == asked.batch and asked.dtype in (None, head.hello.dtype):
            return path
    return None


async def read_preview(path: Path, clock: AppClock) -> Preview | None:
    """The recording's last window and the figures then; None if it cannot be read."""
    feed = open_feed(ReplaySource(path), clock)
    assert feed.link is not None
    try:
        await feed.link.start()
        # A fault comes instead, for which there is nothing to show.
        event = await feed.link.receive()
        if not isinstance(event, Jumped):
            return None
        feed.receive(event, feed.now())
        if (job := feed.windows.take()) is None:
            return None
        feed.analysed(job, await asyncio.to_thread(analyse_files, job.paths, job.at))
        view = feed.view()
        if view.hello is None:
            return None
        device = view.hello.device_name.removeprefix("NVIDIA ")
        return Preview(replace(view, playback=None, recorded_on=device), Moment(feed.now()))
    except (DecodescopeError, OSError):
        return None
    finally:
        await feed.link.close()
