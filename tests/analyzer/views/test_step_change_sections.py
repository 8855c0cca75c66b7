"""A step by part and by layer in every output: what is shown adds up, and names stay text."""

import re

import msgspec
from markdown_it import MarkdownIt

from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.html.report_page import html_report
from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_sections import Section, summary_of
from decodescope.analyzer.views.comparison_table import comparison_markdown, comparison_table
from tests.helpers.planted.step_reports import step_report
from tests.helpers.rich_report import text_of

HOSTILE = "a|b `c` *d* <img src=x onerror=alert(1)> [x](y) &amp; \\ \x1b[31mred\nnew\u202e"


def layered(ns: int, layers: int = 20, idle_ns: int = 70) -> Report:
    each: dict[int | str, tuple[int | None, int]] = {n: (0, ns + n) for n in range(layers)}
    busy_ns = sum(time for _, time in each.values())
    return step_report({"qkv": (layers, busy_ns)}, each, {"host_wait": idle_ns})


def hostile_diff() -> Diff:
    diff = diff_reports(layered(1_500, 3), layered(2_501, 3))
    parts = (msgspec.structs.replace(diff.answer.parts[0], part=HOSTILE),)
    layers = (msgspec.structs.replace(diff.answer.layers[0], part=HOSTILE, kind="layer"),)
    answer = msgspec.structs.replace(diff.answer, parts=parts, layers=layers)
    return msgspec.structs.replace(diff, answer=answer)


def sections_of(diff: Diff) -> tuple[Section, Section]:
    parts, layers = (
        section
        for section in summary_of(diff).sections
        if section.title.startswith(("Where the time went", "By layer"))
    )
    return parts, layers


def rows_of(section: Section) -> list[list[str]]:
    columns = section.table.shown()
    return [[column.cell(row) for column in columns] for row in section.table.rows]


def assert_adds_up_as_shown(section: Section) -> None:
    """Every column of figures adds up to its last row, but for the rounding of each to whole µs."""
    *parts, step = rows_of(section)
    assert step[0] == "step"
    for column in (1, 2, 3):
        figures = [row[column].replace(",", "").replace(UNKNOWN, "0") for row in parts]
        rounding = (len(figures) + 1) / 2
        assert abs(sum(map(int, figures)) - int(step[column].replace(",", ""))) <= rounding


def test_what_is_shown_adds_up() -> None:
    diff = diff_reports(layered(1_500), layered(2_501_000, idle_ns=9_000))
    parts, layers = sections_of(diff)
    assert_adds_up_as_shown(parts)
    assert_adds_up_as_shown(layers)
    assert [row[0] for row in rows_of(parts)] == ["qkv", "waiting for the host", "step"]
    assert rows_of(parts)[0][1:4] == ["30", "50,020", "+49,990"]
    assert rows_of(parts)[0][-2:] == ["20", "20"]
    assert rows_of(layers)[0][0] == "layer 0"
    assert rows_of(layers)[12][0] == "9 more, together"
    assert len(rows_of(layers)) == 14


def test_few_layers_are_all_shown() -> None:
    _, layers = sections_of(diff_reports(layered(9, 12), layered(5, 12, 80)))
    assert_adds_up_as_shown(layers)
    assert len(rows_of(layers)) == 14
    assert not any("together" in row[0] for row in rows_of(layers))
    assert layers.note == ""


def test_more_layers_are_said_to_be_compared_by_their_mean() -> None:
    _, layers = sections_of(diff_reports(layered(9, 5), layered(9, 7)))
    assert_adds_up_as_shown(layers)
    assert {"5 layers", "2 more layers"} <= {row[0] for row in rows_of(layers)}
    assert "mean" in layers.note


def test_with_steps_on_one_side_there_is_no_table() -> None:
    answer = msgspec.structs.replace(layered(9).answer, step=None, step_ns=None)
    whole = msgspec.structs.replace(layered(9), steps=(), layers=(), answer=answer)
    diff = diff_reports(whole, layered(9))
    for text in (text_of(comparison_table(diff)), comparison_markdown(diff)):
        assert "Where the time went" not in text
        assert "By layer" not in text


def test_every_output_has_both_tables() -> None:
    diff = diff_reports(layered(1_500), layered(2_501, idle_ns=90_000))
    page = html_report("a title", [], diff)
    for text in (text_of(comparison_table(diff)), comparison_markdown(diff), page):
        for words in ("Where the time went", "By layer", "waiting for the host", "layer 7", "+20"):
            assert words in text.replace("\\", ""), words
    rows = re.findall(r'<th scope="row">layer \d+</th>', page)
    assert len(rows) == 20


def test_hostile_parts_stay_text() -> None:
    diff = hostile_diff()
    markdown = comparison_markdown(diff)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    inline = [token for token in tokens if token.type == "inline"]
    shown = ["".join(child.content for child in token.children or ()) for token in inline]
    assert shown.count(plain_line(HOSTILE)) == 2
    assert {child.type for token in inline for child in token.children or ()} <= {"text"}
    page = html_report("a title", [], diff)
    assert "<img" not in page
    assert page.count(r"\x1b[31mred\nnew\u202e") == 3
    for text in (markdown, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
