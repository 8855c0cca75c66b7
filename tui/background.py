"""The work of the app in threads: it analyses traces, and reads previews."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.machine.meters import has_gpu
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.recordings.bundled import bundled_recordings, recording_head
from decodescope.analyzer.reports.user_facts import Given
from decodescope.tui.link.base import Jumped
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.sources import ReplaySource
from decodescope.tui.model.view import AppClock, Preview, Window


def analyse_files(
    paths: Sequence[Path],
    at: float,
    progress: Callable[[float], None] | None = None,
    given: Given | None = None,
) -> Window:
    """Load and analyse the trace at `paths`, announced at monotonic second `at`; several files are
    merged as the ranks of one run. `progress` is called with the share of a single file that was
    read; `given` is what the user gave beside the files.

    Raises:
        TraceError: a file is not a trace, or too damaged.
        InputError: several files that cannot be merged.
        OSError: a file cannot be read.
    """
    from decodescope.analyzer import Given, analyze, analyze_ranks, load
    from decodescope.analyzer.tracks.build import find_tracks

    ranks = None
    if len(paths) == 1:
        analysis = analyze(load(paths[0], progress), given or Given())
    else:
        across = analyze_ranks(paths, given or Given())
        analysis, ranks = across.all_merged("all ranks"), across.report
    # The first paint of the window does not wait for what draws its tracks.
    import_module("decodescope.tui.panels.timeline.axis")
    return Window(paths[0], analysis, find_tracks(analysis), at, ranks)


def window_of_step(window: Window, index: int) -> Window:
    """The window with the figures of its step `index`, which put work on a device."""
    from decodescope.analyzer.reports.analysis import analysis_of_step
    from decodescope.analyzer.tracks.build import of_step

    analysis = analysis_of_step(window.analysis, index)
    tracks = of_step(window.tracks, analysis)
    return replace(window, analysis=analysis, tracks=tracks, step=index, of_trace=window)


def recording_of(asked: WorkerConfig) -> Path | None:
    """The bundled recording of the same model, variant, batch and dtype; None without one, or on a
    machine without a GPU, whose figures say nothing of it."""
    if not has_gpu():
        return None
    for path in bundled_recordings():
        head = recording_head(path)
        if head is None or (head.hello.model, head.variant) != (asked.model, asked.variant):
            continue
        same_size = (head.hello.batch, head.hello.tp) == (asked.batch, asked.tp)
        if same_size and asked.dtype in (None, head.hello.dtype):
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
        return Preview(replace(view, playback=None, recorded_on=device))
    except (DecodescopeError, OSError):
        return None
    finally:
        await feed.link.close()
