"""Whole numbers in text and JSON that others wrote."""

from typing import TypeGuard

_MAX_DIGITS = 18


def whole_number(text: str) -> int | None:
    """The number that `text` is; None if it is not 1 to 18 decimal digits. `int` raises ValueError
    for more than 4,300."""
    if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return None


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value of JSON is an integer; in Python, `true` and `false` are too."""
    return isinstance(value, int) and not isinstance(value, bool)
