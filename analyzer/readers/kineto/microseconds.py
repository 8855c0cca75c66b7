"""Exact conversion of JSON numbers in microseconds to integer nanoseconds.

A float64 of an absolute time such as 1661938466265032.123 µs has a spacing of 0.25 µs, so the
digits are never passed through a float.
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import msgspec
import numpy as np

from decodescope.analyzer.readers.columns import LIMIT_NS
from decodescope.analyzer.trace import Bools, Int64s

_PLAIN = b"0123456789.,"
_MAX_INTEGER_DIGITS = 16


def to_nanoseconds(numbers: Sequence[msgspec.Raw]) -> tuple[Int64s, Bools]:
    """Nanoseconds of JSON number literals in µs, and which of them are usable.

    Literals are unusable if they are not finite numbers (NaN, null, text) or are beyond ±2**61 ns;
    their nanoseconds are 0. More than three decimals are rounded half to even.
    """
    fast = _fixed_point(b",".join(numbers))
    if fast is not None and len(fast) == len(numbers):
        within = np.abs(fast) <= LIMIT_NS
        return np.where(within, fast, 0), within
    slow = [_one(bytes(number)) for number in numbers]
    usable = np.array([value is not None for value in slow], dtype=np.bool_)
    return np.array([value or 0 for value in slow], dtype=np.int64), usable


def _fixed_point(text: bytes) -> Int64s | None:
    """Comma-joined plain decimals with at most three places, or None if one is anything else."""
    if not text or text.translate(None, _PLAIN):
        return None
    characters = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(characters == ord(",")), len(text))
    dots = np.flatnonzero(characters == ord("."))
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots_before = np.searchsorted(dots, ends)
    dots_inside = np.diff(dots_before, prepend=0)
    lengths = ends - starts
    if dots_inside.max() > 1 or (lengths - dots_inside).min() < 1:
        return None
    decimals = np.zeros(len(ends), dtype=np.int64)
    has_dot = dots_inside == 1
    decimals[has_dot] = (ends - 1)[has_dot] - dots[dots_before[has_dot] - 1]
    integer_digits = lengths - dots_inside - decimals
    widest = integer_digits == _MAX_INTEGER_DIGITS
    if (
        decimals.max() > 3
        or integer_digits.max() > _MAX_INTEGER_DIGITS
        or (characters[starts[widest]] > ord("2")).any()
    ):
        return None
    digits = np.fromstring(text.translate(None, b"."), dtype=np.int64, sep=",")
    if len(digits) != len(ends):
        return None
    return np.asarray(digits * 10 ** (3 - decimals), dtype=np.int64)


def _one(literal: bytes) -> int | None:
    try:
        value = Decimal(literal.strip(b'" \t\r\n').decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not value.is_finite() or value.adjusted() > 20:
        return None
    if value.adjusted() < -12:
        return 0
    nanoseconds = int((value * 1000).to_integral_value(rounding=ROUND_HALF_EVEN))
    return nanoseconds if abs(nanoseconds) <= LIMIT_NS else None
