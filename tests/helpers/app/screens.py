"""Screens as plain text: the characters once, and the style of each run of cells in every look.

A file begins with its looks and a legend: a letter, and the style that it stands for in each look.
Then come the sizes: rows of text, and below them rows of runs, a letter and its number of cells.
A row whose text differs in a look follows, with the look's first letter before it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, repeat

from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style

_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse", "strike")
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
NAMED = (*_NAMES, *(f"bright_{name}" for name in _NAMES))
_SEPARATOR = " · "
# In the legend, of a row that a look has by itself.
_OTHER = "~"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of cells: a character and a style for each; a wide one has a blank behind it."""

    text: str
    styles: tuple[str, ...]


Rows = tuple[Row, ...]
# By size and look.
Screens = Mapping[str, Mapping[str, Rows]]


def rows_of(lines: Iterable[Iterable[Segment]], width: int, few_colors: bool) -> Rows:
    """The cells of `lines`; with `few_colors`, as a terminal of sixteen colours shows them."""
    rows = []
    for line in lines:
        text, styles = "", []
        for segment in line:
            cells = segment.text
            if segment.cell_length != len(cells):
                cells = "".join(char + " " * (cell_len(char) - 1) for char in cells)
            words = style_words(segment.style or Style(), few_colors, not cells.strip())
            text += cells
            styles += [words] * len(cells)
        assert len(text) >= width, f"{len(text)} of {width} cells: {text}"
        rows.append(Row(text[:width], tuple(styles[:width])))
    return tuple(rows)


@cache
def style_words(style: Style, few_colors: bool, blank: bool) -> str:
    """`style` in words, as "#dfe4ea on #0e1216 bold"; of `blank` cells only what can be seen."""
    seen = not blank or style.underline or style.reverse or style.strike
    words = [_color_word(style.color, few_colors)] if seen else [""]
    if ground := _color_word(style.bgcolor, few_colors):
        words += ["on", ground]
    words += [name for name in _ATTRIBUTES if seen and getattr(style, name)]
    return " ".join(filter(None, words)) or "-"


def _color_word(color: Color | None, few_colors: bool) -> str:
    if color is None or color.is_default:
        return ""
    if few_colors:
        color = color.downgrade(ColorSystem.STANDARD)
    return NAMED[color.number] if color.number is not None else color.get_truecolor().hex


def written(screens: Screens) -> str:
    """The file of these screens."""
    legend: dict[tuple[str, ...], str] = {}
    body: list[str] = []
    looks = list(next(iter(screens.values())))
    for size, by_look in screens.items():
        rows = [dict(zip(by_look, row, strict=True)) for row in zip(*by_look.values(), strict=True)]
        body.append(f"== {size}")
        runs = []
        for row in rows:
            for mark, group in _by_text(row):
                body.append(f"{mark}|{row[group[0]].text.rstrip()}")
                shown = [row[look] if look in group else None for look in looks]
                runs.append(f"{mark}:{_runs(shown, legend)}")
        body += [f"{line}{_times(len(list(same)))}" for line, same in groupby(runs)]
    heads = [f"{letters} {_SEPARATOR.join(styles)}" for styles, letters in legend.items()]
    return "\n".join([_SEPARATOR.join(looks), *heads, *body, ""])


def _by_text(row: Mapping[str, Row]) -> Iterator[tuple[str, list[str]]]:
    """The looks that have the text of the first, and each other look with its mark."""
    first = next(iter(row.values())).text
    yield "", [look for look, one in row.items() if one.text == first]
    yield from ((look[0], [look]) for look, one in row.items() if one.text != first)


def _times(count: int) -> str:
    return f" *{count}" if count > 1 else ""


def _runs(row: Sequence[Row | None], legend: dict[tuple[str, ...], str]) -> str:
    """The runs of a row in some looks; new styles get the next letters."""
    width = next(len(one.styles) for one in row if one is not None)
    columns = (repeat(_OTHER, width) if one is None else one.styles for one in row)
    runs = []
    for styles, same in groupby(zip(*columns, strict=True)):
        letters = legend.setdefault(styles, _letters(len(legend)))
        runs.append(f"{letters}{len(list(same))}")
    return " ".join(runs)


def _letters(index: int) -> str:
    more, index = divmod(index, 26)
    return (_letters(more - 1) if more else "") + chr(ord("a") + index)


def read(text: str) -> dict[str, dict[str, Rows]]:
    """The screens of a file."""
    head, *parts = text.split("\n== ")
    first, *legend_lines = head.splitlines()
    looks = first.split(_SEPARATOR)
    legend = dict(line.split(" ", 1) for line in legend_lines)
    styles = {letters: words.split(_SEPARATOR) for letters, words in legend.items()}
    return {part.split("\n", 1)[0]: _size(part.splitlines(), looks, styles) for part in parts}


def _size(lines: list[str], looks: list[str], styles: dict[str, list[str]]) -> dict[str, Rows]:
    texts: list[dict[str, str]] = []
    runs: list[dict[str, list[str]]] = []
    for line in lines[1:]:
        mark = line[0] if line[0] not in "|:" else ""
        kind, words = line[len(mark)], line[len(mark) + 1 :]
        marked = [look for look in looks if not mark or look[0] == mark]
        if kind == "|" and not mark:
            texts.append({})
        if kind == "|":
            texts[-1].update(dict.fromkeys(marked, words))
            continue
        times = re.search(r" \*(\d+)$", words)
        some = words[: times.start()].split() if times else words.split()
        if not mark:
            runs += [{} for _ in range(int(times[1]) if times else 1)]
        for one in runs[-int(times[1]) :] if times and not mark else runs[-1:]:
            one.update(dict.fromkeys(marked, some))
    return {
        look: tuple(
            _row(text[look], run[look], {letters: each[at] for letters, each in styles.items()})
            for text, run in zip(texts, runs, strict=True)
        )
        for at, look in enumerate(looks)
        if any(look in run and styles[_letters_of(run[look][0])][at] != _OTHER for run in runs)
    }


def _row(text: str, runs: list[str], styles: Mapping[str, str]) -> Row:
    cells: list[str] = []
    for run in runs:
        letters = _letters_of(run)
        cells += [styles[letters]] * int(run[len(letters) :])
    return Row(text.ljust(len(cells)), tuple(cells))


def _letters_of(run: str) -> str:
    return run.rstrip("0123456789")


def differences(now: str, before: str) -> Iterator[str]:
    """The differing rows, each with the size and the look."""
    new, old = read(now), read(before)
    for size in sorted({*new, *old}):
        for look in {**new.get(size, {}), **old.get(size, {})}:
            pair = [screens.get(size, {}).get(look, ()) for screens in (old, new)]
            if len(pair[0]) != len(pair[1]):
                yield f"{size} {look}: {len(pair[0])} rows before, {len(pair[1])} now"
            for number, (was, row) in enumerate(zip(*pair, strict=False), 1):
                if was.text != row.text:
                    yield f"{size} {look} row {number} before |{was.text.rstrip()}"
                    yield f"{size} {look} row {number} now    |{row.text.rstrip()}"
                yield from _style_differences(f"{size} {look} row {number}", was, row)


def _style_differences(place: str, was: Row, row: Row) -> Iterator[str]:
    at = 0
    for (before, now), same in groupby(zip(was.styles, row.styles, strict=False)):
        end = at + len(list(same))
        if before != now:
            yield f"{place} cells {at + 1}-{end} {row.text[at:end]!r}: {before} before, {now} now"
        at = end
