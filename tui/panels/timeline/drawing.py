"""Rows of a timeline from a `Look`: minimap, tracks, axis and legend."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style

from decodescope.analyzer.names.fitted_names import cut_middle, short_kernel
from decodescope.analyzer.names.kinds import FAMILIES
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.tracks.host import HOST_KINDS
from decodescope.analyzer.tracks.track import Track, TrackColumns, TrackKind
from decodescope.analyzer.vocabulary.class_colors import FAMILY_LETTERS, GAP_LETTERS
from decodescope.tui.model.look import Look
from decodescope.tui.panels.sheet import Row
from decodescope.tui.panels.timeline.cells import Cells, bar_cells, gap_cells
from decodescope.tui.style.palette import Glyphs, Inks

_SWAPPED, _LABEL, _PALE, _TINTED, _CHOSEN = 1, 2, 4, 8, 16
_FLAGS = 32
_EMPTY = 64
_MAX_STREAM_ROWS = 3
# The names of the kinds of slices; of other tracks the kinds have none.
_KINDS: dict[TrackKind, Sequence[str]] = {
    "stream": FAMILIES,
    "gap": GAP_CLASSES,
    "host": HOST_KINDS,
}
_NAMELESS = ("", "")


@dataclass(slots=True)
class Canvas:
    """The context that all tracks are drawn with: `chosen` is the time of the selection with the
    place of its track (None: all tracks), `marks_ns` are times with their marks on the axis,
    `gutter` the cells before the columns."""

    look: Look
    inks: Inks
    glyphs: Glyphs
    columns: int
    gutter: int
    chosen: tuple[int, int] | None = None
    chosen_track: int | None = None
    marks_ns: dict[int, str] = field(default_factory=dict)
    kinds_seen: set[tuple[str, str]] = field(default_factory=set)
    edges_ns: Int64s = field(init=False)
    _styles: dict[tuple[TrackKind, int], Style] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edges_ns = self.look.edges_ns(self.columns)

    def tracks(self, first: int, height: int, focused: bool) -> list[Row]:
        """The tracks from `first` on, in at most `height` rows; streams get what is left over."""
        tracks = self.look.tracks.tracks[first : first + height]
        heights = track_heights([track.key.kind for track in tracks], height, self.inks.letters)
        rows: list[Row] = []
        for place, (track, high) in enumerate(zip(tracks, heights, strict=True), first):
            rows += self._track(place, track, high, focused and place == self.look.cursor)
        return rows[:height]

    def minimap(self) -> Row:
        """How busy the devices are over all time; the visible part in brackets."""
        look = self.look
        begin_ns, end_ns = look.world
        whole = type(look.viewport)(begin_ns, end_ns - begin_ns)
        columns = look.tracks.busy.columns(look.time.time(whole.edges_ns(self.columns)))
        top = len(self.glyphs.ramp) - 1
        level = np.clip(np.rint(columns.busy * top), columns.busy > 0, top).astype(np.int64)
        text = np.array(list(self.glyphs.ramp))[level].tolist()
        first = max(whole.column_of(look.viewport.start_ns, self.columns), 0)
        last = min(whole.column_of(look.viewport.end_ns - 1, self.columns), self.columns - 1)
        row = self._label("map", False)
        inside = "".join(text[first : last + 1])
        if last - first >= 2 and look.zoom > 1:
            inside = f"[{inside[1:-1]}]"
        row.add("".join(text[:first]), self.inks.faint).add(inside, self.inks.accent)
        return row.add("".join(text[last + 1 :]), self.inks.faint)

    def _label(self, text: str, cursor: bool) -> Row:
        mark = self.glyphs.pointer if cursor else " "
        style = self.inks.accent if cursor else self.inks.dim
        row = Row().add(mark, style) if self.gutter > 1 else Row()
        return row.left(text, max(self.gutter - row.cells - 1, 0), style).to(self.gutter)

    def _track(self, place: int, track: Track, rows: int, cursor: bool) -> list[Row]:
        kind, columns = track.key.kind, track.columns(self.edges_ns)
        letters = self.inks.letters and kind in ("stream", "gap") and rows > 1
        high = rows - letters
        if kind == "gap":
            cells = gap_cells(track, columns, self.glyphs)
        else:
            cells = bar_cells(track, columns, self.edges_ns, high, self.glyphs)
        flags = self._flags(place, track, columns)
        flags[cells.swapped] |= _SWAPPED
        names = _KINDS.get(kind, _NAMELESS)
        self.kinds_seen |= {(kind, names[seen]) for seen in np.unique(cells.kind) if seen >= 0}
        codes = np.where(cells.kind < 0, _EMPTY, cells.kind.astype(np.int64)) * _FLAGS + flags
        lines = [(text, codes) for text in cells.text]
        self._write_labels(track, cells, lines)
        titles = [""] * high
        titles[high // 2] = track.title
        if letters:
            letter_of = GAP_LETTERS if kind == "gap" else FAMILY_LETTERS
            text = [letter_of[names[seen]] if seen >= 0 else " " for seen in cells.kind.tolist()]
            lines.append((text, codes & ~_SWAPPED))
            titles.append("why" if kind == "gap" else "what")
        return [
            self._line(self._label(title, cursor and title == track.title), kind, *line)
            for title, line in zip(titles, lines, strict=True)
        ]

    def _flags(self, place: int, track: Track, columns: TrackColumns) -> NDArray[np.int64]:
        flags = np.zeros(self.columns, dtype=np.int64)
        if self.look.marks is not None:
            flags[~track.marked(self.look.marks[place], columns)] |= _PALE
        if self.chosen is not None and self.chosen_track in (None, place):
            first, last = self.chosen_columns()
            flags[first : last + 1] |= _TINTED if self.chosen_track is None else _CHOSEN
        return flags

    def chosen_columns(self) -> tuple[int, int]:
        """The first and last column of the selection; the last is smaller if none is visible."""
        if self.chosen is None:
            return 0, -1
        first = self.look.column_of(self.chosen[0], self.columns)
        last = self.look.column_of(max(self.chosen[1] - 1, self.chosen[0]), self.columns)
        return max(first, 0), min(last, self.columns - 1)

    def _write_labels(
        self, track: Track, cells: Cells, lines: list[tuple[list[str], NDArray[np.int64]]]
    ) -> None:
        """Names and lengths, where there is room."""
        kind, slices = track.key.kind, track.slices
        for row, start, room, number in cells.labels:
            name_index = int(slices.label[number])
            if kind == "gap":
                label = duration(int(slices.length_ns[number]))
                start += (room - len(label)) // 2
                if len(label) + 2 > room:
                    continue
            elif name_index < 0:
                continue
            else:
                shortened = short_kernel if kind == "stream" else cut_middle
                label = shortened(self.look.tracks.names[name_index], room - 1)
            cells_wide = min(cell_len(label), room)
            text, codes = lines[row]
            text[start : start + cells_wide] = _one_cell_each(label, cells_wide)
            codes = codes.copy()
            codes[start : start + cells_wide] |= _LABEL
            lines[row] = (text, codes)

    def _line(self, row: Row, kind: TrackKind, text: list[str], codes: NDArray[np.int64]) -> Row:
        if not len(codes):
            return row
        starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            row.add("".join(text[start:end]), self._style(kind, int(codes[start])))
        return row

    def _style(self, kind: TrackKind, code: int) -> Style:
        style = self._styles.get((kind, code))
        if style is None:
            style = self._styles[kind, code] = self._new_style(kind, *divmod(code, _FLAGS))
        return style

    def _new_style(self, kind: TrackKind, number: int, flags: int) -> Style:
        inks = self.inks
        style = Style.null() if number == _EMPTY else self._ink(kind, number)
        if flags & _PALE:
            style = inks.faint
        if flags & _CHOSEN and number != _EMPTY:
            style = inks.accent + Style(bold=True, underline=True)
        if flags & _LABEL and kind != "gap" and not flags & _PALE:
            style = inks.chip(style)
        elif flags & _LABEL:
            style += Style(bold=not flags & _PALE)
        elif flags & _SWAPPED:
            style += Style(reverse=True)
        if flags & _TINTED and inks.cursor.bgcolor is not None and not flags & (_LABEL | _SWAPPED):
            style += Style(bgcolor=inks.cursor.bgcolor.name)
        return style

    def _ink(self, kind: TrackKind, number: int) -> Style:
        inks, name = self.inks, _KINDS.get(kind, _NAMELESS)[number]
        match kind:
            case "stream":
                return inks.family(name)
            case "gap":
                return inks.gap(name)
            case "host":
                return {"operator": inks.faint, "launch": inks.dim}.get(name, inks.text)
            case "wait" | "interruption":
                return inks.warn
        return (inks.dim, inks.faint)[number]


def track_heights(kinds: Sequence[str], height: int, letters: bool) -> list[int]:
    """The rows of each track: one each; with `letters` one more for those of gaps, then of streams;
    then streams get up to three."""
    heights = [1] * len(kinds)
    spare = height - len(kinds)
    lettered = ("gap", "stream") if letters else ()
    for wanted in (*lettered, *["stream"] * (_MAX_STREAM_ROWS - 1)):
        places = [place for place, kind in enumerate(kinds) if kind == wanted]
        if places and len(places) <= spare:
            spare -= len(places)
            for place in places:
                heights[place] += 1
    return heights


def _one_cell_each(label: str, cells: int) -> list[str]:
    """The label as one entry for each cell: the second cell of a wide character is empty."""
    chars: list[str] = []
    for char in plain_line(label):
        wide = cell_len(char)
        if not wide and chars:
            chars[-1] += char
        elif wide:
            chars += [char] + [""] * (wide - 1)
    return (chars + [" "] * cells)[:cells]
