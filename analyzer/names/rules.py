"""The meaning of a kernel's name, by the rules of `roles.toml` and of a user's own file: its kind,
its family, and its role in a decode step."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from decodescope.analyzer.errors import InputError

ROLES = (
    "qkv",
    "qk_norm",
    "rope",
    "kv_write",
    "attention",
    "o",
    "norm",
    "gate_up",
    "activation",
    "down",
    "router",
    "experts",
    "head",
    "sampling",
    "communication",
    "quantise",
    "copy",
    "other",
)
UNKNOWN = "unknown"
UNKNOWN_LETTER = "?"
OTHER_OPERATION = "other"

# By kind: one letter, so that the kinds of a sequence of ops are a string; the family, if a rule
# names no other; the role of an op whose name and place decide none.
_KINDS = {
    "product": ("P", "matmul", "other"),
    "product_tail": ("S", "matmul", "other"),
    "gated_product": ("G", "matmul", "gate_up"),
    "attention": ("A", "attention", "attention"),
    "softmax": ("s", "reduction", "other"),
    "norm": ("N", "reduction", "norm"),
    "norm_part": ("n", "elementwise", "other"),
    "rope": ("r", "elementwise", "rope"),
    "rope_part": ("o", "elementwise", "other"),
    "kv_write": ("k", "copy", "kv_write"),
    "activation": ("g", "elementwise", "activation"),
    "routing": ("R", "reduction", "router"),
    "permutation": ("z", "reduction", "other"),
    "expert": ("X", "matmul", "experts"),
    "quantise": ("q", "reduction", "quantise"),
    "communication": ("c", "communication", "communication"),
    "add": ("+", "elementwise", "other"),
    "multiply": ("*", "elementwise", "other"),
    "concatenate": ("C", "copy", "copy"),
    "copy": ("m", "copy", "copy"),
    "sampling": ("t", "reduction", "sampling"),
    "convolution": ("v", "matmul", "other"),
    "elementwise": ("e", "elementwise", "other"),
}
_letters, _families, _roles = zip(*_KINDS.values(), strict=True)
# In the order in which kinds name them.
FAMILIES = (*dict.fromkeys(_families), "other")
KINDS: dict[str, str] = dict(zip(_KINDS, _letters, strict=True))
FAMILY_OF_KIND: dict[str, str] = dict(zip(_KINDS, _families, strict=True))
ROLE_OF_LETTER: dict[str, str] = dict(zip(_letters, _roles, strict=True))


# The work of a kernel is said early in its name; the types of its arguments follow.
_SEARCHED = 2_000

Memory = Literal["copy", "fill"]
_WORD = re.compile(r"[\w:, ]+", re.ASCII)
# Flags, comments, and sets that begin with their end.
_UNUSUAL = re.compile(r"\(\?[aiLmsux#-]|\[\^?\]")
_MAX_RULES = 10_000
_MAX_PATTERN = 10_000
_USER_KEYS = frozenset(("pattern", "kind", "role"))


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression: the alternatives that are plain words, in lower case, and the others.

    To find a word takes a hundredth of the time of a regular expression, and to search for one that
    begins with "^" tries it everywhere: `anchored` ones are matched.
    """

    words: tuple[str, ...]
    expression: re.Pattern[str] | None
    anchored: bool = False

    def found_in(self, name: str, lower: str) -> bool:
        """Whether `name`, which is `lower` in lower case, contains a match in either case."""
        if any(word in lower for word in self.words):
            return True
        if self.expression is None:
            return False
        find = self.expression.match if self.anchored else self.expression.search
        return find(name) is not None


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """The meaning of a kernel's name.

    `kind` is what it computes, a word of `KINDS`, or `UNKNOWN`; `family` one of
    `FAMILIES`; `role` its role if the name alone decides it. A communicating kernel has a kind of
    `communication`, and the collective `operation` that it does, `OTHER_OPERATION` if unknown.
    `memory`: it only copies or fills memory.
    """

    kind: str
    family: str
    role: str | None = None
    communication: str | None = None
    operation: str | None = None
    memory: Memory | None = None

    @property
    def letter(self) -> str:
        """The letter of the kind, `UNKNOWN_LETTER` if it is unknown."""
        return KINDS.get(self.kind, UNKNOWN_LETTER)


_NO_MEANING = NameMeaning(UNKNOWN, "other")


@dataclass(frozen=True, slots=True)
class NameRule:
    """A name that contains `pattern`, and does not contain `unless`, has the meaning."""

    pattern: Pattern
    unless: Pattern | None
    meaning: NameMeaning


@dataclass(frozen=True, slots=True, eq=False)
class NameRules:
    """Rules in the order in which they are tried. `operations` are tried for communication: a
    kernel whose name contains the pattern does the collective operation."""

    rules: tuple[NameRule, ...]
    operations: tuple[tuple[Pattern, str], ...]

    def meaning(self, name: str) -> NameMeaning:
        """The meaning of a name, by its first `_SEARCHED` characters."""
        return _meaning(self, name[:_SEARCHED])


