"""Breaks text into lines of a width."""

import re

from rich.cells import cell_len, chop_cells

from decodescope.analyzer.text.plain import plain_text


def wrapped_tail(text: str, width: int, height: int) -> list[str]:
    """The last `height` lines of `text` wrapped to `width` cells, with visible control characters.

    Words longer than a line are cut; a line keeps its indentation.
    """
    if width < 1 or height < 1:
        return []
    tail = plain_text(text[-(width * height * 2 + 200) :])
    lines: list[str] = []
    for line in tail.split("\n"):
        lines.extend(wrapped(line, width))
    return lines[-height:]


def wrapped(line: str, width: int) -> list[str]:
    """`line` broken between words into lines of at most `width` cells."""
    lines, current = [], ""
    # The first word keeps its indentation, and each word the spaces after it.
    for word in re.findall(r" *[^ ]+ *", line) or [line]:
        if current and cell_len(current) + cell_len(word.rstrip()) > width:
            lines.append(current.rstrip())
            current = word.lstrip()
        else:
            current += word
        if cell_len(current.rstrip()) > width:
            *full, current = chop_cells(current, width)
            lines.extend(full)
    lines.append(current.rstrip())
    return lines
