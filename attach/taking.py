"""Takes a window, and takes it again where its kernels were lost."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.readers.byte_source import open_source
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.door import CapturedWindow, Door, WindowPlan

# libkineto drops the first kernels after the start of the profiler, as CUPTI before 13.1 gives them
# invalid times (PyTorch issue 192021); with a longer warm-up, these are not the window's. Windows
# are lost with CUPTI 13.1 too, from a cause that is not known.
_ADDED_WARMUPS_S = (4, 9)
_KERNELS = (b'"cat": "kernel"', b'"cat":"kernel"')
_LAUNCHES = (b"LaunchKernel", b"GraphLaunch")


def take_window(door: Door, plan: WindowPlan, say: Callable[[str], None]) -> CapturedWindow:
    """A window of `door`; one that lost its kernels is taken again, at most twice, with a longer
    warm-up.

    Of all these windows, the first with the fewest traces without kernels is returned, and its
    `observer` is the cost of all. The traces of the others are removed if they are below
    `plan.folder`; a folder of the server's own keeps them.

    Raises:
        DecodescopeError: as `Door.window`, for the first window.
    """
    plan = replace(plan, say=say)
    windows = [door.window(plan, say)]
    lost = [_without_kernels(windows[0])]
    try:
        for number, added_warmup_s in enumerate(_ADDED_WARMUPS_S, 1):
            if not lost[-1]:
                break
            again = f"taking it again ({number} of {len(_ADDED_WARMUPS_S)})"
            say(f"the window lost its kernels; {again}")
            windows.append(door.window(replace(plan, added_warmup_s=added_warmup_s), say))
            lost.append(_without_kernels(windows[-1]))
    except DecodescopeError as error:
        say(f"no other window: {error}")
    except BaseException:
        _remove(windows, plan.folder)
        raise
    kept = windows[lost.index(min(lost))]
    _remove((window for window in windows if window is not kept), plan.folder)
    return kept if len(windows) == 1 else _with_cost_of(windows, kept)


def _without_kernels(window: CapturedWindow) -> int:
    return sum(map(_lost_kernels, window.traces))


def _lost_kernels(trace: Path) -> bool:
    """Whether a trace has more than twice as many launches as kernels. They are counted without
    reading the trace, which would take twenty times as long. So the capture of graphs counts as
    lost too: its launches ran nothing."""
    kernels = launches = 0
    with suppress(DecodescopeError), open_source(str(trace)) as source:
        while piece := source.read():
            kernels += sum(map(piece.count, _KERNELS))
            launches += sum(map(piece.count, _LAUNCHES))
    return launches > 2 * kernels


def _remove(windows: Iterable[CapturedWindow], folder: Path) -> None:
    for trace in (trace for window in windows for trace in window.traces):
        if trace.resolve().is_relative_to(folder.resolve()):
            with suppress(OSError):  # a server of another user has made a folder below
                trace.unlink()


def _with_cost_of(windows: Sequence[CapturedWindow], kept: CapturedWindow) -> CapturedWindow:
    """The window `kept` with the cost of all, also of each server; every window has the same."""
    of_server = zip(*(window.servers for window in windows), strict=True)
    servers = tuple(
        replace(part, observer=_together([one.observer for one in those if one.observer]))
        if part.observer is not None
        else part
        for part, those in zip(kept.servers, of_server, strict=True)
    )
    observer = _together([window.observer for window in windows])
    return replace(kept, observer=observer, servers=servers)


def _together(observers: Sequence[ObserverReport]) -> ObserverReport:
    """Tokens/s before the first of several windows, their mean during all, and after the last."""
    during = [one.during_tokens_per_s for one in observers if one.during_tokens_per_s is not None]
    return with_fields(
        observers[-1],
        before_tokens_per_s=observers[0].before_tokens_per_s,
        during_tokens_per_s=sum(during) / len(during) if during else None,
        windows=len(observers),
    )
