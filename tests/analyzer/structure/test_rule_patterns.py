"""Plain words of a rule are searched apart: it matches what its whole pattern does."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.structure.name_rules import (
    KINDS,
    UNKNOWN,
    NameRule,
    bundled_rules,
    rules_with,
)
from decodescope.analyzer.timing.communication import communication_kind

PIECES = [
    *("gemm", "Norm", "x::y", "a b", "_mm_", r"\bflash", "rope(?![a-z])", "(add|b)?mm", "[a|b]c"),
    *(r"a\|b", "w(x(y|z)|q)+", "^void", r"[^\]|]d", "k$", r"\\", "(?:silu|gelu)_and", "re.duce"),
]
# What is split in no way that could go wrong: flags, comments, odd sets, nothing at all.
WHOLE = ["(?i)a|b", "(?x) a b | c", "(?# a | b )c|d", "[]|]e|f", "[^]|]e|f", "g||h", "|h", "g|"]
NAMES = st.text(alphabet="abcdefghklmnopqrsuvwxyzGEMNRO|_ :.]\\", max_size=24)
REAL = ["void flash_fwd<rope>", "a|bc", "GEMM_kernel", "silu_and_mul", "x::y norm", "addmm", "k"]


def rule_of(folder: Path, pattern: str) -> NameRule:
    path = folder / "mine.toml"
    path.write_text(f"[[rule]]\npattern = '''{pattern}'''\nkind = 'norm'\n")
    return rules_with(path).rules[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
    names=st.lists(NAMES, max_size=6),
)
def test_any_pattern_of_pieces(folder: Path, pieces: list[str], names: list[str]) -> None:
    assert_as_a_whole(rule_of(folder, "|".join(pieces)), "|".join(pieces), [*names, *REAL])


@pytest.mark.parametrize("pattern", WHOLE)
@given(names=st.lists(NAMES, max_size=10))
def test_patterns_that_are_searched_whole(folder: Path, pattern: str, names: list[str]) -> None:
    assert_as_a_whole(rule_of(folder, pattern), pattern, [*names, *REAL, ""])


def assert_as_a_whole(rule: NameRule, pattern: str, names: list[str]) -> None:
    for name in names:
        expected = re.search(pattern, name, re.IGNORECASE) is not None
        assert rule.is_of(name, name.lower()) == expected, (pattern, name)


def test_the_bundled_rules_as_whole_patterns(recorded_names: list[str]) -> None:
    """The first bundled rule whose whole pattern is in a name decides its kind."""
    text = files("decodescope.analyzer.structure").joinpath("roles.toml").read_text()
    rows = tomllib.loads(text)["rule"]
    compiled = [(re.compile(row["pattern"], re.IGNORECASE), row["kind"]) for row in rows]
    found = bundled_rules().meanings(recorded_names)
    for name, meaning in zip(recorded_names, found, strict=True):
        if communication_kind(name) is None:
            kinds = (kind for pattern, kind in compiled if pattern.search(name))
            kind = next(kinds, None)
            assert meaning.letter == (KINDS[kind] if kind else UNKNOWN), name


@pytest.fixture(scope="module")
def recorded_names() -> list[str]:
    """The names of everything in the recordings that come along."""
    return sorted({name for path in bundled_recordings() for name in load(path).names})
