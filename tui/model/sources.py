"""The sources of what the app shows: a worker, a recording or trace files, and their choices."""

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.files import names_of
from decodescope.analyzer.protocol.messages import Hello, WorkerConfig
from decodescope.analyzer.recordings.bundled import bundled_heads, bundled_variants
from decodescope.analyzer.recordings.following import FollowedRecording, is_being_written
from decodescope.analyzer.recordings.recording import is_recording
from decodescope.analyzer.reports.user_facts import Given
from decodescope.tui.link.base import Link, Playback
from decodescope.tui.link.recording import Recorder
from decodescope.tui.model.view import Choice

# As recordings are named while they grow, too.
_RECORDING_NAME = re.compile(r"\.dsrec(-\d+)?(\.partial)?$")


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A worker behind `link`. `cpu_chosen`: the user chose the CPU, so no banner about CUDA.
    `trust_remote_code`: a checkpoint may run its own code, as the user allowed. A recording of the
    model, variant and workload that were `asked` for is shown until there are figures."""

    link: Link
    cpu_chosen: bool = False
    trust_remote_code: bool = False
    asked: WorkerConfig | None = None
    recorder: Recorder | None = None

    # A worker is no file, and says everything itself.
    paths: ClassVar[tuple[Path, ...]] = ()
    given: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording that `link` plays, None with its own timing; `given` is what the user named."""

    path: Path
    link: Link | None = None
    given: Given | None = None

    recorder: ClassVar[None] = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The recording, also under the name that it gets if it is still being written."""
        return (self.path, *names_of(self.path))

    def open_link(self) -> Link:
        """`link`, else one that plays the recording, and follows it if it is being written."""
        from decodescope.tui.link.replay import ReplayLink

        if self.link is not None:
            return self.link
        if is_being_written(self.path):
            from decodescope.tui.link.following import FollowLink

            with contextlib.suppress(DecodescopeError):
                return FollowLink(FollowedRecording(self.path))
        return ReplayLink(self.path)


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Trace files to analyse, and what the user gave with them; number keys switch."""

    paths: tuple[Path, ...]
    given: Given | None = None

    recorder: ClassVar[None] = None

    def files(self, index: int) -> tuple[Path, ...]:
        """The file at `index`; after the last, all of them."""
        return (self.paths[index],) if index < len(self.paths) else self.paths


@dataclass(frozen=True, slots=True)
class TakenWindow:
    """The `number`-th window of what runs already: its traces, one a rank. Of several servers there
    is one for each `server`, and one of all, whose is ""."""

    number: int
    paths: tuple[Path, ...]
    server: str = ""


@dataclass(frozen=True, slots=True)
class AttachSource:
    """Something that runs already, or ran when `recorded`, behind `link`: the `windows` so far;
    number keys switch between them. `given` counts for every window."""

    link: Link
    given: Given | None = None
    windows: tuple[TakenWindow, ...] = ()
    recorded: ReplaySource | None = None
    recorder: Recorder | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The recording, if it is one, and the traces of all windows."""
        traces = dict.fromkeys(path for window in self.windows for path in window.paths)
        return (*(self.recorded.paths if self.recorded is not None else ()), *traces)

    def files(self, index: int) -> tuple[Path, ...]:
        return self.windows[index].paths


Source = LiveSource | ReplaySource | TraceSource | AttachSource


def given_for(source: Source, paths: Sequence[Path]) -> Given | None:
    """What was given with `source`, if it holds all of `paths`: it says nothing of others."""
    own_paths = {os.path.realpath(path) for path in source.paths}
    return source.given if all(os.path.realpath(path) in own_paths for path in paths) else None


def source_for(path: Path) -> ReplaySource | TraceSource:
    """The source for one file a user named: a recording is replayed, a trace analysed."""
    recorded = _RECORDING_NAME.search(path.name) is not None or is_recording(path)
    return ReplaySource(path) if recorded else TraceSource((path,))


_ALL_RANKS = Choice("all ranks", "the files as ranks of one run, on one clock")
_NOT_RECORDED = "not recorded"


def variants_of(hello: Hello, playback: Playback | None) -> tuple[Choice, ...]:
    """The variants that a worker has; of a recording, those that it holds can be chosen. Without a
    GPU, and from a bundled recording, others lead to their bundled recordings."""
    choices = tuple(
        Choice(info.name, info.summary, info.unavailable, info.interpreted)
        for info in hello.variants
    )
    stand_in = (hello.device, hello.weights) == ("cpu", "bundled")
    if playback is not None:
        held = {mark.variant for mark in playback.marks}
        choices = tuple(
            replace(choice, unavailable=None if choice.name in held else _NOT_RECORDED)
            for choice in choices
        )
        stand_in = any(hello == head.hello for head in bundled_heads().values())
    if not stand_in:
        return choices
    bundled = bundled_variants(hello)
    if playback is not None:
        # A recording lists the variants of its day.
        listed = {choice.name for choice in choices}
        newer = (Choice(name, "", _NOT_RECORDED) for name in bundled if name not in listed)
        choices = (*choices, *newer)
    return tuple(_recorded(choice, *bundled.get(choice.name, (None, None))) for choice in choices)


def _recorded(choice: Choice, path: Path | None, hello: Hello | None) -> Choice:
    """The choice, as a bundled recording if there is no other way to see it."""
    if choice.unavailable is None or path is None or hello is None:
        return choice
    device, model = hello.device_name.removeprefix("NVIDIA "), hello.model.partition("@")[0]
    return Choice(choice.name, f"{device} recording of {model}", recorded=path)


def with_running(choices: tuple[Choice, ...], variant: str) -> tuple[Choice, ...]:
    """The choices with `variant`, which runs: of a recording that grows it was not known before."""
    if variant not in [choice.name for choice in choices]:
        return (*choices, Choice(variant, ""))
    return tuple(
        replace(choice, unavailable=None, recorded=None) if choice.name == variant else choice
        for choice in choices
    )


def files_of(paths: Sequence[Path]) -> tuple[Choice, ...]:
    """The opened files, and after several all of them together."""
    files = tuple(Choice(path.name, str(path.parent)) for path in paths)
    return (*files, _ALL_RANKS) if len(files) > 1 else files
