"""Whole numbers in text and JSON that others wrote, and round ones for axes."""

import math
from typing import TypeGuard

_MAX_DIGITS = 18


def whole_number(text: str) -> int | None:
    """The number that `text` is; None if it is not 1 to 18 decimal digits. `int` raises ValueError
    for more than 4,300."""
    if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return None


def round_step(least: float) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that is at least `least`, which is above 0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value of JSON is an integer; in Python, `true` and `false` are too."""
    return isinstance(value, int) and not isinstance(value, bool)
