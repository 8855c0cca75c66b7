"""Files of rules: the bundled `roles.toml`, and a user's own."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.kinds import FAMILY_OF_KIND, KINDS, ROLES
from decodescope.analyzer.names.patterns import Pattern, pattern_of
from decodescope.analyzer.names.rules import NameMeaning, NameRule, NameRules, OperationRule

_MAX_RULES = 10_000
_MAX_PATTERN = 10_000
_USER_KEYS = frozenset(("pattern", "kind", "role"))


def kernel_meaning(name: str) -> NameMeaning:
    """What a kernel's name says by the bundled rules."""
    return bundled_rules().meaning(name)


@cache
def bundled_rules() -> NameRules:
    """The rules of `roles.toml`."""
    document = bundled_document()
    return NameRules(
        rules=tuple(_bundled_rule(row) for row in document["rule"]),
        operations=tuple(
            OperationRule(pattern_of(row["pattern"]), row["operation"])
            for row in document["operation"]
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
    others = [rule for rule in bundled.rules if not rule.meaning.communication]
    users = _user_rules(text, str(path))
    return NameRules((*communication, *users, *others), bundled.operations)


def _bundled_rule(row: Mapping[str, Any]) -> NameRule:
    meaning = NameMeaning(
        kind=row["kind"],
        family=row.get("family") or FAMILY_OF_KIND[row["kind"]],
        role=row.get("role"),
        communication=row.get("communication"),
        memory=row.get("memory"),
        own=row.get("own", False),
    )
    unless = pattern_of(row["unless"]) if "unless" in row else None
    return NameRule(pattern_of(row["pattern"]), unless, meaning)


def _user_rules(text: str, source: str) -> tuple[NameRule, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
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
    pattern = _checked(text, where)
    return NameRule(pattern, None, NameMeaning(kind, FAMILY_OF_KIND[kind], role))


def _checked(text: str, where: str) -> Pattern:
    try:
        return pattern_of(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{where}: pattern is no regular expression ({error})") from error
