"""A case of the fuzzer: files, a command line, and what it may write."""

import random
from dataclasses import dataclass, field

# What an attacker, a broken writer or another program may put where a name is expected.
ODD_TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "7.25",
    "nan",
    "1e999",
    "text",
    "\udc80",
    "\x00",
    "9" * 5000,
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x9b31m",
    "a\nb",
    "a\rb",
    "\u202eabc",
    "\u0301" * 50,
    "[/]",
    "[bold]",
    "[link=file:///x]y[/link]",
    "[layers.0]",
    "=1+1",
    "+1",
    "-1",
    "@sum",
    "<script>",
    "{{ 7 }}",
    "%s%n",
    "../../x",
    "/",
    "a/b/c",
    "漢字" * 40,
    "x" * 70_000,
)
ODD_NUMBERS = (
    0,
    -1,
    1,
    1.5,
    -0.0,
    5e-324,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    2**31,
    2**53 + 1,
    2**62,
    2**63,
    -(2**63),
    2**64,
    10**40,
    -(10**40),
    10**400,
)
# Below the folder of a case.
CACHE_HOME = "cache"


@dataclass(frozen=True, slots=True)
class Case:
    """Run `decodescope *arguments` in a folder with `files`; it may write only `outputs`.

    `links` are symbolic ones inside the folder: name → target; `environment` changes variables.
    With `frames`, a browser sends them to a server instead (whether each is text); with `messages`,
    a client of `mcp` does. `decodes` lets a
    `run` go on to decode; otherwise it ends when the model is loaded. `is_planted`: the trace is
    whole, and `analyze --json` must say that a step of it takes `step_ns` (None: that it has none).
    """

    arguments: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    frames: tuple[tuple[bool, bytes], ...] = ()
    messages: tuple[bytes, ...] = ()
    decodes: bool = False
    is_planted: bool = False
    step_ns: int | None = None


def weighted(rng: random.Random, choices: dict[str, int]) -> str:
    """A key, as often as its value says."""
    return rng.choices(list(choices), list(choices.values()))[0]
