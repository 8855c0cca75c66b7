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
_WORD = re.compile(r"[\w:, ]+", re.ASCII)
# Flags, comments, and sets that begin with their end.
_UNUSUAL = re.compile(r"\(\?[aiLmsux#-]|\[\^?\]")


@dataclass(frozen=True, slots=True)
class NameRule:
    """An op has the kind with this letter, and `role`, if any, if its name contains one of `words`,
    which are in lower case, or `pattern`."""

    words: tuple[str, ...]
    pattern: re.Pattern[str] | None
    letter: str
    role: str | None

    def is_of(self, name: str, lower: str) -> bool:
        """Whether it is the rule of `name`, which is `lower` in lower case."""
        # To find a word takes a hundredth of the time of a regular expression.
        if any(word in lower for word in self.words):
            return True
        return self.pattern is not None and self.pattern.search(name) is not None


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
        lower = name.lower()
        for rule in self.rules:
            if rule.is_of(name, lower):
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
        words, rest = _words_apart(pattern)
        compiled = re.compile(rest, re.IGNORECASE) if rest else None
        return NameRule(words, compiled, KINDS[kind], role)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: pattern is no regular expression ({error})") from error


def _words_apart(pattern: str) -> tuple[tuple[str, ...], str]:
    """The alternatives of a pattern that are plain words, in lower case, and the pattern of the
    others: a name matches the whole if it contains a word or matches what is left."""
    alternatives = [pattern] if _UNUSUAL.search(pattern) else _alternatives(pattern)
    if "" in alternatives:
        return (), pattern
    words = tuple(one.lower() for one in alternatives if _WORD.fullmatch(one))
    return words, "|".join(one for one in alternatives if not _WORD.fullmatch(one))


def _alternatives(pattern: str) -> list[str]:
    """What stands between the bars outside of groups and sets."""
    found, groups, in_set, escaped = [""], 0, False, False
    for char in pattern:
        if char == "|" and not (groups or in_set or escaped):
            found.append("")
            continue
        found[-1] += char
        if escaped or char == "\\":
            escaped = not escaped
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        else:
            groups += (char == "(") - (char == ")")
    return found
