"""The candidates of a comparison, and how far each candidate is."""

from collections.abc import Hashable
from operator import attrgetter

from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, Tone
from decodescope.analyzer.tables.waiting_table import waiting_table
from decodescope.analyzer.text.formatting import UNKNOWN, rate
from decodescope.tui.commands import commands_of
from decodescope.tui.model.candidates import Candidate, comparison_candidates, rank_files
from decodescope.tui.model.comparing import ComparisonState
from decodescope.tui.model.view import View
from decodescope.tui.panels.comparing.tables import ComparisonTable
from decodescope.tui.panels.messages import AskComparison
from decodescope.tui.panels.sheet import Empty, wrapped
from decodescope.tui.panels.table_rows import Rows, TableRows

_TITLE = "Compare"


class ComparisonSetupPanel(ComparisonTable):
    """Enter chooses or drops a variant, or puts a file on a side; `c` compares, without a file on B
    with that at the cursor. Of merged ranks, the files are listed by rank."""

    NAME = "ab_setup"
    COMMANDS = commands_of("ab_setup", "comparison", "rows")

    def source(self, view: View) -> object:
        state = view.comparison
        progress = state.progress.variant if state.progress is not None else ""
        ranks = None if view.window is None else view.window.ranks
        measured = (state.runs, progress, state.busy, state.rounds)
        return comparison_candidates(view), measured, view.kind, ranks

    def rows(self, view: View) -> Rows | Empty:
        candidates, state = comparison_candidates(view), view.comparison
        self._title = _TITLE
        self._note = "c compares A with B, or with the row · enter: the side"
        if not candidates:
            return Empty(_TITLE, _why_none(view))
        ranks = None if view.window is None else view.window.ranks
        if ranks is not None and (files := rank_files(candidates, ranks)):
            self._title = "Ranks: who waits for whom"
            return TableRows(waiting_table(ranks.communication, files))
        are_files = view.kind != "live"
        if not are_files:
            self._note = f"{state.rounds} rounds + - · enter chooses · c compares"
            # Nothing can be chosen meanwhile, and the rows below are needed.
            candidates = tuple(each for each in candidates if each.side or not state.busy)
        noun = "file" if are_files else "variant"
        columns = (*_candidate_columns(noun), *(() if are_files else _run_columns(state)))
        search, key = attrgetter("name"), attrgetter("key")
        return TableRows(Table(f"{noun}s", columns, candidates, key=key, search=search))

    def wanted_rows(self, width: int) -> int | None:
        if isinstance(self._shown, Empty):
            return len(wrapped(self._shown.hint, max(width, 1)))
        return super().wanted_rows(width)

    def action_start(self) -> None:
        self.post_message(AskComparison("start", str(self._cursor_key)))

    def opened(self, key: Hashable) -> None:
        self.post_message(AskComparison("toggle", str(key)))


def _why_none(view: View) -> str:
    if view.kind != "live":
        return "looking for files to compare\u2026"
    return "the worker knows the variants, and is still starting; d compares with a file"


def _about(candidate: Candidate) -> str:
    about = candidate.unavailable or candidate.about
    return f"{candidate.name}  {about}" if about else candidate.name


def _dull(candidate: Candidate) -> Tone:
    return "plain" if candidate.unavailable is None else "faint"


def _candidate_columns(noun: str) -> tuple[Column[Candidate], ...]:
    return (
        kinds.TEXT(
            "chosen",
            "choose",
            lambda candidate: candidate.side,
            text=lambda each: f"[{each.side or ' '}]" if each.unavailable is None else UNKNOWN,
            first="down",
            least=6,
            tone=lambda candidate: "key" if candidate.side else _dull(candidate),
        ),
        kinds.NAME(
            "name",
            noun,
            text=_about,
            fit=lambda candidate, cells: _about(candidate),
            least=12,
            tone=_dull,
        ),
    )


def _run_columns(state: ComparisonState) -> tuple[Column[Candidate], ...]:
    """The complete runs of a candidate, its last rate, and whether it is measured now."""

    def runs(candidate: Candidate) -> list[RunReport]:
        return [run for run in state.runs if run.variant == candidate.name]

    def last_rate(candidate: Candidate) -> float | None:
        return next((run.tokens_per_s for run in reversed(runs(candidate))), None)

    def now(candidate: Candidate) -> str:
        if state.busy and state.progress and state.progress.variant == candidate.name:
            return "measuring"
        waits = state.busy and candidate.side and len(runs(candidate)) < state.rounds
        return "waits" if waits else ""

    return (
        kinds.COUNT(
            "runs",
            "runs",
            lambda candidate: len(runs(candidate)),
            text=lambda candidate: f"{len(runs(candidate)) or ''}",
            priority=1,
        ),
        kinds.RATE(
            "tokens_per_s",
            "last tokens/s",
            last_rate,
            text=lambda candidate: rate(last_rate(candidate)) if runs(candidate) else "",
            priority=2,
            always=True,
        ),
        kinds.TEXT(
            "now",
            "now",
            now,
            first="down",
            priority=3,
            least=9,
            tone=lambda candidate: "accent" if now(candidate) == "measuring" else "dim",
        ),
    )
