"""`explain`: definitions for people and scripts."""

import json

import pytest

from decodescope.analyzer.vocabulary.terms import find_term, read_terms
from tests.helpers.command import Command


@pytest.mark.parametrize("words", [("step", "time"), ("STEP_TIME",), ("step-times",)])
def test_a_term_is_printed_with_its_definition(
    decodescope: Command, words: tuple[str, ...]
) -> None:
    done = decodescope("explain", *words)
    assert done.code == 0
    first, *lines = done.out.splitlines()
    assert first == "Step time"
    assert " ".join(" ".join(lines).split()) == find_term("step time").definition
    assert json.loads(decodescope("explain", *words, "--json").out)["name"] == "Step time"


def test_rows_of_a_definition_have_lines_of_their_own(decodescope: Command) -> None:
    lines = decodescope("explain", "bounds").out.splitlines()
    assert "copies: copies and fills without a kernel" in lines


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("waiting for the host", "Gap classes: before call began: the host was late."),
        ("kernel-bound", "Bound: kernels over their limit"),
        ("of limit %", "The answer: The limit ÷ the time."),
        ("over", "The answer: Time minus limit."),
        ("KL", "Variants, or two traces: The KL divergence from the reference"),
    ],
)
def test_words_and_columns_of_the_first_lines_are_explained(
    decodescope: Command, words: str, says: str
) -> None:
    done = decodescope("explain", words)
    assert done.code == 0
    assert done.out.startswith(f"{words}\n{says}")


def test_a_word_without_a_definition_leads_to_those_that_have_it(decodescope: Command) -> None:
    assert "nearest: Kind of an op" in decodescope("explain", "norm").only_line


def test_without_a_term_all_are_listed(decodescope: Command) -> None:
    shown = " ".join(decodescope("explain").out.split())
    assert all(term.name in shown for term in read_terms())
    listed = json.loads(decodescope("explain", "--json").out)
    assert [row["name"] for row in listed] == [term.name for term in read_terms()]


def test_an_unknown_term_is_one_line_with_the_nearest(decodescope: Command) -> None:
    done = decodescope("explain", "stpe", "time")
    assert done.code == 2
    assert done.only_line.startswith("decodescope: no term stpe time: the nearest: Step time")


def test_a_shell_completes_terms(
    decodescope: Command, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_DECODESCOPE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "decodescope explain st")
    monkeypatch.setenv("COMP_CWORD", "2")
    shown = decodescope().out
    assert [line.partition(",")[2] for line in shown.splitlines()] == [
        term.name.replace(" ", "_") for term in read_terms() if term.name.startswith("St")
    ]
