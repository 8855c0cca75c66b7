"""Cases of what a shell gives a command: environment variables, and a user's settings."""

import random
from dataclasses import replace

from tests.fuzzing.case import ODD_TEXTS, Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_json
from tests.fuzzing.lines import line_case
from tests.fuzzing.traces import window

_SIZES = ("0", "1", "-5", "40", "99999999", "9" * 400, "abc", "", " ", "1e3", "0x50", "\u0663")
_PLACES = ("", "folder", "nope", "./nope", "/dev/null", "/proc", "/nope", "a.json", "link", "~")
_TERMINALS = ("", "dumb", "xterm", "xterm-256color", "linux", "unknown", "\x1b[31m", "x" * 5000)
_LANGUAGES = ("", "C", "POSIX", "C.UTF-8", "de_DE.ISO-8859-1", "xx_YY.nope")
_VARIABLES = {
    **dict.fromkeys(("COLUMNS", "LINES"), _SIZES),
    **dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), _PLACES),
    **dict.fromkeys(("TERM", "COLORTERM"), _TERMINALS),
    **dict.fromkeys(("LANG", "LC_ALL"), _LANGUAGES),
    **dict.fromkeys(("NO_COLOR", "NO_UNICODE", "TZ", "SSL_CERT_FILE"), ("", "1", "nope", *_PLACES)),
}
# What is kept below a home inside the case's folder.
_KEPT = (
    "nope",
    ".local",
    ".cache",
    ".config",
    "~",
    "folder/.local",
    "folder/.cache",
    "decodescope",
)
_SETTINGS = "kept/decodescope"
_STATE = {
    "theme": "nord",
    "recent": ["/a.json", "b.dsrec"],
    "settings": {"batch": 1, "tokens": 128, "model": "tiny", "prompt_ids": [1, 2]},
}
_KEYS = (
    "freeze",
    "app.freeze",
    "quit",
    "[app]",
    "[table]",
    "[timeline]",
    "[[app]]",
    "filter",
    "zoom",
    "pan_left",
    "nope",
    "a.b.c",
    '"quoted"',
)
_GIVEN = (
    '"z"',
    '["z", ","]',
    '"ctrl+left"',
    '" "',
    '""',
    "[]",
    "3",
    "true",
    "{}",
    '"ctrl+ctrl+"',
    '"\\u001b"',
    "nan",
    "1979-05-27",
    '["a", 1]',
    "[" * 3000,
    '"' + "x" * 5000 + '"',
    "",
)


def environment_case(rng: random.Random) -> Case:
    """An option line with some odd environment variables."""
    case = line_case(rng)
    chosen = rng.sample(list(_VARIABLES), rng.randint(1, 4))
    odd = {name: rng.choice(_VARIABLES[name]) for name in chosen}
    if rng.random() < 0.1:
        odd[rng.choice(chosen)] = rng.choice(ODD_TEXTS).replace("\0", "")
    return replace(case, environment=odd, outputs=(*case.outputs, *_KEPT))


def settings_case(rng: random.Random) -> Case:
    """Damaged settings and keys, read by the command that shows them and by the app."""
    files = {"a.json": as_json(window(rng), rng)}
    links = {}
    if rng.random() < 0.8:
        files[f"{_SETTINGS}/state.json"] = _state(rng)
    if rng.random() < 0.8:
        files[f"{_SETTINGS}/keymap.toml"] = _keymap(rng)
    for name in ("state.json", "keymap.toml"):
        if f"{_SETTINGS}/{name}" not in files:
            target = rng.choice((name, "..", "/dev/zero", "/dev/null", "nope", "/proc/self/mem"))
            links[f"{_SETTINGS}/{name}"] = target
    show = ("config", "show")
    draw = ("open", "a.json", "--once", "--size", "60x16")
    places = {"XDG_STATE_HOME": "kept", "XDG_CONFIG_HOME": "kept"}
    arguments = show if rng.random() < 0.8 else draw
    return Case(arguments, files, outputs=("kept",), links=links, environment=places)


def _state(rng: random.Random) -> bytes:
    state = {**_STATE}
    for _ in range(rng.choice((0, 1, 2))):
        state[rng.choice((*_STATE, "new", "settings"))] = rng.choice(ODD_VALUES)
    data = as_json(state, rng)
    if rng.random() < 0.3:
        data = damage_json(data, rng)
    return damage_bytes(data, rng) if rng.random() < 0.3 else data


def _keymap(rng: random.Random) -> bytes:
    lines = []
    for _ in range(rng.choice((0, 1, 3, 8))):
        key = rng.choice(_KEYS)
        lines.append(key if key.startswith("[") else f"{key} = {rng.choice(_GIVEN)}")
    data = "\n".join(lines).encode()
    return damage_bytes(data, rng) if rng.random() < 0.3 else data
