"""The models whose shapes come with the package: models.json, found by name.

Every entry of models.json holds fields of a published config.json; `source` says where they were
checked. An alias is a name of other weights of the same shape.
"""

from difflib import get_close_matches
from importlib import resources
from typing import Any

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.text.plain import plain_line

# Endings of names that do not change the shape.
_ENDINGS = ("-instruct", "-it", "-chat", "-base", "-hf", "-thinking", "-2507", "-pt")
_MAX_SHOWN = 80


class BundledModel(msgspec.Struct, frozen=True):
    """An entry of models.json: fields of a config.json, where they are from, and other names."""

    source: str
    config: dict[str, Any]
    aliases: list[str] = []


def bundled_models() -> dict[str, BundledModel]:
    """The entries of models.json by their full name, as "Qwen/Qwen3-8B"."""
    data = resources.files("decodescope.analyzer.modelling").joinpath("models.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, BundledModel])


def bundled_config(name: str) -> tuple[str, dict[str, Any]]:
    """The full name and the config fields of the model that is called `name`.

    Case, the organisation, what follows an "@" and endings such as "-Instruct" do not matter.

    Raises:
        InputError: no such name; the message has the nearest ones.
    """
    models = bundled_models()
    known = {_key(one): full for full, model in models.items() for one in (full, *model.aliases)}
    key = _key(name)
    if key not in known:
        near = get_close_matches(key, known, n=3, cutoff=0.5)
        nearest = " or ".join(dict.fromkeys(known[one] for one in near))
        hint = f"{nearest}, or " if nearest else ""
        raise InputError(
            f"no model called {plain_line(name)[:_MAX_SHOWN]} is known; name {hint}the model's "
            "config.json or its folder"
        )
    return known[key], models[known[key]].config


def _key(name: str) -> str:
    key = name.strip().partition("@")[0].rpartition("/")[2].lower().replace("_", "-")
    key = key.removeprefix("meta-")
    while (ending := next((one for one in _ENDINGS if key.endswith(one)), None)) is not None:
        key = key.removesuffix(ending)
    return key
