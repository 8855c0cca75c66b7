"""Cases of command lines: options missing, doubled, empty, contradictory, of odd values."""

import random

import click

from decodescope.cli.main import COMMANDS
from tests.fuzzing.case import ODD_TEXTS, Case
from tests.fuzzing.damage import as_json
from tests.fuzzing.traces import window

# No preset: at random weights it takes gigabytes. No device file: a fault might replace it.
_TEXTS = (
    "tiny",
    "eager",
    "fused",
    "compiled",
    "fused+graph",
    "eager,fused",
    "eager,eager",
    "egaer",
    "nope@random",
    "some/where",
    "./nowhere",
    "1,2,3",
    "1,",
    "5",
    "a.json",
    "folder",
    "ünï",
)
_FILES = (
    "a.json",
    "b.json",
    "missing.json",
    "folder",
    "folder/new.json",
    "new.json",
    "new.csv",
    "new.html",
    "new.json.gz",
    "no/such/folder/new.json",
    "",
    ".",
    "./a.json",
    "link",
)
_COMPARISONS = [
    f"{name}.{kind}" for name in ("comparison", "diff") for kind in ("json", "md", "html")
]
_BASELINES = ".decodescope"
_NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "16",
    "17",
    "1000",
    "",
    "x",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "9" * 30,
    "0x10",
    " 1",
    "\u0661",
)
# `serve` runs until it is interrupted, `mcp` until its input ends.
_COMMANDS = [command for command in COMMANDS if command.name not in ("serve", "mcp")]
_LOOSE = ("--help", "-h", "--version", "--debug", "--", "-", "--nope", "--json=1", "-o")


def line_case(rng: random.Random) -> Case:
    """A command with some of its options and arguments, most of them sensible."""
    files = {name: as_json(window(rng), rng) for name in ("a.json", "b.json")} | {"folder/x": b""}
    command = rng.choice(_COMMANDS)
    words = [command.name or ""]
    if isinstance(command, click.Group):
        command = command.commands[rng.choice(list(command.commands))]
        words += [command.name or ""] * (rng.random() < 0.95)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            count = rng.choice((1, 1, 1, 0, 2, 3)) if parameter.nargs == -1 else parameter.nargs
            words += [_value(parameter.type, rng, sensible=0.8) for _ in range(count)]
        elif parameter.required or rng.random() < 0.2:
            words += _option(parameter, rng) * rng.choice((1, 1, 1, 1, 1, 0, 2))
    if rng.random() < 0.25:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*_LOOSE, *ODD_TEXTS)))
    if rng.random() < 0.1:
        del words[rng.randrange(len(words))]
    given = tuple(word.replace("\0", "") for word in words)
    written = (*_FILES, *_TEXTS, *_NUMBERS, *ODD_TEXTS, *_COMPARISONS, _BASELINES)
    return Case(given, files, written, {"link": "b.json"})


def _option(option: click.Parameter, rng: random.Random) -> list[str]:
    name = rng.choice(option.opts)
    if isinstance(option, click.Option) and option.is_flag:
        return [name]
    value = _value(option.type, rng, sensible=0.7)
    return [f"{name}={value}"] if name.startswith("--") and rng.random() < 0.3 else [name, value]


def _value(kind: click.ParamType, rng: random.Random, sensible: float) -> str:
    if rng.random() > sensible:
        return rng.choice((*ODD_TEXTS, *_TEXTS, *_FILES, *_NUMBERS))
    if isinstance(kind, click.Choice):
        return str(rng.choice(kind.choices))
    if isinstance(kind, click.Path):
        return rng.choice(_FILES)
    number = isinstance(kind, click.types.IntParamType | click.types.FloatParamType)
    return rng.choice(_NUMBERS if number else _TEXTS)
