"""The settings of a live run as text, and back: what the settings dialog edits."""

import math
from collections.abc import Mapping

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import Hello, Settings
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.analyzer.text.plain import plain_text

SIZES = ("context", "batch", "tokens")
SAMPLING = ("temperature", "top-k", "top-p", "seed")


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
    context = _whole("context", fields["context"], 1)
    if prompt is not None and context is not None:
        raise InputError("context: the prompt's length is the context; clear one of the two")
    ids = before.prompt_ids
    if prompt is not None or fields["context"].strip() != shown["context"]:
        ids = None
    return Settings(
        batch=_whole("batch", fields["batch"], 1) or before.batch,
        tokens=_whole("tokens", fields["tokens"], 1) or before.tokens,
        model=model or None,
        context=None if ids is not None else context,
        prompt=prompt,
        prompt_ids=ids,
        sampling=_sampling(fields),
    )


def _sampling(fields: Mapping[str, str]) -> SamplingSettings | None:
    temperature = _number("temperature", fields["temperature"])
    if temperature is not None and temperature < 0:
        raise InputError("temperature: must be 0, which is greedy, or more")
    if not temperature:
        for name in ("top-k", "top-p"):
            if fields[name].strip():
                raise InputError(f"{name}: without a temperature above 0, decoding is greedy")
        return None
    top_p = _number("top-p", fields["top-p"])
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError("top-p: must be above 0 and at most 1")
    return SamplingSettings(
        temperature, _whole("top-k", fields["top-k"], 1), top_p, _whole("seed", fields["seed"]) or 0
    )


def _whole(name: str, text: str, least: int = 0) -> int | None:
    if not text.strip():
        return None
    try:
        value = int(text)
    except ValueError:
        raise InputError(f"{name}: {plain_text(text.strip())} is no whole number") from None
    if not least <= value < 1 << 63:
        raise InputError(f"{name}: must be at least {least}")
    return value


def _number(name: str, text: str) -> float | None:
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name}: {plain_text(text.strip())} is no number")
    return value
