"""The cells of one track: which character each column shows, and in which kind of style."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.trace import Bools, Int8s, Int64s
from decodescope.analyzer.tracks.track import NONE, Track, TrackColumns
from decodescope.tui.style.palette import Glyphs

# A gap's glyph: one more for each of these lengths that it reaches.
GAP_STEPS_NS = (2_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000_000_000)
_BLOCKS = np.array(list(" ▏▎▍▌▋▊▉█"))
_LEAST_NAME, _MOST_SLICES_A_COLUMN = 6, 4


@dataclass(slots=True)
class Cells:
    """One track in some rows, the top row first: `text` [rows, columns], each of one cell, and for
    each column the kind that colours it (`NONE`: empty), whether it does not just go on with the
    slice of the column before, and whether foreground and background are swapped. `labels` are
    (row, column, cells, slice) of what has room for a text.
    """

    text: NDArray[np.str_]
    kind: Int8s
    begins: Bools
    swapped: Bools
    labels: list[tuple[int, int, int, int]] = field(default_factory=list)


def gap_levels(gap_ns: Int64s) -> Int64s:
    """The ramp index of each gap (longer than 0): 1 below 2 µs, up to 7 from a second on."""
    return np.asarray(1 + np.searchsorted(np.array(GAP_STEPS_NS), gap_ns, side="right"))


def bar_cells(
    track: Track, columns: TrackColumns, edges_ns: Int64s, rows: int, glyphs: Glyphs
) -> Cells:
    """Bars with edges in eighths of a cell where a column holds one edge of one slice, else columns
    as high as they are busy. Only a column that is busy all the time is full. Two shades in turn
    tell one slice from the next; a column with several slices has its own."""
    top, busy, first = len(glyphs.ramp) - 1, columns.busy, columns.first
    filled = np.rint(busy * rows * top).astype(np.int64)
    filled = np.maximum(np.minimum(filled, rows * top - (busy < 1)), busy > 0)
    below = np.arange(rows - 1, -1, -1)[:, np.newaxis] * top
    level = np.minimum(np.maximum(filled - below, 0), top)
    one = columns.after - first == 1
    begins = np.ones(len(first), dtype=np.bool_)
    begins[1:] = ~(one[1:] & one[:-1] & (first[1:] == first[:-1]))
    shade = (np.cumsum(begins) + first[:1]) % 2
    text = np.array(list(glyphs.ramp + glyphs.shade))[np.where(level == top, top + shade, level)]
    swapped = np.zeros(len(busy), dtype=np.bool_)
    if glyphs.unicode:
        starts, ends = _edges(track, columns, edges_ns)
        text[:, ends] = _eighths(busy[ends])
        text[:, starts] = _eighths(1 - busy[starts])
        swapped[starts] = True
    labels = [
        (rows // 2, start, cells, int(track.part[part]))
        for start, cells, part in _runs(np.where(one & (busy >= 1), first, NONE))
    ]
    return Cells(text, columns.kind, begins, swapped, labels)


def part_cells(
    track: Track, columns: TrackColumns, edges_ns: Int64s, rows: int, glyphs: Glyphs
) -> Cells:
    """Bars with their names in a row above, or of one row behind them, up to the next slice; only
    bars where fewer than half of the names have room."""
    width, first, after = len(columns.first), int(columns.first[0]), int(columns.after[-1])
    after = after if after - first <= width * _MOST_SLICES_A_COLUMN else first
    column = edges_ns.searchsorted(track.start_ns[first:after], side="right") - 1
    following = np.append(column[1:], width + 1)
    column = np.maximum(column, 0)
    if rows == 1:
        column = np.maximum(edges_ns.searchsorted(track.end_ns[first:after]), column + 1)
    room = following - column - 1
    named = np.flatnonzero(room >= _LEAST_NAME)
    named = named if 2 * len(named) >= len(room) else named[:0]
    above = rows > 1 and bool(len(named))
    cells = bar_cells(track, columns, edges_ns, rows - above, glyphs)
    cells.text = np.concatenate((np.full((int(above), width), " "), cells.text))
    numbers = track.part[first + named]
    where = (column[named].tolist(), room[named].tolist(), numbers.tolist())
    cells.labels = [(0, *label) for label in zip(*where, strict=True)]
    return cells


def gap_cells(track: Track, columns: TrackColumns, glyphs: Glyphs) -> Cells:
    """The length and class of the largest part of a gap in each column."""
    largest = track.largest(columns)
    shown = np.flatnonzero(largest != NONE)
    number = largest[shown]
    length_ns = track.slices.end_ns[number] - track.slices.start_ns[number]
    level, kind = np.zeros(len(largest), dtype=np.int64), np.full(len(largest), NONE, np.int8)
    level[shown] = gap_levels(length_ns)
    kind[shown] = track.slices.kind[number]
    text = np.array(list(glyphs.ramp))[level]
    begins = (np.diff(largest, prepend=NONE) != 0) | (largest == NONE)
    labels = [(0, start, cells, number) for start, cells, number in _runs(largest)]
    return Cells(text[np.newaxis], kind, begins, np.zeros(len(largest), dtype=np.bool_), labels)


def _eighths(share: NDArray[np.float64]) -> NDArray[np.str_]:
    return _BLOCKS[np.clip(np.rint(share * 8), 1, 7).astype(np.int64)]


def _edges(track: Track, columns: TrackColumns, edges_ns: Int64s) -> tuple[Int64s, Int64s]:
    """The columns in which a slice begins that fills the next one, and those in which one ends that
    filled the one before; nothing else is in them."""
    single = np.flatnonzero((columns.after - columns.first == 1) & (columns.busy < 1))
    start_ns, end_ns = (ns[columns.first[single]] for ns in (track.start_ns, track.end_ns))
    before_ns = edges_ns[np.maximum(single - 1, 0)]
    next_end_ns = edges_ns[np.minimum(single + 2, len(edges_ns) - 1)]
    begins = (start_ns > edges_ns[single]) & (end_ns >= next_end_ns)
    return single[begins], single[(start_ns <= before_ns) & (end_ns < edges_ns[single + 1])]


def _runs(values: Int64s) -> list[tuple[int, int, int]]:
    """(start, length, value) of the runs of at least two equal values except `NONE`."""
    if not (values != NONE).any():
        return []
    start = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    length = np.append(start[1:], len(values)) - start
    kept = np.flatnonzero((length >= 2) & (values[start] != NONE))
    start, length, value = start[kept], length[kept], values[start[kept]]
    return list(zip(start.tolist(), length.tolist(), value.tolist(), strict=True))
