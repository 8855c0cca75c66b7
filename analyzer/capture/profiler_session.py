"""Captures a window of decode steps with torch.profiler and writes it as a Chrome trace.

The only module of the analyzer that imports torch; it runs in the process of the model.
"""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from decodescope.analyzer.io.files import replacing_stream
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.schema.graph_reference import CAPTURE_KEY, REFERENCE_KEY, GraphReference
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.timing.gaps import kernel_floor_ns

STEP_RANGE = "decode_step"
LEAD_RANGE = "decode_lead"
NVTX_DOMAIN = "decodescope"

_GZIP_LEVEL = 2
# About 10 ms on the device; in that time the host can queue several bursts.
_BURST_DELAY_CYCLES = 20_000_000
_BURST_KERNELS = 200
# libkineto drops calls and ops outside of the recording, by a clock that is not quite the host's.
# With 1 ms, windows beside 35 other processes lacked a launch.
_GUARD_S = 10e-3
_NOTICES = (b"USDT:", b"STAGE:")

# What stands before a key is no quote's backslash, so a text inside a string is never one.
_NODE = re.compile(rb'[{,\s]"graph node id"\s{0,8}:\s{0,8}(\d{1,20})(?!\d)')
_LONGEST_MATCH = 64
_PIECE_BYTES = 1 << 20


class annotate:
    """Context manager that opens an NVTX range (domain "decodescope") and a profiler range.

    The NVTX range is for Nsight Systems and needs the package nvtx (without it, there is none); the
    profiler range appears in windows captured here, as a `user_annotation`.
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

    def __exit__(self, *error: Any) -> None:
        self._record.__exit__(*error)
        if self._domain is not None:
            self._domain.pop_range()


class ProfilerSession:
    """Captures any number of windows of steps in one process.

    `device` is "cuda" (host and device activities) or "cpu" (host activities only).
    `kernel_floor_ns` is the gap between kernels queued back to back, as measured by `warm_up`; None
    before that, on "cpu" and if it cannot be measured.
    """

    def __init__(self, device: str) -> None:
        self.kernel_floor_ns: int | None = None
        self._on_cuda = device == "cuda"
        self._activities = [ProfilerActivity.CPU]
        if self._on_cuda:
            self._activities.append(ProfilerActivity.CUDA)

    def warm_up(self) -> None:
        """Start and stop the profiler once: its first start takes seconds, later ones do not.

        On "cuda", then measure the kernel floor (see `timing.gaps.kernel_floor_ns`).
        """
        with _without_notices():
            with self._profiled():
                torch.ones(1, device="cuda" if self._on_cuda else "cpu").add_(1)
            if self._on_cuda:
                self.kernel_floor_ns = self._measured_floor_ns()

    def capture(
        self,
        step: Callable[[], object],
        steps: int,
        path: Path,
        info: CaptureInfo,
        warm_steps: int = 0,
        reference: GraphReference | None = None,
        record_shapes: bool = False,
        node_paths: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """Profile `steps` calls of `step`, each in a range `decode_step`, and write them to `path`.

        `warm_steps` calls precede them, with the profiler armed but not recording, so that the
        first recorded step does not include its start-up. The device is synchronised before and
        after the recording, so that no op is cut off. `info.lead_steps` calls, each in a range
        `decode_lead`, are recorded first, so that the device has reached its steady state when the
        first step begins; readers leave them out. `record_shapes` records the shapes of operators'
        inputs, which makes profiled steps slower. `node_paths` is asked after the last step for the
        paths of graph nodes by their numbers: each op of such a node has its path under its
        argument `str`, as torch 2.13 writes annotations that are texts.

        The file is Chrome trace JSON, compressed if `path` ends in ".gz", with `info` under its key
        "decodescope" and `reference`, if there is one, under `REFERENCE_KEY`; it appears under its
        name only when it is complete. An error of `step` leaves no file.

        Raises:
            InputError: `path` cannot be written.
        """
        profiler = self._prepared(record_shapes)
        recording = False
        try:
            for _ in range(warm_steps):
                step()
            self._synchronize()
            with _without_notices():
                profiler.start_trace()
            recording = True
            time.sleep(_GUARD_S)
            for name in (LEAD_RANGE,) * info.lead_steps + (STEP_RANGE,) * steps:
                with annotate(name):
                    step()
            self._synchronize()
            time.sleep(_GUARD_S)
        finally:
            with _without_notices():
                if not recording:
                    profiler.start_trace()
                profiler.stop_trace()
        _write(profiler, path, info, reference, node_paths())

    def _measured_floor_ns(self) -> int | None:
        x = torch.zeros(1, device="cuda")
        # The first launch of a kernel loads it, which takes longer than the delay.
        _queue_burst(x)
        self._synchronize()
        with self._profiled() as profiler:
            _queue_burst(x)
        with WorkFolder() as folder:
            path = Path(folder, "burst.json")
            profiler.export_chrome_trace(str(path))
            return kernel_floor_ns(load(path))

    @contextmanager
    def _profiled(self) -> Iterator[_KinetoProfile]:
        profiler = self._prepared()
        profiler.start_trace()
        yield profiler
        self._synchronize()
        profiler.stop_trace()

    def _prepared(self, record_shapes: bool = False) -> _KinetoProfile:
        profiler = _KinetoProfile(
            activities=self._activities, record_shapes=record_shapes, acc_events=True
        )
        profiler.prepare_trace()
        return profiler

    def _synchronize(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize()


def _queue_burst(x: torch.Tensor) -> None:
    torch.cuda._sleep(_BURST_DELAY_CYCLES)  # type: ignore[no-untyped-call]
    for _ in range(_BURST_KERNELS):
        x.add_(1)


def _write(
    profiler: _KinetoProfile,
    path: Path,
    info: CaptureInfo,
    reference: GraphReference | None,
    node_paths: Mapping[int, str],
) -> None:
    members: dict[str, CaptureInfo | GraphReference] = {CAPTURE_KEY: info}
    if reference is not None:
        members[REFERENCE_KEY] = reference
    with replacing_stream(path, _GZIP_LEVEL) as target, WorkFolder() as folder:
        exported = Path(folder, "window.json")
        profiler.export_chrome_trace(str(exported))
        with exported.open("rb") as events:
            for piece in with_node_paths(with_members(members, events), node_paths):
                target.write(piece)


@contextmanager
def _without_notices() -> Iterator[None]:
    """Remove the profiler library's start and stop notices from standard error.

    The library writes them to the file descriptor, and reads its log level only from the
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
                    if not line.startswith(_NOTICES):
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


