"""The sides of a comparison: speed with its interval, what a step is made of, and accuracy."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from decodescope.analyzer.formatting import (
    UNKNOWN,
    interval_text,
    milliseconds,
    number,
    percent,
    rate,
    ratio_text,
    significant,
)
from decodescope.analyzer.schema.comparison_report import Comparison, SpeedRatio
from decodescope.analyzer.views.sides import Side, sides_of
from decodescope.analyzer.views.words import verdict_words
from decodescope.tui.model.view import Kind, Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.panel import Empty
from decodescope.tui.panels.table_rows import Cell, Column, Records, Rows
from decodescope.tui.style.palette import Inks

_TITLE = "Speed beside accuracy"
_HINTS: dict[Kind, str] = {
    "live": "c measures the chosen variants in turn; d compares with a file",
    "replay": "nothing is compared yet",
    "trace": "c compares two chosen files; d compares with another file",
}


@dataclass(frozen=True, slots=True)
class _Field:
    """A column: the figure of a side that it is sorted by, and the cell that shows it."""

    column: Column
    value: Callable[[Side], object]
    cell: Callable[[Side, Inks], Cell]


def _plain(text: Callable[[Side], str]) -> Callable[[Side, Inks], Cell]:
    return lambda side, inks: Cell(text(side))


def _dim(text: Callable[[Side], str]) -> Callable[[Side, Inks], Cell]:
    return lambda side, inks: Cell(text(side), inks.dim)


def _judged(text: Callable[[SpeedRatio], str]) -> Callable[[Side, Inks], Cell]:
    """A text of the ratio; a clear difference has a colour, and the verdict says it."""

    def cell(side: Side, inks: Inks) -> Cell:
        if side.ratio is None:
            return Cell(UNKNOWN, inks.dim)
        styles = {"faster": inks.good, "slower": inks.bad}
        return Cell(text(side.ratio), styles.get(side.ratio.verdict, inks.text))

    return cell


def _name(side: Side, inks: Inks) -> Cell:
    return Cell(f"{side.name}  {side.about}" if side.about else side.name, inks.strong)


def _rate(side: Side, inks: Inks) -> Cell:
    return Cell("interpreted" if side.interpreted else rate(side.tokens_per_s), inks.strong)


def _beaten(side: Side) -> str:
    if side.beaten_by is None:
        return UNKNOWN
    first, *more = side.beaten_by or ("nothing",)
    return f"{first} +{len(more)}" if more else first


_FIELDS = (
    _Field(Column("side", "left", first="up", flexible=True, least=10), lambda s: s.name, _name),
    _Field(Column("tok/s"), lambda s: 0.0 if s.interpreted else s.tokens_per_s, _rate),
    _Field(Column("95 % interval", priority=8), lambda s: s.interval and s.interval.low,
           _dim(lambda s: interval_text(s.interval, significant))),
    _Field(Column("ratio"), lambda s: s.ratio and s.ratio.value,
           _judged(lambda ratio: ratio_text(ratio.value))),
    _Field(Column("95 % of it", priority=2),
           lambda s: s.ratio and s.ratio.interval and s.ratio.interval.low,
           _dim(lambda s: interval_text(s.ratio.interval if s.ratio else None, ratio_text))),
    _Field(Column("verdict", "left", priority=6), lambda s: s.ratio and s.ratio.verdict,
           _judged(lambda ratio: verdict_words(ratio.verdict))),
    _Field(Column("KL", priority=1), lambda s: s.accuracy and s.accuracy.kl,
           _plain(lambda s: f"{s.accuracy.kl:.3g}" if s.accuracy else UNKNOWN)),
    _Field(Column("top-1 %", priority=7), lambda s: s.accuracy and s.accuracy.top1_agreement,
           _plain(lambda s: percent(s.accuracy.top1_agreement if s.accuracy else None))),
    _Field(Column("beaten by", "left", priority=4),
           lambda s: None if s.beaten_by is None else _beaten(s),
           lambda s, inks: Cell(_beaten(s), inks.good if s.beaten_by == () else inks.dim)),
    _Field(Column("ms/step", priority=3), lambda s: s.step_ns,
           _plain(lambda s: milliseconds(s.step_ns))),
    _Field(Column("launches", priority=9), lambda s: s.launches,
           _plain(lambda s: number(s.launches))),
    _Field(Column("ops", priority=11), lambda s: s.gpu_ops, _plain(lambda s: number(s.gpu_ops))),
    _Field(Column("idle %", priority=5), lambda s: s.idle, _plain(lambda s: percent(s.idle))),
    _Field(Column("MBU %", priority=10), lambda s: s.mbu, _plain(lambda s: percent(s.mbu))),
    _Field(Column("rounds", priority=12), lambda s: s.rounds, _plain(lambda s: f"{s.rounds}")),
)  # fmt: skip


class ComparisonSidesPanel(ComparisonTable):
    """One row a variant, or a trace of a diff; the cursor's row is shown in detail below."""

    NAME = "ab_sides"

    def source(self, view: View, moment: Moment) -> object:
        return view.comparison.result, view.comparison.busy

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        result = view.comparison.result
        if result is None:
            hint = "no round is complete" if view.comparison.busy else _HINTS[view.kind]
            return Empty(_TITLE, hint)
        self._measured = isinstance(result, Comparison)
        self._unfinished = view.comparison.busy
        sides = sides_of(result)
        fields = [one for one in _FIELDS if any(one.value(side) is not None for side in sides)]
        return Records(
            tuple(one.column for one in fields),
            sides,
            _key,
            lambda side, inks, room: tuple(one.cell(side, inks) for one in fields),
            lambda side: tuple(one.value(side) for one in fields),
            _text,
        )

    def title(self) -> str:
        return _TITLE if self._measured else "A and B"

    def note(self) -> str:
        return "of the complete rounds so far" if self._unfinished else ""

    def wanted_rows(self, width: int) -> int | None:
        return 1 + len(self._shown) if isinstance(self._shown, Rows) else 1

    def moved(self, key: Hashable) -> None:
        self.post_message(AskComparison("side", str(key)))


def _key(side: Side) -> str:
    return side.name


def _text(side: Side) -> str:
    return f"{side.name} {side.about}"
