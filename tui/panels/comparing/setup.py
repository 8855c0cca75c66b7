"""What is to be compared, and how far each candidate is."""

from collections.abc import Hashable
from dataclasses import dataclass

from decodescope.analyzer.text.formatting import UNKNOWN, rate
from decodescope.tui.commands import Command
from decodescope.tui.model.candidates import Candidate, comparison_candidates
from decodescope.tui.model.comparing import ComparisonState
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.rank_rows import rank_rows
from decodescope.tui.panels.comparing.table import ComparisonTable
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.sheet import Empty, wrapped
from decodescope.tui.panels.table_rows import Cell, Column, Records, Rows
from decodescope.tui.style.palette import Inks

_FILE_COLUMNS = (
    Column("choose", "left", least=6),
    Column("file", "left", first="up", flexible=True, least=12),
)
_COLUMNS = (
    Column("choose", "left", least=6),
    Column("variant", "left", first="up", flexible=True, least=12),
    Column("runs", priority=1),
    Column("last tok/s", priority=2),
    Column("now", "left", priority=3, least=9),
)


@dataclass(frozen=True, slots=True)
class _Row:
    """A candidate, its complete runs and its last rate, and whether it is measured now."""

    candidate: Candidate
    runs: int
    tokens_per_s: float | None
    now: str


class ComparisonSetupPanel(ComparisonTable):
    """Enter chooses or drops a candidate; the first chosen one is the base. Of merged ranks, the
    files are listed by rank."""

    NAME = "ab_setup"
    _title = "Compare"
    COMMANDS = (
        Command("enter", "enter", "Choose", "Choose the row, or drop it", "choose", 0, "enter"),
        *ComparisonTable.COMMANDS,
    )

    def source(self, view: View, moment: Moment) -> object:
        state = view.comparison
        progress = state.progress.variant if state.progress is not None else ""
        ranks = None if view.window is None else view.window.ranks
        return (
            comparison_candidates(view),
            state.runs,
            progress,
            state.busy,
            state.rounds,
            view.kind,
            ranks,
        )

    def rows(self, view: View, moment: Moment) -> Rows | Empty:
        found, state = comparison_candidates(view), view.comparison
        self._rounds = state.rounds
        self._files = view.kind == "trace"
        if not found:
            return Empty("Compare", _why_none(view))
        ranks = None if view.window is None else view.window.ranks
        by_rank = None if ranks is None else rank_rows(found, ranks)
        self._title = "Compare" if by_rank is None else "Ranks: who waits for whom"
        if by_rank is not None:
            return by_rank
        if self._files:
            return Records(_FILE_COLUMNS, found, _name, _file_cells, _file_values, _name)
        # Nothing can be chosen meanwhile, and the rows below are needed.
        shown = [one for one in found if one.chosen or not state.busy]
        return Records(_COLUMNS, [_row(one, state) for one in shown], _key, _cells, _values, _key)

    def title(self) -> str:
        return self._title

    def note(self) -> str:
        if self._files:
            return "enter chooses two · c compares them"
        return f"{self._rounds} rounds + - · enter chooses · c compares"

    def wanted_rows(self, width: int) -> int | None:
        if isinstance(self._shown, Rows):
            return 1 + len(self._shown)
        return len(wrapped(self._shown.hint, max(width, 1)))

    def opened(self, key: Hashable) -> None:
        self.post_message(AskComparison("toggle", str(key)))


def _why_none(view: View) -> str:
    if view.kind == "replay":
        return "variants are measured in a live run; d compares this recording with another file"
    return "the worker knows the variants, and is still starting; d compares with a file"


def _row(candidate: Candidate, state: ComparisonState) -> _Row:
    runs = [run for run in state.runs if run.variant == candidate.name]
    now, progress = "", state.progress
    if state.busy and progress is not None and progress.variant == candidate.name:
        now = "measuring"
    elif state.busy and candidate.chosen and len(runs) < state.rounds:
        now = "waits"
    return _Row(candidate, len(runs), runs[-1].tokens_per_s if runs else None, now)


def _key(row: _Row) -> str:
    return row.candidate.name


def _name(candidate: Candidate) -> str:
    return candidate.name


def _file_cells(one: Candidate, inks: Inks, room: int) -> tuple[Cell, ...]:
    style = inks.text if one.unavailable is None else inks.faint
    box = UNKNOWN if one.unavailable is not None else "[x]" if one.chosen else "[ ]"
    about = one.unavailable or one.about
    name = f"{one.name}  {about}" if about else one.name
    return Cell(box, inks.key if one.chosen else style), Cell(name, style)


def _file_values(one: Candidate) -> tuple[object, ...]:
    return not one.chosen, one.name


def _cells(row: _Row, inks: Inks, room: int) -> tuple[Cell, ...]:
    return (
        *_file_cells(row.candidate, inks, room),
        Cell(f"{row.runs}" if row.runs else ""),
        Cell(rate(row.tokens_per_s) if row.runs else ""),
        Cell(row.now, inks.accent if row.now == "measuring" else inks.dim),
    )


def _values(row: _Row) -> tuple[object, ...]:
    return *_file_values(row.candidate), row.runs, row.tokens_per_s, row.now
