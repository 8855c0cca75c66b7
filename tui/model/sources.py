"""Where what the app shows comes from: a worker, a recording or trace files."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.io.files import names_of
from decodescope.analyzer.recordings.recording import is_recording
from decodescope.tui.link.base import Link

if TYPE_CHECKING:
    from decodescope.analyzer.reports.given import Given

# As recordings are named while they grow, too.
_RECORDING_NAME = re.compile(r"\.dsrec(-\d+)?(\.partial)?$")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a live run was asked to decode; None leaves the dtype to it."""

    model: str
    variant: str
    batch: int
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A worker behind `link`. `cpu_chosen`: the user chose the CPU, so no banner about CUDA.
    `trust_remote_code`: a checkpoint may run its own code, as the user allowed. A recording of what
    is `asked` for is shown until there are figures; None shows none."""

    link: Link
    cpu_chosen: bool = False
    trust_remote_code: bool = False
    asked: Asked | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """A worker is no file."""
        return ()


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording, played by `link`; None plays it with its own timing."""

    path: Path
    link: Link | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The recording, also under the name that it gets if it is still being written."""
        return (self.path, *names_of(self.path))


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Trace files to analyse, with what the user gave beside them; number keys switch between
    them."""

    paths: tuple[Path, ...]
    given: "Given | None" = None

    def given_for(self, paths: Iterable[Path]) -> "Given | None":
        """What was given, if it was given with all of `paths`: it says nothing about others."""
        mine = {os.path.realpath(path) for path in self.paths}
        return self.given if all(os.path.realpath(path) in mine for path in paths) else None


Source = LiveSource | ReplaySource | TraceSource


def source_for(path: Path) -> ReplaySource | TraceSource:
    """The source for one file a user named: a recording is replayed, a trace analysed."""
    recorded = _RECORDING_NAME.search(path.name) is not None or is_recording(path)
    return ReplaySource(path) if recorded else TraceSource((path,))
