"""Figures as text. Unknown is a dash, never a zero; every number keeps three significant digits."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.analyzer.schema.report import SamplingSettings
    from decodescope.analyzer.schema.run_report import Accuracy, Interval
from decodescope.analyzer.text.plain import plain_line

UNKNOWN = "\u2013"

_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"))
TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


def significant(value: float) -> str:
    """`value` >= 0 with three significant digits, or all its integer digits, grouped."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def number(value: float | None) -> str:
    """A rate or an average; a whole number has no decimals."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == int(value):
        return f"{int(value):,}"
    return significant(value)


def rate(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return significant(value)


def count(value: int | None, cells: int = 12) -> str:
    """A count with grouped digits, or in M, G, T if that takes more than `cells` cells."""
    if value is None:
        return UNKNOWN
    plain = f"{value:,}"
    if len(plain) <= cells:
        return plain
    for factor, unit in _SI:
        if abs(value) >= factor:
            return f"{value / factor:.2f}{unit}"
    return plain


def counted(number: int, noun: str) -> str:
    """`1 step`, `9 steps`."""
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def percent(fraction: float | None) -> str:
    """A fraction in per cent without the sign, with one decimal; never rounded to 0 or 100."""
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    value = fraction * 100
    if 0 < value < 0.05:
        return "<0.1"
    if 99.95 <= value < 100:
        return ">99.9"
    return f"{value:.1f}"


def ratio_text(ratio: float) -> str:
    """A ratio with three decimals, so that 1.004 is not shown as 1.00; fewer from ten on."""
    return f"x{significant(ratio)}" if ratio >= 9.9995 else f"x{ratio:.3f}"


def interval_text(interval: "Interval | None", text: Callable[[float], str]) -> str:
    """Both ends of an interval, each written by `text`."""
    return UNKNOWN if interval is None else f"{text(interval.low)} to {text(interval.high)}"


def accuracy_figure(accuracy: "Accuracy", figure: str, text: Callable[[float], str]) -> str:
    """A figure of `accuracy`, written by `text`, with its interval or "too few positions"; alone
    where no interval was recorded."""
    value = text(getattr(accuracy, figure))
    if figure in accuracy.positions_needed:
        return f"{value} (too few positions)"
    interval: Interval | None = getattr(accuracy, f"{figure}_interval")
    return value if interval is None else f"{value} ({interval_text(interval, text)})"


def milliseconds(ns: float | None) -> str:
    """Nanoseconds as a number of milliseconds, without the unit."""
    if ns is None:
        return UNKNOWN
    ms = ns / 1e6
    return f"{ms:.3f}" if 0 < ms < 0.995 else significant(ms)


def microseconds(ns: float | None) -> str:
    """Nanoseconds as a number of microseconds, without the unit."""
    return UNKNOWN if ns is None else significant(ns / 1e3)


def duration(ns: float | None) -> str:
    """Nanoseconds in the unit that keeps the number between 1 and 999."""
    if ns is None:
        return UNKNOWN
    for factor, unit in TIME_UNITS[:-1]:
        if ns >= factor * 0.9995:
            return f"{significant(ns / factor)} {unit}"
    return f"{ns:.0f} ns"


def signed_duration(ns: float | None) -> str:
    return f"-{duration(-ns)}" if ns is not None and ns < 0 else duration(ns)


def signed_change(ns: float) -> str:
    """A change of a duration, with its sign."""
    return f"+{duration(ns)}" if ns > 0 else signed_duration(ns)


def age(seconds: float | None) -> str:
    """An age: tenths below ten seconds, then whole seconds, minutes, hours."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def position(ns: float) -> str:
    """A place in a recording: `1:02.5` in minutes, `2:01:02.5` from an hour on."""
    tenths = int(ns // 100_000_000)
    minutes, tenths = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{tenths // 10:02d}.{tenths % 10}"
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes}:{seconds}"


def flops_rate(flops_per_s: float) -> str:
    """FLOP/s in tera, giga or mega."""
    for factor, unit in ((1e12, "T"), (1e9, "G")):
        if flops_per_s >= factor:
            return f"{significant(flops_per_s / factor)} {unit}FLOP/s"
    return f"{significant(flops_per_s / 1e6)} MFLOP/s"


def shorten(text: str, cells: int) -> str:
    """`text` as `plain_line`, cut to at most `cells` characters, with an ellipsis at the cut."""
    text = plain_line(text)
    if len(text) <= cells:
        return text
    return text[: cells - 1] + "…" if cells > 0 else ""


def weights_note(weights: str) -> str:
    """The note after a model's name; random weights must not pass for trained ones."""
    return {"random": "random weights", "bundled": "bundled weights"}.get(weights, "")


def sampling_words(sampling: "SamplingSettings | None") -> str:
    return ", ".join(sampling_facts(sampling)) or "greedy"


def sampling_facts(sampling: "SamplingSettings | None") -> tuple[str, ...]:
    """The sampling settings, the temperature first; nothing if decoding is greedy."""
    if sampling is None:
        return ()
    filters = (("top-k", sampling.top_k), ("top-p", sampling.top_p))
    named = [f"{name} {value}" for name, value in filters if value is not None]
    return (f"temperature {sampling.temperature:g}", *named, f"seed {sampling.seed}")


def parallel_words(tp: int, ep: bool) -> str:
    """How a model is split over several ranks."""
    return f"TP {tp} + EP" if ep else f"TP {tp}"


def extent_text(sizes: tuple[int, int, int] | None) -> str:
    """A grid or a block along x, y and z."""
    return UNKNOWN if sizes is None else "x".join(map(str, sizes))


def bytes_size(value: float | None) -> str:
    """Bytes in decimal units (GB = 1e9), as for bandwidths."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{significant(value / factor)} {unit}"
    return f"{value:.0f} B"
