"""Where the screen's data comes from: a live worker, a recording, or trace files."""

from dataclasses import dataclass
from pathlib import Path

from decodescope.tui.link.base import Link


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A worker behind `link`. `cpu_chosen`: the user asked for the CPU, so say nothing of CUDA."""

    link: Link
    cpu_chosen: bool = False


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """A recording, played back with its own timing."""

    path: Path


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Trace files to analyse; number keys switch between them."""

    paths: tuple[Path, ...]


Source = LiveSource | ReplaySource | TraceSource


def source_for(path: Path) -> ReplaySource | TraceSource:
    """The source for one file a user named, by its suffix."""
    return ReplaySource(path) if path.suffix == ".dsrec" else TraceSource((path,))
