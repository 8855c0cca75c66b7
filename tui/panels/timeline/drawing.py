"""Rows of a timeline from a `Look`: minimap, tracks and matches."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.style import Style

from decodescope.analyzer.answer.parts import WORK
from decodescope.analyzer.names.fitted_names import cut_middle, short_kernel
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.tracks.finding import Matches
from decodescope.analyzer.tracks.host import HOST_KINDS
from decodescope.analyzer.tracks.track import Track, TrackColumns, TrackKind
from decodescope.analyzer.vocabulary.class_colors import PART_LETTERS
from decodescope.tui.model.look import Look
from decodescope.tui.panels.sheet import Row
from decodescope.tui.panels.timeline.cells import Cells, bar_cells, gap_cells, part_cells
from decodescope.tui.style.palette import Glyphs, Inks

_SWAPPED, _LABEL, _PALE, _TINTED, _CHOSEN, _NAME = (1 << place for place in range(6))
_FLAGS = 64
_EMPTY = 64
# The fewest cells for a piece of a name, and the most rows of parts.
_LEAST_CUT, _MOST_PARTS = 8, 12
_DIGITS = "0123456789"
# The kinds of tracks that get one more row each, in this order. Of a stream, the first one has
# letters; of a part, names.
_GROWTH = ("stream", "stream", "part", "stream", "part", "part", *["stream"] * 4)
# The names of the kinds of slices; of other tracks the kinds have none.
_KINDS: dict[TrackKind, Sequence[str]] = {
    "stream": WORK,
    "part": WORK,
    "gap": GAP_CLASSES,
    "host": HOST_KINDS,
}
_NAMELESS = ("", "")
# The characters of the columns of a row, and their kinds and flags.
_Line = tuple[list[str], NDArray[np.int64]]


@dataclass(slots=True)
class Canvas:
    """What all tracks are drawn with: `chosen` is the time of the selection and `chosen_tracks` its
    tracks (none: all), `at_ns` the cursor, `gutter` the cells before the columns."""

    look: Look
    inks: Inks
    glyphs: Glyphs
    gutter: int
    chosen: tuple[int, int] | None = None
    chosen_tracks: tuple[int, ...] = ()
    at_ns: int | None = None
    kinds_seen: set[str] = field(default_factory=set)
    columns: int = field(init=False)
    edges_ns: Int64s = field(init=False)
    _styles: dict[tuple[TrackKind, int], Style] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns, self.edges_ns = self.look.columns, self.look.edges_ns

    def tracks(self, rows_of: Sequence[tuple[int, int]], focused: bool) -> list[Row]:
        """Tracks by their place, each in so many rows."""
        at = self.look.cursor if focused else None
        return [row for place, high in rows_of for row in self._track(place, high, place == at)]

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

    def found(self, matches: Matches) -> Row:
        """The columns in which a match of any track begins."""
        columns = self.edges_ns.searchsorted(matches.start_ns, side="right") - 1
        text = np.full(self.columns, " ")
        text[columns[(columns >= 0) & (columns < self.columns)]] = self.glyphs.down.strip()
        return self._label("find", False).add("".join(text), self.inks.warn)

    def _track(self, place: int, rows: int, cursor: bool) -> list[Row]:
        track = self.look.tracks.tracks[place]
        kind, columns = track.key.kind, track.columns(self.edges_ns)
        lettered = ("stream", "gap") if self.inks.letters else ("stream",)
        letters = kind in lettered and rows > 1
        if kind == "gap":
            cells = gap_cells(track, columns, self.glyphs)
        else:
            draw = part_cells if kind == "part" else bar_cells
            cells = draw(track, columns, self.edges_ns, rows - letters, self.glyphs)
        names = _KINDS.get(kind, _NAMELESS)
        self.kinds_seen |= {names[seen] for seen in set(cells.kind.tolist()) if seen >= 0}
        flags = self._flags(place, track, columns)
        codes = np.where(cells.kind < 0, _EMPTY, cells.kind.astype(np.int64)) * _FLAGS + flags
        codes[cells.swapped] |= _SWAPPED
        # What is blank has no colour, so that high bars make few segments.
        blank = _EMPTY * _FLAGS + (flags & (_PALE | _TINTED))
        lines = [(line.tolist(), np.where(line == " ", blank, codes)) for line in cells.text]
        self._write_labels(track, cells, lines, letters)
        titles = [""] * len(lines)
        titles[len(lines) // 2] = self._title_of(track)
        if letters:
            letter_of = [*(PART_LETTERS[name] for name in names), " "]
            cells_seen = zip(cells.kind.tolist(), cells.begins.tolist(), strict=True)
            text = [letter_of[seen] if new else self.glyphs.same for seen, new in cells_seen]
            lines.append((text, blank | _NAME))
            titles.append("why" if kind == "gap" else "what")
        return [
            self._line(self._label(title, cursor and number == (rows - letters) // 2), kind, *line)
            for number, (title, line) in enumerate(zip(titles, lines, strict=True))
        ]

    def _title_of(self, track: Track) -> str:
        """The title of a track; of what fits into no sub-row, how many slices are visible."""
        if track.key.kind != "overlap" or not track.key.level:
            return track.title
        start_ns, end_ns = self.look.shown
        seen = (track.slices.start_ns < end_ns) & (track.slices.end_ns > start_ns)
        return f"  {np.count_nonzero(seen):,} more"

    def _flags(self, place: int, track: Track, columns: TrackColumns) -> NDArray[np.int64]:
        flags = np.zeros(self.columns, dtype=np.int64)
        if self.look.marks is not None:
            flags[~track.marked(self.look.marks[place], columns)] |= _PALE
        if self.chosen is not None and (not self.chosen_tracks or place in self.chosen_tracks):
            first, last = self.chosen_columns()
            flags[first : last + 1] |= _CHOSEN if self.chosen_tracks else _TINTED
        return flags

    def chosen_columns(self) -> tuple[int, int]:
        """The first and last column of the selection; the last is smaller if none is visible."""
        if self.chosen is None:
            return 0, -1
        first = self.look.column_of(self.chosen[0])
        last = self.look.column_of(max(self.chosen[1] - 1, self.chosen[0]))
        return max(first, 0), min(last, self.columns - 1)

    def _write_labels(self, track: Track, cells: Cells, lines: list[_Line], lettered: bool) -> None:
        """Names and lengths where there is room; without a row of letters, letters."""
        kind = track.key.kind
        for row, start, room, number in cells.labels:
            label = self._text_of(track, number, room)
            if kind == "stream" and not label and not lettered:
                label = PART_LETTERS[WORK[int(track.slices.kind[number])]]
            start += (room - len(label)) // 2 if kind == "gap" else 0
            cells_wide = min(cell_len(label), room)
            text, codes = lines[row]
            text[start : start + cells_wide] = _one_cell_each(label, cells_wide)
            codes[start : start + cells_wide] |= _NAME if kind == "part" else _LABEL

    def _text_of(self, track: Track, number: int, room: int) -> str:
        """The name or length of a slice, "" without room; of a numbered range, its number is
        enough."""
        kind, slices = track.key.kind, track.slices
        if kind == "gap":
            length = duration(int(slices.end_ns[number] - slices.start_ns[number]))
            return length if len(length) + 2 <= room else ""
        label = int(slices.label[number])
        name = self.look.tracks.names[label] if label >= 0 else ""
        of_op = kind in ("stream", "part")
        if room >= _LEAST_CUT or cell_len(short_name(name) if of_op else name) < room:
            return (short_kernel if of_op else cut_middle)(name, room - (kind != "part"))
        last = name[len(name.rstrip(_DIGITS)) :] if kind in ("range", "host_range") else ""
        return last if len(last) < room else ""

    def _line(self, row: Row, kind: TrackKind, text: list[str], codes: NDArray[np.int64]) -> Row:
        if not len(codes):
            return row
        ends = [*(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(text)]
        starts = [0, *ends[:-1]]
        for start, end, code in zip(starts, ends, codes[starts].tolist(), strict=True):
            row.plain("".join(text[start:end]), end - start, self._style(kind, code))
        return row

    def _style(self, kind: TrackKind, code: int) -> Style:
        style = self._styles.get((kind, code))
        if style is None:
            style = self._styles[kind, code] = self._new_style(kind, *divmod(code, _FLAGS))
        return style

    def _new_style(self, kind: TrackKind, number: int, flags: int) -> Style:
        inks = self.inks
        style = Style.null() if number == _EMPTY else self._ink(kind, number)
        if flags & _NAME:
            style = inks.dim
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
        tint = inks.cursor.bgcolor if inks.cursor.color is None else None
        if flags & _TINTED and tint is not None and not flags & (_LABEL | _SWAPPED):
            style += Style(bgcolor=tint.name)
        return style

    def _ink(self, kind: TrackKind, number: int) -> Style:
        inks, name = self.inks, _KINDS.get(kind, _NAMELESS)[number]
        match kind:
            case "stream" | "part":
                return inks.part(name)
            case "gap":
                return inks.gap(name)
            case "host":
                return {"operator": inks.faint, "launch": inks.dim}.get(name, inks.text)
            case "wait" | "interruption":
                return inks.warn
        return (inks.dim, inks.faint)[number]


def shown_tracks(look: Look, height: int, letters: bool) -> list[tuple[int, str]]:
    """The places and kinds of the tracks that have rows: sub-rows of streams ("lane") only where
    something is visible; parts only where rows are left, the longest first."""
    tracks, shown_ns = look.tracks.tracks, np.array(look.shown)
    shown: list[tuple[int, str]] = []
    parts: list[tuple[int, str]] = []
    for place, track in enumerate(tracks):
        is_lane = track.key.kind in ("stream", "overlap") and track.key.level > 0
        kind = "lane" if is_lane else track.key.kind
        if place == look.cursor or kind not in ("lane", "part"):
            shown.append((place, kind))
        elif len(shown) < height and np.less(*track.touching(shown_ns))[0]:
            (parts if kind == "part" else shown).append((place, kind))
    lettered = ("stream", "gap") if letters else ("stream",)
    room = height - len(shown) - sum(kind in lettered for _, kind in shown)
    longest = sorted(parts, key=lambda part: -int(tracks[part[0]].covered_ns[-1]))
    return sorted(shown + longest[: min(max(room, 0), _MOST_PARTS)])


def track_heights(kinds: Sequence[str], height: int, letters: bool) -> list[int]:
    """The rows of each track: one each; with `letters` one more for those of gaps; then those of
    `_GROWTH`, for all tracks of a kind or none, of parts for the first ones."""
    heights = [1] * len(kinds)
    spare = height - len(kinds)
    for wanted in (*(("gap",) if letters else ()), *_GROWTH):
        places = [place for place, kind in enumerate(kinds) if kind == wanted]
        if len(places) > spare:
            places = places[: max(spare, 0)] if wanted == "part" else []
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
