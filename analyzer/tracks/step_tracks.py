"""The tracks of one device during one step."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.timing.gaps import GapParts
from decodescope.analyzer.trace import GpuOps
from decodescope.analyzer.tracks.build import gap_track, stream_tracks
from decodescope.analyzer.tracks.track import Slices, Track

_Rows = TypeVar("_Rows", GpuOps, GapParts)


@dataclass(frozen=True, slots=True, eq=False)
class StepTracks:
    """The streams of a device during one step and the parts of its gaps, clipped to the step, in ns
    from its first op.

    The step lasts `length_ns`, until the next step's first op: a gap after its last op is included.
    `device` is the one in reports; the labels of ops index `names`, those of the trace.
    """

    device: int | str
    length_ns: int
    streams: tuple[Track, ...]
    gaps: Track
    names: tuple[str, ...]

    @property
    def ops(self) -> Slices:
        """The ops of all streams, sorted by start."""
        ops = Slices.concatenate([track.slices for track in self.streams])
        return ops.take(np.argsort(ops.row))


def step_tracks(analysis: Analysis, index: int) -> StepTracks:
    """The tracks of step `index`, which launched something."""
    trace, steps = analysis.trace, analysis.steps
    start_ns = int(steps.span.start_ns[index])
    length_ns = int(max(steps.time_ns[index], steps.span.length_ns[index]))
    device = int(steps.device[index])
    ops = _clipped(trace.ops.take(trace.ops.device == device), start_ns, length_ns)
    gaps = _clipped(analysis.idle_of((device,)), start_ns, length_ns)
    return StepTracks(
        device=trace.device_label(device),
        length_ns=length_ns,
        streams=tuple(stream_tracks(replace(trace, ops=ops), np.arange(len(ops)), "")),
        gaps=gap_track(gaps, device, ""),
        names=trace.names,
    )


def _clipped(rows: _Rows, start_ns: int, length_ns: int) -> _Rows:
    seen = rows.take((rows.start_ns < start_ns + length_ns) & (rows.end_ns > start_ns))
    return replace(
        seen,
        start_ns=np.clip(seen.start_ns - start_ns, 0, length_ns),
        end_ns=np.clip(seen.end_ns - start_ns, 0, length_ns),
    )
