"""The cells of one track: which character each column shows, and in which kind of style."""

from dataclasses import dataclass, field

import numpy as np

from decodescope.analyzer.trace import Bools, Int8s, Int64s
from decodescope.analyzer.tracks.track import NONE, Track, TrackColumns
from decodescope.tui.style.palette import Glyphs

# A gap's glyph: one more for each of these lengths that it reaches.
GAP_STEPS_NS = (2_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000)
LABEL_CELLS = 4
_BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(slots=True)
class Cells:
    """One track in some rows, the top row first: `text` [rows][columns], each of one cell, and for
    each column the kind that colours it (`NONE`: empty) and whether foreground and background are
    swapped. `labels` are (row, column, cells, slice) of what has room for a text.
    """

    text: list[list[str]]
    kind: Int8s
    swapped: Bools
    labels: list[tuple[int, int, int, int]] = field(default_factory=list)


def gap_levels(gap_ns: Int64s) -> Int64s:
    """The ramp index of each gap (longer than 0): 1 below 2 µs, up to 7 from a second on."""
    return np.asarray(1 + np.searchsorted(np.array(GAP_STEPS_NS), gap_ns, side="right"))


def bar_cells(
    track: Track, columns: TrackColumns, edges_ns: Int64s, rows: int, glyphs: Glyphs
) -> Cells:
    """Bars with edges in eighths of a cell where a column holds one edge of one slice, else columns
    as high as they are busy. Only a column that is busy all the time is full."""
    ramp = np.array(list(glyphs.ramp))
    top = len(ramp) - 1
    most = rows * top
    busy = columns.busy
    filled = np.clip(np.rint(busy * most), busy > 0, np.where(busy < 1, most - 1, most))
    text = [
        ramp[np.clip(filled - (rows - 1 - row) * top, 0, top).astype(np.int64)]
        for row in range(rows)
    ]
    swapped = np.zeros(len(busy), dtype=np.bool_)
    if glyphs.unicode:
        begins, ends = _edges(track, columns, edges_ns)
        blocks = np.array(list(_BLOCKS))
        share = np.clip(np.rint(busy * 8), 1, 7).astype(np.int64)
        for line in text:
            line[ends] = blocks[share[ends]]
            line[begins] = blocks[8 - share[begins]]
        swapped = begins
    bars = Cells([line.tolist() for line in text], columns.kind, swapped)
    inside_one = (columns.after - columns.first == 1) & (columns.busy >= 1)
    bars.labels = [
        (rows // 2, start, cells, int(track.part[part]))
        for start, cells, part in _runs(np.where(inside_one, columns.first, NONE))
    ]
    return bars


def gap_cells(track: Track, columns: TrackColumns, glyphs: Glyphs) -> Cells:
    """The length and class of the largest part of a gap in each column."""
    largest = track.largest(columns)
    shown = np.flatnonzero(largest != NONE)
    length_ns = track.slices.length_ns[largest[shown]]
    level, kind = np.zeros(len(largest), dtype=np.int64), np.full(len(largest), NONE, np.int8)
    level[shown] = gap_levels(length_ns)
    kind[shown] = track.slices.kind[largest[shown]]
    text = np.array(list(glyphs.ramp))[level].tolist()
    labels = [(0, start, cells, number) for start, cells, number in _runs(largest)]
    return Cells([text], kind, np.zeros(len(largest), dtype=np.bool_), labels)


def _edges(track: Track, columns: TrackColumns, edges_ns: Int64s) -> tuple[Bools, Bools]:
    """The columns in which a slice begins that fills the next one, and those in which one ends that
    filled the one before; nothing else is in them."""
    single = np.flatnonzero((columns.after - columns.first == 1) & (columns.busy < 1))
    part = columns.first[single]
    from_before = track.start_ns[part] <= edges_ns[single]
    into_next = track.end_ns[part] >= edges_ns[single + 1]
    begins, ends = np.zeros((2, len(columns.busy)), dtype=np.bool_)
    begins[single[into_next & ~from_before]] = True
    ends[single[from_before & ~into_next]] = True
    return begins, ends


def _runs(values: Int64s) -> list[tuple[int, int, int]]:
    """(start, length, value) of the runs of equal values except `NONE` that have room for a
    label."""
    if not len(values):
        return []
    start = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    length = np.diff(start, append=len(values))
    kept = np.flatnonzero((length >= LABEL_CELLS) & (values[start] != NONE))
    return list(
        zip(start[kept].tolist(), length[kept].tolist(), values[start[kept]].tolist(), strict=True)
    )
