"""What a kernel's name says about it, by the rules of `roles.toml`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from decodescope.analyzer.names.kinds import KINDS, OTHER_OPERATION, UNKNOWN, UNKNOWN_LETTER
from decodescope.analyzer.names.patterns import Pattern

# What a kernel computes is said early in its name; what follows are the types of its arguments.
_SEARCHED = 2_000

Memory = Literal["copy", "fill"]


@dataclass(frozen=True, slots=True)
class NameMeaning:
    """What a kernel's name says about it.

    `kind` is what it computes, a word of `KINDS`, or `UNKNOWN`; `family` one of
    `FAMILIES`; `role` its role if the name alone decides it. A communicating kernel has a kind of
    `communication`, and the collective `operation` that it does, `OTHER_OPERATION` if unknown.
    `memory`: it only copies or fills memory. `own`: it is a kernel of decodescope.
    """

    kind: str
    family: str
    role: str | None = None
    communication: str | None = None
    operation: str | None = None
    memory: Memory | None = None
    own: bool = False

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

    def is_of(self, name: str, lower: str) -> bool:
        """Whether it is the rule of `name`, which is `lower` in lower case."""
        if not self.pattern.found_in(name, lower):
            return False
        return self.unless is None or not self.unless.found_in(name, lower)


@dataclass(frozen=True, slots=True)
class OperationRule:
    """A communicating kernel whose name contains `pattern` does the collective `operation`."""

    pattern: Pattern
    operation: str


@dataclass(frozen=True, slots=True, eq=False)
class NameRules:
    """Rules in the order in which they are tried; `operations` are tried for communication."""

    rules: tuple[NameRule, ...]
    operations: tuple[OperationRule, ...]

    def meaning(self, name: str) -> NameMeaning:
        """What a name says, its first `_SEARCHED` characters."""
        return _meaning(self, name)

    def meanings(self, names: Sequence[str]) -> list[NameMeaning]:
        """What each name says."""
        return [_meaning(self, name) for name in names]


@lru_cache(maxsize=16_384)
def _meaning(rules: NameRules, name: str) -> NameMeaning:
    searched = name[:_SEARCHED]
    lower = searched.lower()
    for rule in rules.rules:
        if rule.is_of(searched, lower):
            if rule.meaning.communication is None:
                return rule.meaning
            return replace(rule.meaning, operation=_operation(rules, searched, lower))
    return _NO_MEANING


def _operation(rules: NameRules, name: str, lower: str) -> str:
    for rule in rules.operations:
        if rule.pattern.found_in(name, lower):
            return rule.operation
    return OTHER_OPERATION
