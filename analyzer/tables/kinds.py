"""The kinds of columns: how they write a figure, and how they are laid out."""

from collections.abc import Callable
from functools import partial
from typing import Any

from decodescope.analyzer.tables.columns import Column
from decodescope.analyzer.text import formatting
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.vocabulary.words import whole_change, whole_microseconds


def known(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """`text`, with a dash for None."""
    return lambda figure: UNKNOWN if figure is None else text(figure)


def _signed_microseconds(ns: float) -> str:
    sign = "+" if ns > 0 else "-" if ns < 0 else ""
    return sign + formatting.microseconds(abs(ns))


TEXT = partial(Column, known(str), number=False, first="up")
PLACE = partial(Column, known(str), first="up")
COUNT = partial(Column, formatting.count)
NUMBER = partial(Column, formatting.number)
PERCENT = partial(Column, formatting.percent, symbol="%")
RATIO = partial(Column, known(formatting.ratio_text))
DURATION = partial(Column, formatting.duration)
SIGNED_DURATION = partial(Column, formatting.signed_duration)
MILLISECONDS = partial(Column, formatting.milliseconds, symbol="ms")
MICROSECONDS = partial(Column, formatting.microseconds, symbol="µs")
SIGNED_MICROSECONDS = partial(Column, known(_signed_microseconds), symbol="µs")
WHOLE_MICROSECONDS = partial(Column, whole_microseconds, symbol="µs")
WHOLE_CHANGE = partial(Column, known(whole_change), symbol="µs")
BYTES = partial(Column, formatting.bytes_size)
BYTES_PER_S = partial(Column, known(lambda figure: f"{formatting.bytes_size(figure)}/s"))
GIGABYTES_PER_S = partial(
    Column, known(lambda figure: formatting.significant(figure / 1e9)), symbol="GB/s"
)
FLOPS_PER_S = partial(Column, known(formatting.flops_rate))
RATE = partial(Column, formatting.rate)
EXTENT = partial(Column, formatting.extent_text, number=False)
# Texts that take the room which the figures leave: words, sentences, and names from code.
NAME = partial(Column, known(str), number=False, first="up", flexible=True, least=10)
PROSE = partial(Column, known(str), number=False, first="up", flexible=True, least=24, wrap=True)
RANGE = partial(Column, known(str), number=False, first="up", flexible=True, least=14, code=True)
CODE = partial(Column, known(str), number=False, first="up", code=True)
