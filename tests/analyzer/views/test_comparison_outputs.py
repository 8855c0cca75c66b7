"""Comparisons and diffs as tables and Markdown: complete, in place, and safe to print."""

import re

import msgspec
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.schema.comparison_report import Change, Comparison, Diff
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.schema.run_report import Interval
from decodescope.analyzer.text.formatting import UNKNOWN, ratio_text
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_table import comparison_markdown, comparison_table
from decodescope.analyzer.vocabulary.words import change_text
from tests.helpers.answers import answer_of
from tests.helpers.comparison_reports import (
    ACCURACY,
    capture_of,
    range_of,
    runs_of,
    step_of,
    window_of,
)
from tests.helpers.rich_report import text_of

VARIANTS = ("eager", "compiled", "fused+graph", "fused+graph+fp8_e4m3")
LINKS = " https://x.example/ www.x.example"
HOSTILE = "a|b `c` *d* _e_ <img src=x onerror=alert(1)> [x](y) &amp; \\ \x1b[31mred\nnew"


def comparison(rounds: int = 4) -> Comparison:
    rates = {name: [100.0 * (i + 1) + r for r in range(rounds)] for i, name in enumerate(VARIANTS)}
    eager = window_of(
        [step_of(0, 900_000, {"host_wait": 300_000})],
        [
            range_of("decode_step", 600_000, 300_000),
            range_of("decode_step/norm", 200_000, 100_000),
            range_of("decode_step/mlp", 400_000, 200_000),
        ],
    )
    fused = window_of(
        [step_of(0, 500_000, {"graph_internal": 40_000})],
        [
            range_of("decode_step", 460_000, 40_000),
            range_of("decode_step/norm+mlp", 460_000, 40_000),
        ],
    )
    windows = {"eager": eager, **dict.fromkeys(VARIANTS[1:], fused)}
    return compare_runs(runs_of(rates), windows, (Finding("one", "said before"),))


def diff() -> Diff:
    base = window_of([step_of(i, 1000 + i, {}) for i in range(3)], capture=capture_of(None))
    return diff_reports(base, window_of([step_of(i, 900 + i, {}) for i in range(3)]))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_their_width(width: int) -> None:
    for shown in (comparison_table(comparison()), comparison_table(diff())):
        assert max(cell_len(line) for line in text_of(shown, width).splitlines()) <= width


def test_a_comparison_is_shown_completely() -> None:
    compared = comparison()
    outputs = (text_of(comparison_table(compared), 100), comparison_markdown(compared))
    for output in outputs:
        for words in (
            "llama-3.2-1b@random",
            "(random weights)",
            "NVIDIA H200",
            "4 rounds",
            "fused+graph+fp8_e4m3 ÷ eager",
            "faster",
            "x4",
            "against fp32 eager, 64 positions",
            "98.4",
            "figures of a step",
            "waiting for the host",
            "-300",
            "gone",
            "new",
            "(was mlp, norm)",
            "Where the time went per step: eager to compiled",
            "said before",
            "all in decode_step",
        ):
            assert words in _unescaped(output), words
        assert "waiting for a stream" not in output


def test_too_few_rounds_are_reported_instead_of_an_interval() -> None:
    for output in (
        text_of(comparison_table(comparison(2)), 80),
        comparison_markdown(comparison(2)),
    ):
        assert "no interval" in output
        assert "2 rounds: an interval needs at least 3" in output


def test_what_beats_a_variant_is_shown_beside_its_error() -> None:
    runs = runs_of({"eager": [100.0, 101.0, 102.0], "fused": [600.0, 601.0, 602.0]})
    runs += [
        msgspec.structs.replace(run, variant="mine", accuracy=None)
        for run in runs
        if run.variant == "eager"
    ]
    shown = compare_runs(runs, {})
    output = text_of(comparison_table(shown), 80)
    section = output.partition("Accuracy of the logits")[2].partition("beaten by")[2]
    assert [line.split()[-1] for line in section.splitlines()[1:3]] == ["fused", "nothing"]
    assert "a variant beats another if it has more tokens/s" in " ".join(section.split())
    (line,) = (
        line
        for line in comparison_markdown(shown).splitlines()
        if line.startswith("| eager |") and "1.2e-05" in line
    )
    assert line.endswith("| fused |")


def test_random_weights_of_a_diff_are_marked() -> None:
    for output in (text_of(comparison_table(diff()), 80), comparison_markdown(diff())):
        assert "(random weights)" in output
        assert "step from A to B: 1.00 µs → 901 ns, x0.900" in output


def test_sides_that_differ_are_named_first_and_have_no_ratio() -> None:
    device = msgspec.structs.replace(diff().base.devices[0], name="Tesla V100")
    other = msgspec.structs.replace(diff().other, devices=(device,))
    differing = diff_reports(window_of(diff().base.steps), other)
    shown = text_of(comparison_table(differing), 200)
    assert shown.startswith(
        "A and B differ in device NVIDIA H200 against Tesla V100: step 1.00 µs in A, 901 ns in B\n"
    )
    assert "x0.9" not in shown
    assert "faster (" not in shown


