"""What a kernel's name says about it, by the rules of `roles.toml` and of a user's file."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.timing.communication import communication_kind

ROLES = (
    *("qkv", "qk_norm", "rope", "kv_write", "attention", "o", "norm", "gate_up", "activation"),
    *("down", "router", "experts", "head", "sampling", "communication", "quantise", "copy"),
    "other",
)
# One letter for each kind, so that the kinds of a sequence of ops are a string.
KINDS = {
    "product": "P", "product_tail": "S", "gated_product": "G", "attention": "A", "softmax": "s",
    "norm": "N", "norm_part": "n", "rope": "r", "rope_part": "o", "kv_write": "k",
    "activation": "g", "routing": "R", "permutation": "z", "expert": "X", "quantise": "q",
    "communication": "c", "add": "+", "multiply": "*", "concatenate": "C", "copy": "m",
    "sampling": "t", "convolution": "v", "elementwise": "e",
}  # fmt: skip
UNKNOWN = "?"
_MAX_RULES = 10_000
_MAX_PATTERN = 10_000
# What a kernel computes is said early in its name; what follows are the types of its arguments.
_SEARCHED = 2_000
_KEYS = frozenset(("pattern", "kind", "role"))


@dataclass(frozen=True, slots=True)
class NameRule:
    """An op whose name contains `pattern` has the kind with this letter, and `role`, if any."""

    pattern: re.Pattern[str]
    letter: str
    role: str | None


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """The letter of a name's kind, `UNKNOWN` if no rule matches, and its role if the name alone
    decides it."""

    letter: str
    role: str | None


@dataclass(frozen=True, slots=True)
class NameRules:
    """Rules in the order in which they are tried."""

    rules: tuple[NameRule, ...]

    def meanings(self, names: Sequence[str]) -> list[NameMeaning]:
        """What each name says, its first `_SEARCHED` characters. Communication
        (`timing.communication`) precedes every rule."""
        return [self._meaning(name) for name in names]

    def _meaning(self, name: str) -> NameMeaning:
        name = name[:_SEARCHED]
        if communication_kind(name) is not None:
            return NameMeaning(KINDS["communication"], "communication")
        for rule in self.rules:
            if rule.pattern.search(name):
                return NameMeaning(rule.letter, rule.role)
        return NameMeaning(UNKNOWN, None)


@cache
def bundled_rules() -> NameRules:
    """The rules of `roles.toml`."""
    text = files(__package__).joinpath("roles.toml").read_text(encoding="utf-8")
    return NameRules(_parsed(text, "roles.toml"))


def rules_with(path: Path) -> NameRules:
    """The rules of a user's file, then the bundled ones.

    Raises:
        InputError: the file cannot be read or a rule of it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise InputError(f"{path}: cannot be read as rules ({why})") from error
    return NameRules((*_parsed(text, str(path)), *bundled_rules().rules))


def _parsed(text: str, source: str) -> tuple[NameRule, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: no TOML ({error}); see roles.toml for the form") from error
    rows = document.get("rule")
    if not isinstance(rows, list) or set(document) != {"rule"} or len(rows) > _MAX_RULES:
        raise InputError(f"{source}: must hold [[rule]] tables only, {_MAX_RULES:,} at most")
    return tuple(_rule(row, f"{source}: rule {place}") for place, row in enumerate(rows, 1))


def _rule(row: object, where: str) -> NameRule:
    if not isinstance(row, Mapping) or not {"pattern", "kind"} <= set(row) <= _KEYS:
        raise InputError(f"{where}: has the keys pattern, kind and, optionally, role")
    pattern, kind, role = row["pattern"], row["kind"], row.get("role")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{where}: kind {kind!r} is none of {', '.join(KINDS)}")
    if role is not None and (not isinstance(role, str) or role not in ROLES):
        raise InputError(f"{where}: role {role!r} is none of {', '.join(ROLES)}")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= _MAX_PATTERN:
        raise InputError(f"{where}: pattern is a text of 1 to {_MAX_PATTERN:,} characters")
    try:
        return NameRule(re.compile(pattern, re.IGNORECASE), KINDS[kind], role)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: pattern is no regular expression ({error})") from error
