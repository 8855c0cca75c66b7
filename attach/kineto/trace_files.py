"""The files that processes write at the end of a window: waited for, and kept."""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.io.files import write_new_file
from decodescope.attach.kineto.processes import Process
from decodescope.attach.kineto.window_config import Timing, WindowConfig

_TICK_S = 0.1
_SETTLED_S = 0.2
# On a full disk, whoever waits for space waits in vain.
_FULL_S = 3.0


class NoWindow(DecodescopeError):
    """A process opened no window: it looked at the configuration too late, or cannot write."""


def wait_for_traces(
    config: WindowConfig,
    processes: Sequence[Process],
    serve: Callable[[float], frozenset[int]],
    check: Callable[[Iterable[Process]], None],
    timing: Timing,
) -> None:
    """Wait until every process has written its trace. `serve` passes the time, and returns which
    processes have no profiler that runs; `check` gets those without a trace, and may raise.

    Raises:
        NoWindow: no profiler runs in a process after the window began, and there is no trace.
        DecodescopeError: no byte was written for too long.
        MissingRequirement: a trace is cut off.
    """
    patience_s = timing.trace_s if config.iterations is None else timing.iterations_s
    end_s = (config.start_ms + config.duration_ms) / 1000
    until_s, written_bytes = end_s + patience_s, 0
    while missing := _without_trace(config, processes):
        check(missing)
        idle = serve(_TICK_S)
        now_bytes = sum(_bytes(config.growing_file(it.pid)) for it in processes)
        if now_bytes > written_bytes:
            written_bytes, until_s = now_bytes, max(until_s, time.time() + timing.trace_s)
        # Iterations begin when the process counts the next one; until then no profiler runs.
        refused_s = config.start_ms / 1000 + timing.refused_s
        began = config.iterations is None and time.time() > refused_s
        for process in _without_trace(config, missing):
            has_failed = began and process.pid in idle
            full = _free_mb(config.log_file.parent) == 0 and time.time() > end_s + _FULL_S
            if has_failed or full or time.time() > until_s:
                raise _missing_trace(config, process)
    for process in processes:
        _require_whole(config.trace_file(process.pid), process, serve)


def _without_trace(config: WindowConfig, processes: Sequence[Process]) -> list[Process]:
    return [process for process in processes if not config.trace_file(process.pid).exists()]


def keep_traces(
    config: WindowConfig, processes: Sequence[Process], folder: Path
) -> tuple[Path, ...]:
    """Copy the trace of each process into `folder`, named by process and time; all or none.

    Raises:
        InputError: the folder cannot be written to.
    """
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(config.start_ms / 1000))
    kept: list[Path] = []
    with ExitStack() as undo:
        for process in processes:
            with config.trace_file(process.pid).open("rb") as trace:
                try:
                    path = write_new_file(
                        folder,
                        f"decodescope-attach-{process.pid}-{moment}",
                        ".json",
                        partial(shutil.copyfileobj, trace),
                    )
                except OSError as error:
                    raise InputError(
                        f"{folder}: the trace cannot be written there ({error.strerror}); free "
                        "space, or name another folder with --out"
                    ) from error
            undo.callback(path.unlink, missing_ok=True)
            kept.append(path)
        undo.pop_all()
    return tuple(kept)


def _missing_trace(config: WindowConfig, process: Process) -> DecodescopeError:
    folder = config.log_file.parent
    free_mb = _free_mb(folder)
    if free_mb == 0 or _bytes(config.growing_file(process.pid)):
        return MissingRequirement(
            f"{process.title}: stopped writing its trace to {folder.parent}, where {free_mb} MB "
            "are free; free some and try again"
        )
    return NoWindow(
        f"{process.title}: wrote no trace; its own messages say why (lines of libkineto); try "
        "again when the machine is less busy"
    )


def _require_whole(trace_file: Path, process: Process, serve: Callable[[float], object]) -> None:
    """Wait until a trace no longer grows, and check its end."""
    size = -1
    while size != (size := _bytes(trace_file)):
        serve(_SETTLED_S)
    with trace_file.open("rb") as file:
        file.seek(max(size - 64, 0))
        if not file.read().rstrip().endswith(b"}"):
            raise MissingRequirement(
                f"{process.title}: its trace is cut off; {_free_mb(trace_file.parent)} MB are free "
                f"in {trace_file.parent.parent}; free some and try again"
            )


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _free_mb(folder: Path) -> int:
    return shutil.disk_usage(folder).free >> 20
