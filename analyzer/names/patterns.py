"""Regular expressions whose plain words are searched apart."""

import re
from dataclasses import dataclass

_WORD = re.compile(r"[\w:, ]+", re.ASCII)
# Flags, comments, and sets that begin with their end.
_UNUSUAL = re.compile(r"\(\?[aiLmsux#-]|\[\^?\]")


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


def pattern_of(text: str) -> Pattern:
    """The pattern of a regular expression.

    Raises:
        re.error, RecursionError, OverflowError: it is no regular expression.
    """
    words, others = _words_apart(text)
    if not others:
        return Pattern(words, None)
    anchored = all(one.startswith("^") for one in others)
    return Pattern(words, re.compile("|".join(others), re.IGNORECASE), anchored)


def _words_apart(pattern: str) -> tuple[tuple[str, ...], list[str]]:
    """The alternatives of a pattern that are plain words, in lower case, and the others: a name
    matches the whole if it contains a word or matches one of the others."""
    alternatives = [pattern] if _UNUSUAL.search(pattern) else _alternatives(pattern)
    if "" in alternatives:
        return (), [pattern]
    words = tuple(one.lower() for one in alternatives if _WORD.fullmatch(one))
    return words, [one for one in alternatives if not _WORD.fullmatch(one)]


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
