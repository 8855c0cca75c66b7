"""Strings from outside, such as names in a trace or a model's text, as they are shown.

A name may hold an escape sequence that sets a terminal's title, a character that reverses the rest
of its line, or a new line that looks like the next row of a table. What is not printable is
therefore written as in Python: `\\x1b`, `\\u202e`, `\\n`. JSON has every string as it is: its own
escapes are exact.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from msgspec import Struct, structs
from rich.cells import cell_len

T = TypeVar("T")

_NOT_ASCII = re.compile(r"[^ -~]")
_JOINERS = "\u200c\u200d"
# The fields that hold several lines of text; all others are names and sentences.
_TEXTS = frozenset({"output_text", "refusal"})
_FIGURES = (int, float, type(None))
# For terminals and files that cannot hold every Unicode character.
_FROM = (
    "\u2013\u2014\u2212…·•µ\u00d7±▸▾▶◂●○■◆▲▼→←↑↓✓✕⚠┆▁▂▃▄▅▆▇█▔▏▎▍▌▋▊▉▐░"
    "\u2018\u2019\u201c\u201d\u00a0≤≥≈÷\u00b0"
)
_TO = "---~|*ux~>v><*o#*^v><^vvx!:.:-=+*%@-||||||||.''\"\" <>~/'"
_TO_ASCII = str.maketrans(_FROM, _TO)


def plain_line(text: str) -> str:
    """`text` on one line, with escapes for what is not printable.

    Printable text is returned as it is, and every kind of space becomes a space. A zero-width
    joiner stays between printable characters beyond ASCII: Persian words and some emoji need it. A
    byte of a file name that is not UTF-8, a lone surrogate in Python, is written as that byte.
    """
    return text if text.isprintable() else _NOT_ASCII.sub(_shown, text)


def plain_text(text: str) -> str:
    """The lines of `text`, each as `plain_line`, with spaces for tabs."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(plain_line, lines))


def plain(value: T) -> T:
    """`value` with `plain_line` of every string in it, and `plain_text` of texts in lines.

    Looks into structs, dataclasses, tuples, lists and dictionaries.
    """
    return cast(T, _plain(value))


def plain_json(data: bytes) -> bytes:
    """JSON on one line with its own escapes for what is not printable; it decodes to the same."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return _NOT_ASCII.sub(_json_shown, data.decode()).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, _FIGURES):
        return value
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, Struct):
        changes = _changes(value, value.__struct_fields__)
        return structs.replace(value, **changes) if changes else value
    if dataclasses.is_dataclass(value):
        changes = _changes(value, (field.name for field in dataclasses.fields(value)))
        return dataclasses.replace(cast(Any, value), **changes) if changes else value
    if isinstance(value, dict):
        return {_plain(key): _plain(value) for key, value in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value


def _changes(value: object, names: Iterable[str]) -> dict[str, Any]:
    changes = {}
    for name in names:
        before = getattr(value, name)
        after = plain_text(before) if name in _TEXTS and before else _plain(before)
        if after is not before and after != before:
            changes[name] = after
    return changes


def _shown(match: re.Match[str]) -> str:
    character, text, place = match[0], match.string, match.start()
    if character.isprintable():
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    if character in _JOINERS and all(
        neighbour > "\x7f" and neighbour.isprintable()
        for neighbour in (text[place - 1 : place], text[place + 1 : place + 2])
    ):
        return character
    if "\udc80" <= character <= "\udcff":
        character = chr(ord(character) - 0xDC00)
    return character.encode("unicode_escape").decode()


def _json_shown(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def to_ascii(text: str) -> str:
    """`text` in ASCII, with the same number of terminal cells."""
    if text.isascii():
        return text
    return "".join(_fallback(char) for char in text.translate(_TO_ASCII))


def _fallback(char: str) -> str:
    if char < "\x80":
        return char
    if "\u2500" <= char <= "\u257f":
        return "-" if char in "─━╌╍┄┅┈┉═╴╶╸╺" else "|" if char in "│┃╎╏┆┇┊┋║╵╷╹╻" else "+"
    return "?" * cell_len(char)
