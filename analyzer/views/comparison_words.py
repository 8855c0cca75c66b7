"""Ratios, intervals, changes, verdicts and parts of a step as text, the same in every output."""

from decodescope.analyzer.schema.comparison_report import Change, ChangeVerdict, Interval
from decodescope.analyzer.views.formatting import UNKNOWN, significant

VERDICT_WORDS: dict[ChangeVerdict, str] = {
    "faster": "faster",
    "slower": "slower",
    "no_difference_shown": "no difference shown",
    "unknown": "unknown",
}

_PART_WORDS = {
    "limit": "limit: bytes ÷ peak",
    "kernel_inefficiency": "kernels over the limit",
    "busy": "busy (no peak known)",
    "host_tail": "host tail",
}


def ratio_text(ratio: float) -> str:
    """A ratio with three decimals, so that one of 1.004 is no 1.00; fewer from ten on."""
    return f"x{significant(ratio)}" if ratio >= 9.9995 else f"x{ratio:.3f}"


def ratio_interval_text(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    return f"{ratio_text(interval.low)} to {ratio_text(interval.high)}"


def rate_interval_text(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    return f"{significant(interval.low)} to {significant(interval.high)}"


def change_text(change: Change) -> str:
    """How far `other` is from `base`: per cent up to a factor of three, the factor beyond; "new" or
    "gone" where one side has nothing."""
    base, other = change.base, change.other
    if base is None or other is None:
        return UNKNOWN
    if base == other:
        return "same"
    if base <= 0 or other <= 0:
        return "new" if other > 0 else "gone"
    ratio = other / base
    if ratio >= 3:
        return f"x{significant(ratio)}"
    if ratio <= 1 / 3:
        return f"÷{significant(1 / ratio)}"
    return f"{(ratio - 1) * 100:+.1f} %"


def part_words(part: str) -> str:
    """A part of the waterfall in words."""
    return _PART_WORDS.get(part, f"idle: {part}")