def test_the_part_that_changed_most_is_named_but_never_the_profilers_cost() -> None:
    steps = [step_of(0, 9, {})]
    base = window_of(steps, answer=answer_of({"qkv": 5_000, "host_wait": 900, "profiler": 1_000}))
    parts = {"qkv": 5_000, "host_wait": 2_000, "profiler": 90_000}
    other = window_of(steps, answer=answer_of(parts))
    output = text_of(comparison_table(diff_reports(base, other)), 120)
    assert "changed most: waiting for the host +1.10 µs, of the step +90.1 µs" in output


def test_a_diff_of_whole_traces_shows_totals() -> None:
    window = window_of([step_of(0, 9, {})])
    answer = msgspec.structs.replace(window.answer, step=None, step_ns=None)
    whole = msgspec.structs.replace(window, steps=(), answer=answer)
    for output in (
        text_of(comparison_table(diff_reports(whole, whole)), 80),
        comparison_markdown(diff_reports(whole, whole)),
    ):
        assert "Where the time went in all" in output
        assert "whole traces, without steps" in output
        assert "no steps on either side" in output


def test_a_markdown_parser_reads_hostile_names_as_text() -> None:
    """A parser of its own finds the hostile names as plain text, in the cells they stand in."""
    steps = [step_of(i, 10, {}) for i in range(3)]
    base, other = (
        window_of(steps, [range_of(HOSTILE, ns)], source=Source(HOSTILE + LINKS, "kineto", 1))
        for ns in (5, 9)
    )
    markdown = comparison_markdown(diff_reports(base, other))
    found = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    plain = plain_line(HOSTILE)
    inline = [token for token in found if token.type == "inline"]
    assert sum(_text(token) == plain for token in inline) == 1
    assert any(_text(token).startswith(f"A: {plain}{LINKS}") for token in inline)
    kinds = {child.type for token in inline for child in token.children or ()}
    assert kinds <= {"text", "softbreak"}
    tables = sum(token.type == "table_open" for token in found)
    rows = sum(token.type == "tr_open" for token in found)
    assert rows + tables == sum(line.startswith("|") for line in markdown.splitlines())
    assert not any(token.type.startswith("html") for token in found)
    assert "://" not in markdown
    assert "www." not in markdown


@pytest.mark.parametrize(
    ("base", "other", "text"),
    [
        (None, 1, UNKNOWN),
        (1, None, UNKNOWN),
        (5, 5, "same"),
        (0, 0, "same"),
        (0, 4, "new"),
        (4, 0, "gone"),
        (100, 299, "+199.0 %"),
        (100, 300, "x3.00"),
        (679, 3, "÷226"),
        (100, 80, "-20.0 %"),
    ],
)
def test_changes_in_words(base: float | None, other: float | None, text: str) -> None:
    assert change_text(Change(base, other)) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0044, "x1.004"), (0.163, "x0.163"), (9.9996, "x10.0"), (123.4, "x123")]
)
def test_ratios_in_words(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def _text(token: object) -> str:
    return "".join(child.content for child in getattr(token, "children", None) or ())


def _unescaped(markdown: str) -> str:
    return re.sub(r"\\(.)", r"\1", markdown)


def test_accuracy_is_shown_with_its_intervals_or_with_too_few_positions() -> None:
    known = msgspec.structs.replace(
        ACCURACY,
        kl_interval=Interval(1.1e-5, 1.3e-5, 0.95),
        top1_agreement_interval=Interval(0.972, 0.991, 0.95),
        perplexity_ratio_interval=Interval(1.0002, 1.0012, 0.95),
    )
    few = msgspec.structs.replace(known, positions_needed={"perplexity_ratio": 5200, "kl": None})
    runs = runs_of({"eager": [100.0] * 3}, accuracy=known)
    runs += runs_of({"fused": [600.0] * 3}, accuracy=few)
    shown = compare_runs(runs, {})
    for output in (text_of(comparison_table(shown), 200), comparison_markdown(shown)):
        plain = " ".join(output.split())
        for words in (
            "1.2e-05 (1.1e-05 to 1.3e-05)",
            "98.4 (97.2 to 99.1)",
            "1.0007 (1.0002 to 1.0012)",
            "1.0007 (too few positions)",
            "1.2e-05 (too few positions)",
            "fused: 64 positions are too few for the ratio of perplexity (1 to 1.001) and KL "
            "(1.1e-05 to 1.3e-05); about 5,200 would decide",
        ):
            assert words in plain, words
        assert "eager: 64 positions" not in plain
    assert [one.code for one in shown.comparison.findings].count("few_positions") == 1
