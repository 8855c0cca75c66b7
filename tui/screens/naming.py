"""The dialog that names the model of what is open: its weights, batch, context and parallelism."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input, Label, Static

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.modelling.config import bundled_models
from decodescope.analyzer.modelling.weight_formats import FORMATS
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.given_model import AUTO, NONE, given_model
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import MODEL_FINDINGS, REFUSED, answer_lines
from decodescope.analyzer.vocabulary.words import cost_words
from decodescope.tui.screens.dialogs import Dialog, framed
from decodescope.tui.screens.fields import CompletingInput, Completion, checkpoints
from decodescope.tui.screens.settings import whole_number

_PAUSE_S = 0.1
_HINTS = {
    "model": "a known name, or a folder with config.json",
    "weights": "as the config says",
    "batch": "not known",
    "context": "not known, of each request",
    "parallelism": "1",
}


class Value(NamedTuple):
    """The text of a field, and where it is from."""

    text: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """The facts by the fields, None if nothing was edited, and what follows from them; or what is
    wrong with them."""

    given: Given | None = None
    lines: tuple[str, ...] = ()
    problem: str = ""


class ModelScreen(Dialog[Given]):
    """Returns the facts with the model, None if cancelled or nothing is new. What follows from the
    fields is computed in a thread after each change."""

    FIELDS: ClassVar[tuple[str, ...]] = tuple(_HINTS)

    def __init__(self, analysis: Analysis, given: Given) -> None:
        super().__init__()
        self._analysis, self._given = analysis, given
        self._values = values_of(analysis.report, given)
        self._due: Timer | None = None

    def compose(self) -> ComposeResult:
        hint = "enter applies · tab completes, next field · esc changes nothing"
        with framed(VerticalScroll(can_focus=False), "Model of what is open", hint):
            for name in self.FIELDS:
                value = self._values[name]
                field = CompletingInput(
                    Completion(checkpoints if name == "model" else lambda typed: (), _names(name)),
                    value.text,
                    id=name,
                    placeholder=_HINTS[name],
                    select_on_focus=True,
                )
                yield Horizontal(Label(name), field, Label(value.origin, id=f"{name}-origin"))
            yield Static(id="effect", markup=False)
            yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        self.query_one("#model", Input).focus()
        self._follow()

    @on(Input.Changed)
    def _edited(self, event: Input.Changed) -> None:
        name = event.input.id or ""
        value = self._values[name]
        origin = value.origin if event.value == value.text else ""
        self.query_one(f"#{name}-origin", Label).update(origin)
        self._follow()

    @on(Input.Submitted)
    async def _submitted(self) -> None:
        named = await asyncio.to_thread(self._named, self._texts())
        if named.problem:
            self._say(named.problem)
        else:
            self.close(named.given)

    def _follow(self) -> None:
        """Show what follows from the fields once nothing is typed for a moment."""
        if self._due is not None:
            self._due.stop()
        self._due = self.set_timer(_PAUSE_S, self._show)

    async def _show(self) -> None:
        texts = self._texts()
        named = await asyncio.to_thread(self._named, texts)
        if self.is_active and texts == self._texts():
            self.query_one("#effect", Static).update("\n".join(map(plain_line, named.lines)))
            self._say(named.problem)

    def _texts(self) -> dict[str, str]:
        return {name: self.query_one(f"#{name}", Input).value.strip() for name in self.FIELDS}

    def _named(self, texts: Mapping[str, str]) -> Named:
        given, report = None, self._analysis.report
        edited = any(texts[name] != self._values[name].text for name in texts)
        if edited or self._values["model"].origin == GUESS:
            try:
                given = given_of(texts, self._values, self._given)
            except (DecodescopeError, OSError) as error:
                return Named(problem=_first_clause(str(error)))
            report = self._analysis.with_model(given).report
        found = {finding.code: finding.message for finding in report.health.findings}
        lines = [answer_lines(report).headline]
        if REFUSED in found and edited:
            return Named(problem=_first_clause(found[REFUSED]))
        if report.step_cost is not None:
            lines.append(cost_words(report.step_cost))
        elif given is not None and given.model is not None:
            return Named(problem="no limit follows from a model: the trace has no step on a GPU")
        told = [_first_clause(message) for code, message in found.items() if code in MODEL_FINDINGS]
        return Named(given, (*lines, *told))


GUESS = "guess"


def values_of(report: Report, given: Given) -> dict[str, Value]:
    """What is known of each field, and how: a guess, of the trace, or named before."""
    cost, named = report.step_cost, given.model
    if cost is None:
        known = {
            "model": named.shape.name if named else "" if given.guess else "none",
            "weights": given.weights_text or "",
            "batch": f"{given.batch or report.answer.batch or ''}",
            "context": f"{given.context or ''}",
            "parallelism": f"{given.tensor_parallel or ''}",
        }
        return {name: Value(text, "named" * bool(text)) for name, text in known.items()}
    by = {"guess": GUESS, "model": "named", "capture": "of the run"}[cost.source]
    batch_by = GUESS if cost.batch_by_shapes else "named" if given.batch else "of the trace"
    context = cost.kv_tokens and cost.kv_tokens // (cost.batch or 1)
    return {
        "model": Value(cost.model, by),
        "weights": Value(cost.weights or "", by * bool(cost.weights)),
        "batch": Value(f"{cost.batch or ''}", batch_by * bool(cost.batch)),
        "context": Value(
            f"{context or ''}", ("named" if given.context else "of the trace") * bool(context)
        ),
        "parallelism": Value(f"{cost.tensor_parallel}", by * (cost.tensor_parallel > 1)),
    }


def given_of(texts: Mapping[str, str], values: Mapping[str, Value], before: Given) -> Given:
    """The facts that the fields hold. A size that was not edited is left to the trace, or as it was
    given `before`; without a model, so are the weights and the parallelism.

    Raises:
        InputError: no such model or format, or a size that is no number.
    """
    model = os.path.expanduser(texts["model"])
    edited = {name: texts[name] != values[name].text for name in texts}
    own = edited if model in ("", AUTO, NONE) else dict.fromkeys(texts, True)
    batch, context, parallelism = (
        whole_number(name, texts[name], 1) for name in ("batch", "context", "parallelism")
    )
    return given_model(
        before,
        model or None,
        texts["weights"] or None if own["weights"] else before.weights_text,
        batch if edited["batch"] else before.batch,
        context if edited["context"] else before.context,
        parallelism if own["parallelism"] else before.tensor_parallel,
    )


def _first_clause(message: str) -> str:
    """What is wrong, in one line: advice follows it."""
    return message.partition("; ")[0]


def _names(field: str) -> list[str]:
    """The names that complete a field: of models, with and without their organisation."""
    if field == "weights":
        return list(FORMATS)
    if field != "model":
        return []
    models = bundled_models()
    full = [each for name, model in models.items() for each in (name, *model.aliases)]
    return [*(name.rpartition("/")[2] for name in full), *full]
