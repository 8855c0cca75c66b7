"""The sides of a comparison: speed with its interval, what a step is made of, and accuracy."""

from collections.abc import Callable, Hashable

from decodescope.analyzer.schema.comparison_report import Comparison, SpeedRatio
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    interval_text,
    milliseconds,
    number,
    percent,
    rate,
    ratio_text,
    significant,
)
from decodescope.analyzer.views.sides import Side, sides_of
from decodescope.analyzer.vocabulary.words import verdict_words
from decodescope.tui.model.view import Kind, Moment, View
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.sheet import Empty
from decodescope.tui.panels.table_fields import Field, dim, plain, table_of
from decodescope.tui.panels.table_rows import Cell, Column, Rows
from decodescope.tui.style.palette import Inks

_TITLE = "Speed beside accuracy"
_HINTS: dict[Kind, str] = {
    "live": "c measures the chosen variants in turn; d compares with a file",
    "replay": "nothing is compared yet",
    "trace": "c compares two chosen files; d compares with another file",
}


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


_FIELDS: tuple[Field[Side], ...] = (
    Field(Column("side", "left", first="up", flexible=True, least=10), lambda s: s.name, _name),
    Field(Column("tok/s"), lambda s: 0.0 if s.interpreted else s.tokens_per_s, _rate),
    Field(Column("95 % interval", priority=8), lambda s: s.interval and s.interval.low,
           dim(lambda s: interval_text(s.interval, significant))),
    Field(Column("ratio"), lambda s: s.ratio and s.ratio.value,
           _judged(lambda ratio: ratio_text(ratio.value))),
    Field(Column("95 % of it", priority=2),
           lambda s: s.ratio and s.ratio.interval and s.ratio.interval.low,
           dim(lambda s: interval_text(s.ratio.interval if s.ratio else None, ratio_text))),
    Field(Column("verdict", "left", priority=6), lambda s: s.ratio and s.ratio.verdict,
           _judged(lambda ratio: verdict_words(ratio.verdict))),
    Field(Column("KL", priority=1), lambda s: s.accuracy and s.accuracy.kl,
           plain(lambda s: f"{s.accuracy.kl:.3g}" if s.accuracy else UNKNOWN)),
    Field(Column("top-1 %", priority=7), lambda s: s.accuracy and s.accuracy.top1_agreement,
           plain(lambda s: percent(s.accuracy.top1_agreement if s.accuracy else None))),
    Field(Column("beaten by", "left", priority=4),
           lambda s: None if s.beaten_by is None else _beaten(s),
           lambda s, inks: Cell(_beaten(s), inks.good if s.beaten_by == () else inks.dim)),
    Field(Column("ms/step", priority=3), lambda s: s.step_ns,
           plain(lambda s: milliseconds(s.step_ns))),
    Field(Column("launches", priority=9), lambda s: s.launches,
           plain(lambda s: number(s.launches))),
    Field(Column("ops", priority=11), lambda s: s.gpu_ops, plain(lambda s: number(s.gpu_ops))),
    Field(Column("idle %", priority=5), lambda s: s.idle, plain(lambda s: percent(s.idle))),
    Field(Column("MBU %", priority=10), lambda s: s.mbu, plain(lambda s: percent(s.mbu))),
    Field(Column("rounds", priority=12), lambda s: s.rounds, plain(lambda s: f"{s.rounds}")),
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
        return table_of(_FIELDS, sides, _key, _text)

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
