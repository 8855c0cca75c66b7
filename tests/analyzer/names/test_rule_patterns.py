"""Plain words of a rule are searched apart: it matches what its whole pattern does."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.names.rules import (
    UNKNOWN,
    Pattern,
    bundled_document,
    kernel_meaning,
    pattern_of,
)
from decodescope.analyzer.recordings.bundled import bundled_recordings

PIECES = [
    *("gemm", "Norm", "x::y", "a b", "_mm_", r"\bflash", "rope(?![a-z])", "(add|b)?mm", "[a|b]c"),
    *(r"a\|b", "w(x(y|z)|q)+", "^void", r"[^\]|]d", "k$", r"\\", "(?:silu|gelu)_and", "re.duce"),
]
# What is split in no way that could go wrong: flags, comments, odd sets, nothing at all.
WHOLE = ["(?i)a|b", "(?x) a b | c", "(?# a | b )c|d", "[]|]e|f", "[^]|]e|f", "g||h", "|h", "g|"]
NAMES = st.text(alphabet="abcdefghklmnopqrsuvwxyzGEMNRO|_ :.]\\", max_size=24)
REAL = ["void flash_fwd<rope>", "a|bc", "GEMM_kernel", "silu_and_mul", "x::y norm", "addmm", "k"]


@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
    names=st.lists(NAMES, max_size=6),
)
def test_any_pattern_of_pieces(pieces: list[str], names: list[str]) -> None:
    assert_as_a_whole("|".join(pieces), [*names, *REAL])


@pytest.mark.parametrize("pattern", WHOLE)
@given(names=st.lists(NAMES, max_size=10))
def test_patterns_that_are_searched_whole(pattern: str, names: list[str]) -> None:
    assert_as_a_whole(pattern, [*names, *REAL, ""])


def assert_as_a_whole(text: str, names: list[str]) -> None:
    pattern: Pattern = pattern_of(text)
    for name in names:
        expected = re.search(text, name, re.IGNORECASE) is not None
        assert pattern.found_in(name, name.lower()) == expected, (text, name)


def test_the_bundled_rules_as_whole_patterns(recorded_names: list[str]) -> None:
    """The first bundled rule whose whole pattern is in a name, and no `unless`, decides its kind
    and family."""
    meanings = {name: kernel_meaning(name) for name in recorded_names}
    for name, meaning in meanings.items():
        kind = next(
            (row["kind"] for row in bundled_document()["rule"] if holds(row, name)), UNKNOWN
        )
        assert meaning.kind == kind, name


def holds(row: dict[str, str], name: str) -> bool:
    """Whether the whole patterns of a rule hold for a name."""
    unless = row.get("unless")
    excluded = unless is not None and re.search(unless, name, re.IGNORECASE) is not None
    return re.search(row["pattern"], name, re.IGNORECASE) is not None and not excluded


@pytest.fixture(scope="module")
def recorded_names() -> list[str]:
    """The names of everything in the recordings that come along."""
    return sorted({name for path in bundled_recordings() for name in load(path).names})