@lru_cache(maxsize=1 << 18)
def _meaning(rules: NameRules, searched: str) -> NameMeaning:
    lower = searched.lower()
    for rule in rules.rules:
        if rule.pattern.found_in(searched, lower) and not (
            rule.unless is not None and rule.unless.found_in(searched, lower)
        ):
            if rule.meaning.communication is None:
                return rule.meaning
            operations = (
                operation
                for pattern, operation in rules.operations
                if pattern.found_in(searched, lower)
            )
            return replace(rule.meaning, operation=next(operations, OTHER_OPERATION))
    return _NO_MEANING


def pattern_of(text: str) -> Pattern:
    """The pattern of a regular expression.

    Raises:
        re.error, RecursionError, OverflowError: it is no regular expression.
    """
    alternatives = [text] if _UNUSUAL.search(text) else _alternatives(text)
    if "" in alternatives:
        return Pattern((), re.compile(text, re.IGNORECASE), text.startswith("^"))
    words = [alternative for alternative in alternatives if _WORD.fullmatch(alternative)]
    rest = [alternative for alternative in alternatives if not _WORD.fullmatch(alternative)]
    expression = re.compile("|".join(rest), re.IGNORECASE) if rest else None
    anchored = bool(rest) and all(alternative.startswith("^") for alternative in rest)
    return Pattern(tuple(word.lower() for word in words), expression, anchored)


def _alternatives(pattern: str) -> list[str]:
    alternatives, groups, in_set, escaped = [""], 0, False, False
    for char in pattern:
        if char == "|" and not (groups or in_set or escaped):
            alternatives.append("")
            continue
        alternatives[-1] += char
        if escaped or char == "\\":
            escaped = not escaped
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        else:
            groups += (char == "(") - (char == ")")
    return alternatives


def kernel_meaning(name: str) -> NameMeaning:
    """The meaning of a kernel's name by the bundled rules."""
    return bundled_rules().meaning(name)


def communicates(name: str) -> bool:
    """Whether a kernel of this name communicates, by the bundled rules."""
    return kernel_meaning(name).communication is not None


@cache
def bundled_rules() -> NameRules:
    """The rules of `roles.toml`."""
    document = bundled_document()
    return NameRules(
        rules=tuple(_bundled_rule(row) for row in document["rule"]),
        operations=tuple(
            (pattern_of(row["pattern"]), row["operation"]) for row in document["operation"]
        ),
    )


@cache
def bundled_document() -> dict[str, Any]:
    """`roles.toml` as TOML tables."""
    text = files(__package__).joinpath("roles.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def rules_with(path: Path) -> NameRules:
    """The bundled rules with those of a user's file before all but communication, which is
    recognised first.

    Raises:
        InputError: the file cannot be read or a rule of it is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise InputError(f"{path}: cannot be read as rules ({why})") from error
    bundled = bundled_rules()
    communication = [rule for rule in bundled.rules if rule.meaning.communication]
    compute = [rule for rule in bundled.rules if not rule.meaning.communication]
    users = _user_rules(text, str(path))
    return NameRules((*communication, *users, *compute), bundled.operations)


def _bundled_rule(row: Mapping[str, Any]) -> NameRule:
    meaning = NameMeaning(
        kind=row["kind"],
        family=row.get("family") or FAMILY_OF_KIND[row["kind"]],
        role=row.get("role"),
        communication=row.get("communication"),
        memory=row.get("memory"),
    )
    unless = pattern_of(row["unless"]) if "unless" in row else None
    return NameRule(pattern_of(row["pattern"]), unless, meaning)


def _user_rules(text: str, source: str) -> tuple[NameRule, ...]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{source}: no TOML ({error}); see roles.toml for the form") from error
    rows = document.get("rule")
    if not isinstance(rows, list) or set(document) != {"rule"} or len(rows) > _MAX_RULES:
        raise InputError(f"{source}: must hold [[rule]] tables only, {_MAX_RULES:,} at most")
    return tuple(_user_rule(row, f"{source}: rule {place}") for place, row in enumerate(rows, 1))


def _user_rule(row: object, where: str) -> NameRule:
    if not isinstance(row, Mapping) or not {"pattern", "kind"} <= set(row) <= _USER_KEYS:
        raise InputError(f"{where}: has the keys pattern, kind and, optionally, role")
    text, kind, role = row["pattern"], row["kind"], row.get("role")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{where}: kind {kind!r} is none of {', '.join(KINDS)}")
    if role is not None and (not isinstance(role, str) or role not in ROLES):
        raise InputError(f"{where}: role {role!r} is none of {', '.join(ROLES)}")
    if not isinstance(text, str) or not 0 < len(text) <= _MAX_PATTERN:
        raise InputError(f"{where}: pattern is a text of 1 to {_MAX_PATTERN:,} characters")
    try:
        pattern = pattern_of(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: pattern is no regular expression ({error})") from error
    return NameRule(pattern, None, NameMeaning(kind, FAMILY_OF_KIND[kind], role))
