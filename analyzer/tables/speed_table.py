"""The ratio of tokens/s of each pair of variants, or of two traces."""

from collections.abc import Sequence

from decodescope.analyzer.schema.comparison_report import Pair
from decodescope.analyzer.tables.columns import RATIO, TEXT, Column, Table
from decodescope.analyzer.text.formatting import interval_text, ratio_text
from decodescope.analyzer.vocabulary.words import verdict_words


def speed_table(pairs: Sequence[Pair]) -> Table[Pair]:
    """One row for each pair."""
    return Table("pairs", _COLUMNS, pairs, key=lambda pair: (pair.base, pair.other))


def _interval(pair: Pair) -> str:
    return interval_text(pair.speed.interval if pair.speed is not None else None, ratio_text)


def _verdict(pair: Pair) -> str:
    return verdict_words("unknown" if pair.speed is None else pair.speed.verdict)


_COLUMNS: tuple[Column[Pair], ...] = (
    Column(
        "pair",
        "other ÷ base",
        TEXT,
        "The two sides.",
        lambda pair: f"{pair.other} ÷ {pair.base}",
    ),
    Column(
        "speed.value",
        "ratio",
        RATIO,
        "tokens/s of the other side ÷ those of the base.",
        always=True,
    ),
    Column(
        "speed.interval",
        "95 % interval",
        RATIO,
        "A bootstrap interval over the rounds.",
        text=_interval,
        always=True,
    ),
    Column(
        "speed.verdict", "verdict", TEXT, "What the interval shows.", text=_verdict, always=True
    ),
)
