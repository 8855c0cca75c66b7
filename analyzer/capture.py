"""Captures a window of decode steps with torch.profiler and writes it as a Chrome trace.

The one module of the analyzer that imports torch; it runs where the model runs.
"""

import gzip
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

import msgspec
import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from decodescope.analyzer.files import replacing
from decodescope.analyzer.report import CaptureInfo

STEP_RANGE = "decode_step"
METADATA_KEY = "decodescope"
NVTX_DOMAIN = "decodescope"

_GZIP_LEVEL = 2
_CHATTER = (b"USDT:", b"STAGE:")


class annotate:
    """Context manager that opens an NVTX range (domain "decodescope") and a profiler range.

    The NVTX range is for Nsight Systems and needs the package nvtx (nothing is opened without it);
    the profiler range appears in windows captured here, as a `user_annotation`.
    """

    __slots__ = ("_domain", "_name", "_record")

    def __init__(self, name: str) -> None:
        self._name = name
        self._domain = _nvtx_domain()
        self._record = record_function(name)

    def __enter__(self) -> None:
        if self._domain is not None:
            self._domain.push_range(_nvtx_attributes(self._name))
        self._record.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._record.__exit__(kind, error, traceback)
        if self._domain is not None:
            self._domain.pop_range()


class ProfilerSession:
    """Captures windows of steps, any number of them, in one process.

    `device` is "cuda" (host and device activities) or "cpu" (host activities only).
    """

    def __init__(self, device: str) -> None:
        self._on_cuda = device == "cuda"
        self._activities = [ProfilerActivity.CPU]
        if self._on_cuda:
            self._activities.append(ProfilerActivity.CUDA)

    def warm_up(self) -> None:
        """Start and stop the profiler once: its first start takes seconds, later ones do not."""
        with _without_chatter():
            profiler = self._prepared()
            profiler.start_trace()
            torch.ones(1, device="cuda" if self._on_cuda else "cpu").add_(1)
            self._synchronize()
            profiler.stop_trace()

    def capture(
        self,
        step: Callable[[], object],
        steps: int,
        path: Path,
        info: CaptureInfo,
        warm_steps: int = 0,
    ) -> None:
        """Profile `steps` calls of `step`, each in a range `decode_step`, and write them to `path`.

        `warm_steps` calls come before them, with the profiler armed but not recording, so that the
        first recorded step does not pay for its start-up. The device is synchronised before the
        recording and at its end, so that no op is cut. The file is Chrome trace JSON, compressed if
        `path` ends in ".gz", with `info` as the object under its key "decodescope"; it appears
        under its name only when it is whole. An error of `step` leaves no file.

        Raises:
            InputError: `path` cannot be written.
        """
        profiler = self._prepared()
        recording = False
        try:
            for _ in range(warm_steps):
                step()
            self._synchronize()
            with _without_chatter():
                profiler.start_trace()
            recording = True
            for _ in range(steps):
                with annotate(STEP_RANGE):
                    step()
            self._synchronize()
        finally:
            with _without_chatter():
                if not recording:
                    profiler.start_trace()
                profiler.stop_trace()
        _write(profiler, path, info)

    def _prepared(self) -> _KinetoProfile:
        profiler = _KinetoProfile(activities=self._activities, acc_events=True)
        profiler.prepare_trace()
        return profiler

    def _synchronize(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()


def _write(profiler: _KinetoProfile, path: Path, info: CaptureInfo) -> None:
    with replacing(path) as temporary, tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "window.json")
        profiler.export_chrome_trace(str(exported))
        with exported.open("rb") as events, _open_for_writing(temporary) as target:
            _copy_with(info, events, target)


def _open_for_writing(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "wb", _GZIP_LEVEL))
    return path.open("wb")


def _copy_with(info: CaptureInfo, events: BinaryIO, target: BinaryIO) -> None:
    """Copy a trace, with `info` as its first member.

    The profiler's own way to add metadata turns every backslash into a slash, and so breaks the
    JSON of a name that holds a quotation mark.
    """
    before, brace, rest = events.read(1 << 10).partition(b"{")
    assert brace == b"{" + before.strip(), "a Chrome trace is one JSON object"
    target.write(b'{"' + METADATA_KEY.encode() + b'": ' + msgspec.json.encode(info) + b"," + rest)
    shutil.copyfileobj(events, target, 1 << 20)


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep the profiler library's start and stop notices off standard error; pass on the rest.

    The library writes them to the file descriptor, and takes its log level only from the
    environment in which torch was loaded.
    """
    try:
        descriptor = sys.__stderr__.fileno() if sys.__stderr__ is not None else -1
        saved = os.dup(descriptor)
    except (OSError, ValueError):
        yield
        return
    try:
        with tempfile.TemporaryFile() as kept:
            os.dup2(kept.fileno(), descriptor)
            try:
                yield
            finally:
                os.dup2(saved, descriptor)
                kept.seek(0)
                for line in kept:
                    if not line.startswith(_CHATTER):
                        os.write(descriptor, line)
    finally:
        os.close(saved)


@lru_cache(maxsize=1)
def _nvtx_domain() -> Any | None:
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx.get_domain(NVTX_DOMAIN)


@lru_cache(maxsize=1024)
def _nvtx_attributes(name: str) -> Any:
    domain = _nvtx_domain()
    assert domain is not None
    return domain.get_event_attributes(message=name)