def with_members(members: Mapping[str, object], events: BinaryIO) -> Iterator[bytes]:
    """The text of a trace, with `members` as its first members.

    The profiler's own function for adding metadata replaces every backslash by a slash, which
    breaks the JSON of a name that contains a quotation mark.
    """
    before, brace, rest = events.read(1 << 10).partition(b"{")
    assert brace == b"{" + before.strip(), "a Chrome trace is one JSON object"
    yield msgspec.json.encode(members)[:-1] + b"," + rest
    yield from iter(partial(events.read, _PIECE_BYTES), b"")


def with_node_paths(pieces: Iterable[bytes], paths: Mapping[int, str]) -> Iterator[bytes]:
    """The text in pieces, in which the events of the nodes in `paths` have their paths.

    Without paths, the pieces themselves. At most one piece is held.
    """
    if not paths:
        yield from pieces
        return
    added = {b"%d" % node: b', "str": ' + json.dumps(path).encode() for node, path in paths.items()}
    held = b""
    for piece in pieces:
        held += piece
        # A number may go on in the next piece.
        done = 0
        whole = max(len(held) - _LONGEST_MATCH, 0)
        for match in _NODE.finditer(held):
            if match.start() >= whole:
                break
            yield held[done : match.end()] + added.get(match[1], b"")
            done = match.end()
        whole = max(done, whole)
        yield held[done:whole]
        held = held[whole:]
    yield _NODE.sub(lambda match: match[0] + added.get(match[1], b""), held)
