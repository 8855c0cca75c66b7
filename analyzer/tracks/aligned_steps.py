"""The median steps of two traces on one axis, on which the same layer begins at the same place."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.answer.parts import WORK, OpShares
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.structure.step_structure import NO_LAYER
from decodescope.analyzer.timing.intervals import uncovered_ns
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.tracks.track import Slices, Track, TrackKey, track_of


@dataclass(frozen=True, slots=True, eq=False)
class AlignedStep:
    """The ops of one side without the idle time between them, `busy_ns` in all: the label of a
    slice indexes `names`, its kind `WORK`."""

    track: Track
    names: tuple[str, ...]
    busy_ns: int

    def at(self, at_ns: int) -> tuple[str, str, int] | None:
        """The part, the name and the ns of the op at a place of the axis, None without one."""
        place = int(np.searchsorted(self.track.end_ns, at_ns, side="right"))
        if place == len(self.track.part) or self.track.start_ns[place] > at_ns:
            return None
        row, slices = self.track.part[place], self.track.slices
        return WORK[slices.kind[row]], self.names[slices.label[row]], int(slices.length_ns[row])


@dataclass(frozen=True, slots=True, eq=False)
class AlignedSteps:
    """Both sides. Layer i begins at `start_ns[i + 1]`; the first place is before the layers, the
    last but one behind them, and the last is the end."""

    sides: tuple[AlignedStep, AlignedStep]
    start_ns: Int64s

    def place_at(self, at_ns: int) -> str:
        place = int(np.searchsorted(self.start_ns[:-1], at_ns, side="right")) - 1
        if 0 < place < len(self.start_ns) - 2:
            return f"layer {place - 1}"
        return "before the layers" if place <= 0 else "behind the layers"


def aligned_steps(base: Analysis, other: Analysis) -> AlignedSteps | None:
    """Each op takes the time in which none before it ran; a layer takes that of the side on which
    it is longer. None if a trace has no step."""
    shares = [analysis.model_basis.median.shares for analysis in (base, other)]
    if any(side is None or side.window.step is None or not side.own.any() for side in shares):
        return None
    both = list(zip((base, other), filter(None, shares), strict=True))
    layers = 1 + max(int(analysis.structure.layer[_rows(own)].max()) for analysis, own in both)
    placed = [_placed(analysis, _rows(own), layers) for analysis, own in both]
    totals_ns = [np.bincount(place, ns, layers + 2).astype(np.int64) for place, ns in placed]
    start_ns = np.concatenate(([0], np.cumsum(np.maximum(*totals_ns))))
    sides = []
    for (analysis, own), (place, ns), total_ns in zip(both, placed, totals_ns, strict=True):
        # An op is as far behind the start of its place as the ops of the place before it took.
        at_ns = start_ns[place] + np.cumsum(ns) - ns - (np.cumsum(total_ns) - total_ns)[place]
        label = analysis.trace.ops.name[_rows(own)].astype(np.int64)
        part = own.part[own.own].astype(np.int8)
        slices = Slices(at_ns, at_ns + ns, label, _rows(own), part)
        track = track_of(TrackKey("stream", 0), "", slices)
        sides.append(AlignedStep(track, analysis.trace.names, int(ns.sum())))
    return AlignedSteps((sides[0], sides[1]), start_ns)


def _rows(shares: OpShares) -> Int64s:
    return shares.rows[shares.own]


def _placed(analysis: Analysis, rows: Int64s, layers: int) -> tuple[Int64s, Int64s]:
    """The place of each op among those of `AlignedSteps`, in order, and the time that it takes."""
    structure, ops = analysis.structure, analysis.trace.ops
    layer = structure.layer[rows].astype(np.int64)
    behind = np.where(structure.prologue[rows], 0, layers + 1)
    place = np.maximum.accumulate(np.where(layer == NO_LAYER, behind, layer + 1))
    return place, uncovered_ns(ops.start_ns[rows], ops.end_ns[rows])
