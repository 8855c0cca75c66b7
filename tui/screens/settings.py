"""The dialog for the settings of a live run: model, sizes, sampling and prompt."""

import contextlib
import math
from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Label, Static, TextArea
from textual.widgets.option_list import Option

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import Hello, ModelInfo, Settings
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.analyzer.text.plain import plain_line, plain_text
from decodescope.tui.panels.prompt import CompletingInput, Completion
from decodescope.tui.screens.dialogs import Choices, Dialog, framed

SIZES = ("context", "batch", "tokens")
SAMPLING = ("temperature", "top-k", "top-p", "seed")


class SettingsScreen(Dialog[Settings]):
    """Returns the changed settings, None if cancelled; what was refused is `asked`, to be
    corrected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "Apply"),
        Binding("down", "models", "Models"),
    ]

    def __init__(self, before: Settings, asked: Settings | None, hello: Hello | None) -> None:
        super().__init__()
        self._before = before
        self._hello = hello
        # What was refused is text that the worker has not completed.
        self._fields = as_fields(before, hello) if asked is None else as_fields(asked, None)
        self._models = hello.models if hello is not None else ()

    def compose(self) -> ComposeResult:
        hint = "enter or ^s applies · tab, down move · esc cancels"
        with framed(VerticalScroll(can_focus=False), "Settings", hint):
            names = [model.name for model in self._models]
            model = CompletingInput(
                Completion("checkpoints", names=names), self._fields["model"], id="model"
            )
            yield Horizontal(Label("model"), model)
            if self._models:
                width = max(map(len, names))
                yield Choices(*(_option(model, width) for model in self._models))
            for row in (SIZES, SAMPLING):
                yield self._row(*row)
            yield Label("prompt; empty takes the model's own")
            yield TextArea(self._fields["prompt"], id="prompt", tab_behavior="focus")
            yield Static(classes="problem", markup=False)
            yield Button("Apply", compact=True)

    def on_mount(self) -> None:
        self.query_one("#model", Input).focus()

    @on(Input.Submitted)
    @on(Button.Pressed)
    def action_apply(self) -> None:
        fields = {field.id or "": field.value for field in self.query(Input)}
        fields["prompt"] = self.query_one(TextArea).text
        try:
            settings = from_fields(fields, self._before, self._hello)
        except InputError as error:
            self._say(str(error))
            name = str(error).partition(":")[0]
            if name in fields:
                self.query_one(f"#{name}").focus()
        else:
            self.close(settings)

    def action_models(self) -> None:
        if self._models and self.query_one("#model").has_focus:
            self.query_one(Choices).focus()

    @on(Input.Changed, "#model")
    def _show_in_list(self, event: Input.Changed) -> None:
        names = enumerate(model.name for model in self._models)
        number = next((number for number, name in names if name.startswith(event.value)), None)
        if number is not None:
            self.query_one(Choices).highlighted = number

    @on(Choices.OptionSelected)
    def _chosen(self, event: Choices.OptionSelected) -> None:
        model = self.query_one("#model", Input)
        model.value = self._models[event.option_index].name
        model.focus()

    def _row(self, *names: str) -> Horizontal:
        parts = []
        for name in names:
            hint = "0" if name == "temperature" else "" if name in SIZES else "-"
            value = self._fields[name]
            parts += [Label(name), Input(value, id=name, placeholder=hint, select_on_focus=False)]
        return Horizontal(*parts)


def _option(model: ModelInfo, width: int) -> Option:
    count = model.parameters
    size = f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"
    text = f"{plain_line(model.name):<{width}}  {size:>8}  {plain_line(model.summary)}"
    return Option(Content(text))


def as_fields(settings: Settings, hello: Hello | None) -> dict[str, str]:
    """`settings` as the text of each field; `hello` knows what was left to the worker."""
    sampling = settings.sampling
    prompted = settings.prompt is not None
    context = settings.context if hello is None else hello.context
    fields = {
        "model": settings.model or (hello.model if hello else ""),
        "context": "" if prompted or context is None else str(context),
        "batch": str(settings.batch),
        "tokens": str(settings.tokens),
        "prompt": plain_text(settings.prompt or ""),
    }
    fields |= dict.fromkeys(SAMPLING, "")
    if sampling is not None:
        fields["temperature"] = f"{sampling.temperature:g}"
        fields["top-k"] = "" if sampling.top_k is None else str(sampling.top_k)
        fields["top-p"] = "" if sampling.top_p is None else f"{sampling.top_p:g}"
        fields["seed"] = str(sampling.seed)
    return fields


def from_fields(fields: Mapping[str, str], before: Settings, hello: Hello | None) -> Settings:
    """The settings that `fields` hold. What was not edited stays as it is in `before`, also a
    prompt of ids, which no field shows.

    Raises:
        InputError: a field that is no number or out of range, or two that contradict each other.
    """
    shown = as_fields(before, hello)
    model = fields["model"].strip()
    if not model and (before.model or hello is not None):
        raise InputError("model: name one of the list, a hub id or a checkpoint's folder")
    prompt: str | None = fields["prompt"] or None
    if fields["prompt"] == shown["prompt"]:
        prompt = before.prompt
    context = whole_number("context", fields["context"], 1)
    if prompt is not None and context is not None:
        raise InputError("context: the prompt's length is the context; clear one of the two")
    ids = before.prompt_ids
    if prompt is not None or fields["context"].strip() != shown["context"]:
        ids = None
    return Settings(
        batch=whole_number("batch", fields["batch"], 1) or before.batch,
        tokens=whole_number("tokens", fields["tokens"], 1) or before.tokens,
        model=model or None,
        context=None if ids is not None else context,
        prompt=prompt,
        prompt_ids=ids,
        sampling=_sampling(fields),
    )


def _sampling(fields: Mapping[str, str]) -> SamplingSettings | None:
    temperature = _decimal("temperature", fields["temperature"])
    if temperature is not None and temperature < 0:
        raise InputError("temperature: must be 0, which is greedy, or more")
    if not temperature:
        for name in ("top-k", "top-p"):
            if fields[name].strip():
                raise InputError(f"{name}: without a temperature above 0, decoding is greedy")
        return None
    top_p = _decimal("top-p", fields["top-p"])
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError("top-p: must be above 0 and at most 1")
    return SamplingSettings(
        temperature,
        whole_number("top-k", fields["top-k"], 1),
        top_p,
        whole_number("seed", fields["seed"]) or 0,
    )


def whole_number(name: str, text: str, least: int = 0) -> int | None:
    if not text.strip():
        return None
    try:
        value = int(text)
    except ValueError:
        raise InputError(f"{name}: {plain_text(text.strip())} is no whole number") from None
    if not least <= value < 1 << 63:
        raise InputError(f"{name}: must be at least {least}")
    return value


def _decimal(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    with contextlib.suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise InputError(f"{name}: {plain_text(text.strip())} is no number")
