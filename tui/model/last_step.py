"""The last step of a window: its device, its tracks, and how much of it overlaps."""

from dataclasses import replace

import numpy as np

from decodescope.analyzer.tracks.build import Tracks
from decodescope.analyzer.tracks.track import Track


def device_of_last_step(tracks: Tracks) -> int:
    """The device of the last step; without steps the busiest one. Something must have run."""
    busy = tracks.analysis.busy
    if len(tracks.step):
        return int(tracks.analysis.steps.device[tracks.step[-1]])
    return max(busy, key=lambda device: busy[device].busy_ns)


def last_step_of(tracks: Tracks, most: int) -> Tracks:
    """The time of the last step and at most `most` tracks of its device: its gaps, its stream with
    most ops, its overlap, its other streams."""
    shown = _tracks_of_last_step(tracks)
    streams = [track for track in shown if track.key.kind == "stream"]
    busiest = max(streams, default=None, key=lambda track: len(track.slices))

    def rank(track: Track) -> int:
        return 1 if track is busiest else ("gap", "", "overlap", "stream").index(track.key.kind)

    kept = sorted(shown, key=rank)[:most]
    chosen = tuple(track for track in shown if any(track is other for other in kept))
    return replace(tracks, tracks=chosen, world=tracks.home)


def overlap_share(tracks: Tracks) -> float:
    """The share of the last step in which ops of its device overlapped, 0 if that does not
    matter."""
    overlaps = [track for track in _tracks_of_last_step(tracks) if track.key.kind == "overlap"]
    return sum(float(track.columns(np.array(tracks.home)).busy[0]) for track in overlaps)


def _tracks_of_last_step(tracks: Tracks) -> list[Track]:
    device = device_of_last_step(tracks)
    return [
        track
        for track in tracks.tracks
        if track.key.device == device and track.key.kind in ("stream", "overlap", "gap")
    ]
