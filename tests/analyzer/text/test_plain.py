"""What is shown of strings from outside."""

import dataclasses
import re
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.text.plain import plain, plain_json, plain_line, plain_text
from tests.helpers.hostile import UNSAFE, anything


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("layers.0 [/] [link=x] a\\b", "layers.0 [/] [link=x] a\\b"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("a\nb\tc\rd\u2028e", r"a\nb\tc\rd\u2028e"),
        ("\u202egnp.exe\u200b\ufeff", r"\u202egnp.exe\u200b\ufeff"),
        ("caf\udce9.json", r"caf\xe9.json"),
        ("\ud83d", r"\ud83d"),
        ("\U000e0041", r"\U000e0041"),
        ("1\u00a0000\u3000µs", "1 000 µs"),
        ("\u0645\u06cc\u200c\u062e 👩\u200d💻", "\u0645\u06cc\u200c\u062e 👩\u200d💻"),
        ("ke\u200drnel\u200d", r"ke\u200drnel\u200d"),
        ("é\u200d\u202e", r"é\u200d\u202e"),
    ],
)
def test_what_is_not_printable_is_written_out(text: str, shown: str) -> None:
    assert plain_line(text) == shown


@given(anything)
def test_a_line_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = plain_line(text)
    shown.encode()
    assert not UNSAFE & set(map(unicodedata.category, re.sub("[\u200c\u200d]", "", shown)))
    assert plain_line(shown) == shown


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" ")))
def test_printable_text_is_not_touched(text: str) -> None:
    assert plain_line(text) is text
    assert plain_text(text) == text


@given(st.lists(anything))
def test_a_text_keeps_its_lines(lines: list[str]) -> None:
    lines = [line.replace("\n", "").rstrip("\r") for line in lines]
    whole = plain_text("\n".join(lines))
    assert whole == "\n".join(plain_line(line.replace("\t", "    ")) for line in lines)


class Part(msgspec.Struct, frozen=True):
    name: str
    ns: float
    output_text: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    parts: tuple[Part, ...]
    totals: dict[str, list[int | str]]


def test_a_structure_is_copied_with_its_strings_written_out() -> None:
    whole = Whole(
        (Part("a\x1b", 1.5, "one\ntwo\x1b"), Part("b", float("inf"))), {"k\n": [1, "x\x07", True]}
    )
    assert plain(whole) == Whole(
        (Part(r"a\x1b", 1.5, "one\ntwo\\x1b"), Part("b", float("inf"))),
        {r"k\n": [1, r"x\x07", True]},
    )
    assert plain(plain(whole)) == plain(whole)


@given(st.dictionaries(anything, st.lists(st.floats(allow_nan=False) | st.none() | st.integers())))
def test_a_structure_keeps_its_figures(found: dict[str, list[float | None]]) -> None:
    assert list(plain(found).values())[-1:] == list(found.values())[-1:]


@given(st.dictionaries(st.text(), st.lists(st.text())))
def test_json_is_printable_and_means_the_same(found: dict[str, list[str]]) -> None:
    shown = plain_json(msgspec.json.encode(found))
    assert shown.decode().isprintable()
    assert msgspec.json.decode(shown) == found
