"""Figures of reports and comparisons as short text for a page."""

from decodescope.analyzer.comparison_report import Change, ChangeVerdict, Interval, SpeedRatio
from decodescope.analyzer.formatting import UNKNOWN, duration, percent, significant

MINUS, TIMES = "\u2212", "\u00d7"

_VERDICT_WORDS: dict[ChangeVerdict, str] = {
    "faster": "faster",
    "slower": "slower",
    "no_difference_shown": "no difference shown",
    "unknown": "not known",
}


def verdict_words(verdict: ChangeVerdict) -> str:
    """A verdict on a ratio in words."""
    return _VERDICT_WORDS[verdict]


def bound_words(bound: str) -> str:
    """What bounds a step, in words."""
    named = {"mixed": "mixed", "unknown": "bound unknown"}
    return named.get(bound, f"{bound}-bound")


def ratio_text(speed: SpeedRatio | None) -> str:
    """`x1.24 (95 %: 1.21 to 1.27)`; without an interval the ratio alone."""
    if speed is None:
        return UNKNOWN
    text = f"{TIMES}{speed.value:.3g}" if speed.value < 1000 else f"{TIMES}{speed.value:,.0f}"
    if speed.interval is None:
        return text
    return f"{text} ({interval_text(speed.interval, '.4g')})"


def interval_text(interval: Interval | None, form: str) -> str:
    """`95 %: 1.21 to 1.27`, the ends in the number format `form`."""
    if interval is None:
        return UNKNOWN
    return (
        f"{interval.confidence * 100:g} %: {format(interval.low, form)} to "
        f"{format(interval.high, form)}"
    )


def signed_duration(ns: float | None) -> str:
    """A duration that may be negative."""
    return f"{MINUS}{duration(-ns)}" if ns is not None and ns < 0 else duration(ns)


def flops_rate(flops_per_s: float) -> str:
    """FLOP/s in tera, giga or mega."""
    for factor, unit in ((1e12, "T"), (1e9, "G")):
        if flops_per_s >= factor:
            return f"{significant(flops_per_s / factor)} {unit}FLOP/s"
    return f"{significant(flops_per_s / 1e6)} MFLOP/s"


def share(part: float | None, whole: float | None) -> str:
    """`part` of `whole` in per cent with the sign, a dash where either is missing."""
    if part is None or not whole:
        return UNKNOWN
    return f"{MINUS}{percent(-part / whole)} %" if part < 0 else f"{percent(part / whole)} %"


def change_text(change: Change) -> str:
    """How far `other` is from `base`: per cent up to a factor of three, a factor beyond."""
    base, other = change.base, change.other
    if base is None or other is None:
        return UNKNOWN
    if base == other:
        return "="
    if base <= 0 or other <= 0:
        return "new" if other > 0 else "gone"
    ratio = other / base
    if ratio >= 3:
        return f"{TIMES}{significant(ratio)}"
    if ratio <= 1 / 3:
        return f"÷{significant(1 / ratio)}"
    return f"{'+' if ratio > 1 else MINUS}{percent(abs(ratio - 1))} %"
