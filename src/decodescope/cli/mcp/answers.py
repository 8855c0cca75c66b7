"""The text of an answer: JSON or lines, never more than a model should have to read at once.

A token is counted as three bytes of UTF-8: English prose has four, figures and names about three.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.text.plain import plain_line

MOST_TOKENS, TOKEN_BYTES = 2_000, 3
ANSWER_BYTES = MOST_TOKENS * TOKEN_BYTES - 100
# No row is shorter than a sixtieth of an answer.
MOST_ROWS = 60
NAME_BYTES, SENTENCE_BYTES = 120, 300
_MOST_ITEMS, _MOST_FINDINGS = 12, 3

Figures = dict[str, Any]


def figures_of(struct: msgspec.Struct, *names: str) -> Figures:
    """Fields of a structure as its JSON has them, all without `names`; what is null or empty is
    left out. Strings are made plain, and they and lists are cut."""
    chosen = names or struct.__struct_fields__
    values = ((name, getattr(struct, name)) for name in chosen)
    shown = ((name, cut(msgspec.to_builtins(value))) for name, value in values)
    return {name: value for name, value in shown if _says(value)}


def _says(value: object) -> bool:
    return value not in (None, "", [], {})


def cut(value: Any) -> Any:
    """Built-in values with short plain strings, and with the first items of lists and objects."""
    if isinstance(value, str):
        return cut_text(value, NAME_BYTES)
    if isinstance(value, dict):
        items = list(value.items())[:_MOST_ITEMS]
        return {cut(key): cut(each) for key, each in items if _says(each)}
    if isinstance(value, list | tuple):
        return [cut(each) for each in value[:_MOST_ITEMS]]
    return value


def cut_text(text: str, most_bytes: int) -> str:
    """`text` as `plain_line` in at most `most_bytes` of UTF-8, with an ellipsis at the cut."""
    text = plain_line(text)
    data = text.encode(errors="replace")
    if len(data) <= most_bytes:
        return text
    return data[: most_bytes - 3].decode(errors="ignore") + "…"


def findings_of(findings: Sequence[Finding]) -> Figures:
    """The first findings, and how many there are if not all are shown."""
    if not findings:
        return {}
    shown = [cut_text(finding.message, SENTENCE_BYTES) for finding in findings[:_MOST_FINDINGS]]
    more = {"findings_total": len(findings)} if len(findings) > len(shown) else {}
    return {"findings": shown} | more


def page(head: Figures, key: str, rows: Iterable[Figures], offset: int, total: int) -> str:
    """JSON: `head`, and under `key` as many of the rows as fit, which begin with number `offset` of
    `total`; `next_offset` if some are left.

    Raises:
        InputError: no row has that number.
    """
    check_offset(offset, total, key)
    more = {"total": total, "next_offset": total}
    room = ANSWER_BYTES - len(_json(head | {key: []} | more))
    shown = list(_fitting(rows, room))
    after = offset + len(shown)
    left = {"next_offset": after} if after < total else {}
    return _json(head | {key: shown, "total": total} | left).decode()


def _fitting(rows: Iterable[Figures], room: int) -> Iterator[Figures]:
    """The first rows that take `room` bytes."""
    for row in rows:
        room -= len(_json(row)) + 1
        if room < 0:
            return
        yield row


def lines_page(head: str, lines: Iterable[str], offset: int, total: int, what: str) -> str:
    """Text: `head`, and as many lines as fit, which begin with number `offset` of `total`; the last
    line says how to ask for the rest.

    Raises:
        InputError: no line has that number.
    """
    check_offset(offset, total, what)
    room = ANSWER_BYTES - len(head.encode()) - NAME_BYTES
    shown = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        shown.append(line)
    after = offset + len(shown)
    if after < total:
        shown.append(f"{total - after} more {what}: offset {after}")
    return "\n".join((head, *shown))


def check_offset(offset: int, total: int, what: str) -> None:
    if offset and offset >= total:
        raise InputError(f"offset {offset}: there are {total} {what}; give a smaller one")


def bounded(text: str) -> str:
    """`text`, cut if it were longer than an answer may be."""
    data = text.encode(errors="replace")
    if len(data) <= ANSWER_BYTES:
        return text
    return data[: ANSWER_BYTES - 3].decode(errors="ignore") + "…"


def _json(value: object) -> bytes:
    return msgspec.json.encode(value)
