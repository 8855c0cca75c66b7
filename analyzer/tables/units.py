"""How figures are written: a text for each, and a symbol for the heading of their column."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.text import formatting
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.vocabulary.words import exact_change, exact_microseconds


@dataclass(frozen=True, slots=True)
class Unit:
    """`text` writes one figure, None as unknown. `symbol` stands in the heading, for all figures of
    a column. Numbers are aligned on the right, and sorted with the largest first."""

    text: Callable[[Any], str]
    symbol: str = ""
    number: bool = True


def _known(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """`text`, with a dash for None."""
    return lambda figure: UNKNOWN if figure is None else text(figure)


def _signed_microseconds(ns: float) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return sign + formatting.microseconds(abs(ns))


def _per_second(bytes_per_s: float) -> str:
    return f"{formatting.bytes_size(bytes_per_s)}/s"


TEXT = Unit(_known(str), number=False)
PLACE = Unit(_known(str))
COUNT = Unit(formatting.count)
NUMBER = Unit(formatting.number)
PERCENT = Unit(formatting.percent, "%")
RATIO = Unit(_known(formatting.ratio_text))
DURATION = Unit(formatting.duration)
SIGNED_DURATION = Unit(formatting.signed_duration)
MILLISECONDS = Unit(formatting.milliseconds, "ms")
MICROSECONDS = Unit(formatting.microseconds, "µs")
SIGNED_MICROSECONDS = Unit(_known(_signed_microseconds), "µs")
EXACT_MICROSECONDS = Unit(exact_microseconds, "µs")
EXACT_CHANGE = Unit(_known(exact_change), "µs")
BYTES = Unit(formatting.bytes_size)
BYTES_PER_S = Unit(_known(_per_second))
GIGABYTES_PER_S = Unit(_known(lambda figure: formatting.significant(figure / 1e9)), "GB/s")
FLOPS_PER_S = Unit(_known(formatting.flops_rate))
RATE = Unit(formatting.rate)
EXTENT = Unit(formatting.extent_text, number=False)
