"""Tracks of steps from lists of intervals."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.names.rules import FAMILIES, kernel_meaning
from decodescope.analyzer.tracks.build import StepTracks
from decodescope.analyzer.tracks.track import Slices, TrackKey, track_of


def step_tracks_of(
    length_ns: int,
    ops: Sequence[tuple[int, int]],
    gaps: Sequence[tuple[int, int]] = (),
    trace_names: tuple[str, ...] = ("k",),
    *,
    name: Sequence[int] = (),
    stream: Sequence[int] = (),
    gap_kind: Sequence[int] = (),
) -> StepTracks:
    """`ops` and `gaps` are (start, end) in ns, with the name and stream of each op and the kind of
    each gap; by default, all ops are kernels of the first name on stream 7."""
    names = np.array(name or [0] * len(ops), dtype=np.int64)
    streams = np.array(stream or [7] * len(ops), dtype=np.int64)
    families = [FAMILIES.index(kernel_meaning(text).family) for text in trace_names]
    slices = Slices(
        *_edges(ops), names, np.arange(len(ops)), np.array(families, dtype=np.int8)[names]
    )
    number = np.arange(len(gaps))
    kind = np.array(gap_kind or [0] * len(gaps), dtype=np.int8)
    return StepTracks(
        device=0,
        length_ns=length_ns,
        streams=tuple(
            track_of(TrackKey("stream", 0, int(key)), f"str {key}", slices.take(streams == key))
            for key in np.unique(streams)
        ),
        gaps=track_of(
            TrackKey("gap", 0), "gaps", Slices(*_edges(gaps), np.full(len(gaps), -1), number, kind)
        ),
        names=trace_names,
    )


def _edges(intervals: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(intervals, dtype=np.int64).reshape(-1, 2).T
