"""The sides of a comparison: speed with its interval, figures of a step, and accuracy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from decodescope.analyzer.comparing.sides import Side
from decodescope.analyzer.schema.comparison_report import DiffAnswer, Pair, SpeedRatio
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, Tone
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    accuracy_figure,
    interval_text,
    rate,
    ratio_text,
    significant,
)
from decodescope.analyzer.vocabulary.words import beaten_text, verdict_words


def _small(digits: int) -> Callable[[float | None], str]:
    def text(value: float | None) -> str:
        return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.{digits}g}"

    return text


# A trace is told from the other by the name of its file.
_FILE_CELLS = 24
_SMALL = partial(Column, _small(3))
_PERPLEXITY = partial(Column, _small(4))
_PERPLEXITY_RATIO = partial(Column, kinds.known("{:.4f}".format))


def _scored(column: Column[Side]) -> Column[Side]:
    """A figure of accuracy with its interval."""
    figure = column.key.removeprefix("accuracy.")

    def text(side: Side) -> str:
        scored = side.accuracy
        return UNKNOWN if scored is None else accuracy_figure(scored, figure, column.write)

    return replace(column, text=text)


_VERDICT = partial(Column, kinds.known(verdict_words), number=False)


def sides_table(sides: Sequence[Side]) -> Table[Side]:
    """One row a variant, or a trace of a diff."""
    name, *speed = _SPEED
    if any(side.about for side in sides):
        name = replace(name, least=_FILE_CELLS)
    columns = (name, *speed, *_STEP_RATIO, *_ERROR, *_BEATEN_BY, *_STEP)
    return Table("sides", columns, sides, search=lambda side: f"{side.name} {side.about}")


def speeds_table(sides: Sequence[Side]) -> Table[Side]:
    """tokens/s with their interval, and the figures of a step."""
    return sides_table(sides).only(*(column.key for column in (*_SPEED[:3], *_STEP)))


def accuracy_table(sides: Sequence[Side]) -> Table[Side]:
    """The error of the variants for which it was measured, and the variants that beat them."""
    scored = [side for side in sides if side.accuracy is not None]
    return sides_table(scored).only("name", *(column.key for column in (*_ERROR, *_BEATEN_BY)))


def accuracy_notes(sides: Sequence[Side]) -> list[str]:
    """The reference of the error, and the text it was measured on."""
    accuracies = (side.accuracy for side in sides)
    notes = (
        f"against {accuracy.reference}, {accuracy.positions:,} positions of {accuracy.text}"
        for accuracy in accuracies
        if accuracy is not None
    )
    return list(dict.fromkeys(notes))


def _ratio_interval(ratio: SpeedRatio | DiffAnswer | None) -> str:
    return interval_text(None if ratio is None else ratio.interval, ratio_text)


def _ratio_columns(key: str, title: str) -> tuple[Column[Side], ...]:
    """A ratio with its interval and its verdict: those of `key`, a figure of a side."""
    ratio_of = attrgetter(key)

    def tone(side: Side) -> Tone:
        """A clear difference stands out; the verdict says it in words."""
        ratio = ratio_of(side)
        clear: dict[str, Tone] = {"faster": "good", "slower": "bad"}
        return "dim" if ratio is None else clear.get(ratio.verdict, "plain")

    value = f"{key}.value" if key == "ratio" else f"{key}.ratio"
    return (
        kinds.RATIO(key, title, value, tone=tone),
        kinds.RATIO(
            f"{key}.interval",
            "95 % of ratio",
            f"{key}.interval.low",
            text=lambda side: _ratio_interval(ratio_of(side)),
            priority=2,
            tone="dim",
        ),
        _VERDICT(f"{key}.verdict", "verdict", priority=6, tone=tone),
    )


_SPEED: tuple[Column[Side], ...] = (
    kinds.NAME(
        "name",
        "variant",
        text=lambda side: f"{side.name}  {side.about}" if side.about else side.name,
        tone="strong",
    ),
    kinds.RATE(
        "tokens_per_s",
        "tokens/s",
        lambda side: 0.0 if side.interpreted else side.tokens_per_s,
        text=lambda side: "interpreted" if side.interpreted else rate(side.tokens_per_s),
        tone="strong",
    ),
    kinds.RATE(
        "interval",
        "95 % interval",
        "interval.low",
        text=lambda side: interval_text(side.interval, significant),
        priority=8,
        tone="dim",
    ),
    *_ratio_columns("ratio", "ratio"),
)
_STEP_RATIO = _ratio_columns("answer", "step ratio")
_ERROR: tuple[Column[Side], ...] = (
    _SMALL("accuracy.logit_rel_error", "logit error", priority=14),
    _scored(_SMALL("accuracy.kl", "KL, nats", priority=1)),
    _scored(kinds.PERCENT("accuracy.top1_agreement", "top-1", priority=7)),
    _PERPLEXITY("accuracy.perplexity", "perplexity", priority=15),
    _scored(_PERPLEXITY_RATIO("accuracy.perplexity_ratio", "perplexity ratio", priority=16)),
)
_BEATEN_BY: tuple[Column[Side], ...] = (
    Column(
        beaten_text,
        "beaten_by",
        "beaten by",
        priority=4,
        number=False,
        tone=lambda side: "good" if side.beaten_by == () else "dim",
    ),
)
_STEP: tuple[Column[Side], ...] = (
    kinds.MILLISECONDS("step_ns", "step", priority=3),
    kinds.RATE("live.tokens_per_s", "live tokens/s", priority=3),
    kinds.MILLISECONDS("live.step_p50_ns", "p50", priority=3),
    kinds.MILLISECONDS("live.step_p99_ns", "p99", priority=9),
    kinds.NUMBER("launches", "launches", priority=9),
    kinds.NUMBER("gpu_ops", "GPU ops", priority=11),
    kinds.PERCENT("idle", "idle", priority=5),
    kinds.PERCENT("mbu", "MBU", priority=10),
    kinds.COUNT("rounds", "rounds", priority=12),
)


def speed_table(pairs: Sequence[Pair]) -> Table[Pair]:
    columns: tuple[Column[Pair], ...] = (
        kinds.TEXT("pair", "other ÷ base", lambda pair: f"{pair.other} ÷ {pair.base}"),
        kinds.RATIO("speed.value", "ratio", always=True),
        kinds.RATIO(
            "speed.interval",
            "95 % interval",
            text=lambda pair: _ratio_interval(pair.speed),
            always=True,
        ),
        kinds.TEXT(
            "speed.verdict",
            "verdict",
            text=lambda pair: verdict_words(pair.speed.verdict if pair.speed else "unknown"),
            always=True,
        ),
    )
    return Table("pairs", columns, pairs, key=lambda pair: (pair.base, pair.other))
