"""The dialog that names the model of what is open: its weights, batch, context and parallelism."""

import asyncio
import os
from collections.abc import Mapping

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.timer import Timer
from textual.widgets import Input, Label, Static

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.modelling.config import bundled_models
from decodescope.analyzer.modelling.weight_formats import FORMATS
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.user_facts import AUTO, NONE, Given, given_model
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.answer_words import MODEL_FINDINGS, REFUSED, answer_lines
from decodescope.analyzer.vocabulary.words import cost_words
from decodescope.tui.panels.prompt import CompletingInput, Completion, Paths
from decodescope.tui.screens.dialogs import Dialog, framed
from decodescope.tui.screens.settings import whole_number

_PAUSE_S, _MOST_SHOWN = 0.1, 240
_HINTS = {
    "model": "a known name, or a folder with config.json",
    "weights": "as the config says",
    "batch": "not known",
    "context": "not known, of each request",
    "parallelism": "1",
}
# Where the value of a field is from, after its text.
Values = Mapping[str, tuple[str, str]]
GUESS = "guess"


class ModelScreen(Dialog[Given]):
    """Returns the facts with the model, None if cancelled or nothing is new. What follows from the
    fields is computed in a thread after each change."""

    def __init__(self, analysis: Analysis, given: Given) -> None:
        super().__init__()
        self._analysis, self._given = analysis, given
        self._values = values_of(analysis.report, given)
        self._due: Timer | None = None

    def compose(self) -> ComposeResult:
        hint = "enter applies · tab completes, next field · esc"
        with framed(VerticalScroll(can_focus=False), "Model of what is open", hint):
            for name, (text, origin) in self._values.items():
                paths: Paths = "checkpoints" if name == "model" else "none"
                field = CompletingInput(
                    Completion(paths, names=_names(name)),
                    text,
                    id=name,
                    placeholder=_HINTS[name],
                    select_on_focus=True,
                )
                yield Horizontal(Label(name), field, Label(origin, id=f"{name}-origin"))
            yield Static(id="effect", markup=False)
            yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        self._follow()

    @on(Input.Changed)
    def _edited(self, event: Input.Changed) -> None:
        name = event.input.id or ""
        text, origin = self._values[name]
        self.query_one(f"#{name}-origin", Label).update(origin * (event.value == text))
        self._follow()

    @on(Input.Submitted)
    async def _submitted(self) -> None:
        given, effect, problem = await asyncio.to_thread(self._judged, self._texts())
        self.query_one("#effect", Static).update(effect)
        if problem:
            self._say(problem)
        else:
            self.close(given)

    def _follow(self) -> None:
        """Show what follows from the fields once nothing is typed for a moment."""
        if self._due is not None:
            self._due.stop()
        self._due = self.set_timer(_PAUSE_S, self._show)

    async def _show(self) -> None:
        texts = self._texts()
        _, effect, problem = await asyncio.to_thread(self._judged, texts)
        if self.is_active and texts == self._texts():
            self.query_one("#effect", Static).update(effect)
            self._say(problem)

    def _texts(self) -> dict[str, str]:
        return {name: self.query_one(f"#{name}", Input).value.strip() for name in self._values}

    def _judged(self, texts: Mapping[str, str]) -> tuple[Given | None, str, str]:
        """The facts by the fields (None: nothing edited), their effect, and what is wrong."""
        given, report = None, self._analysis.report
        edited = any(texts[name] != text for name, (text, _) in self._values.items())
        if edited or self._values["model"][1] == GUESS:
            try:
                given = given_of(texts, self._values, self._given)
            except (DecodescopeError, OSError) as error:
                return None, "", _first_clause(str(error))
            report = self._analysis.with_model(given).report
        found = {each.code: _first_clause(each.message) for each in report.health.findings}
        if edited and REFUSED in found:
            return None, "", found[REFUSED]
        if edited and given is not None and given.model and report.step_cost is None:
            return None, "", "no limit follows from a model: the trace has no step on a GPU"
        cost = [cost_words(report.step_cost)] if report.step_cost is not None else []
        told = [found[code] for code in MODEL_FINDINGS if code in found]
        lines = (answer_lines(report).headline, *cost, *told)
        return given, "\n".join(map(plain_line, lines)), ""


def values_of(report: Report, given: Given) -> Values:
    """The known value of each field and its source: guess, trace, run, or named before."""
    cost, named = report.step_cost, given.model
    model = "none" if not given.guess else named.shape.name if named else ""
    of_model = ("named", model, given.weights_text, given.tensor_parallel)
    batch, context = given.batch or report.answer.batch, given.context
    batch_by = "named" if given.batch else "of the trace"
    if cost is not None:
        by = {"guess": GUESS, "model": "named", "capture": "of the run"}[cost.source]
        of_model = (by, cost.model, cost.weights, cost.tensor_parallel)
        batch, context = cost.batch, cost.kv_tokens and cost.kv_tokens // (cost.batch or 1)
        batch_by = GUESS if cost.batch_by_shapes else batch_by
    by, model, weights, devices = of_model
    known = {
        "model": (model, by),
        "weights": (weights, by),
        "batch": (batch, batch_by),
        "context": (context, "named" if given.context else "of the trace"),
        "parallelism": (devices, by if devices != 1 else ""),
    }
    return {name: (f"{value or ''}", by * bool(value)) for name, (value, by) in known.items()}


def given_of(texts: Mapping[str, str], values: Values, before: Given) -> Given:
    """The facts that the fields hold. A size that was not edited is left to the trace, or as it was
    given `before`; without a model, so are the weights and the parallelism.

    Raises:
        InputError: no such model or format, or a size that is no number.
    """
    model = os.path.expanduser(texts["model"])
    edited = {name: texts[name] != values[name][0] for name in texts}
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
    """The problem, in one line: advice follows it, and names may be of any length."""
    return message.partition("; ")[0][:_MOST_SHOWN]


def _names(field: str) -> list[str]:
    """The names that complete a field: of models, with and without their organisation."""
    if field == "weights":
        return list(FORMATS)
    if field != "model":
        return []
    models = bundled_models()
    full = [each for name, model in models.items() for each in (name, *model.aliases)]
    return [*(name.rpartition("/")[2] for name in full), *full]
