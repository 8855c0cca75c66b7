"""A step by part in every output: what is shown adds up, and names stay text."""

import msgspec
from markdown_it import MarkdownIt

from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.html.report_page import html_report
from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_table import (
    Section,
    comparison_markdown,
    comparison_table,
    summary_of,
)
from tests.helpers.planted.step_reports import step_report
from tests.helpers.rich_report import text_of

HOSTILE = "a|b `c` *d* <img src=x onerror=alert(1)> [x](y) &amp; \\ \x1b[31mred\nnew\u202e"


def step_of(ns: int, ops: int = 20, idle_ns: int = 70) -> Report:
    return step_report({"qkv": (ops, ops * ns + 190)}, idle={"host_wait": idle_ns})


def hostile_diff() -> Diff:
    diff = diff_reports(step_of(1_500, 3), step_of(2_501, 3))
    parts = (msgspec.structs.replace(diff.answer.parts[0], part=HOSTILE),)
    answer = msgspec.structs.replace(diff.answer, parts=parts)
    return msgspec.structs.replace(diff, answer=answer)


def section_of(diff: Diff) -> Section:
    (parts,) = (s for s in summary_of(diff).sections if s.title.startswith("Where the time went"))
    return parts


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
    diff = diff_reports(step_of(1_500), step_of(2_501_000, idle_ns=9_000))
    parts = section_of(diff)
    assert_adds_up_as_shown(parts)
    assert [row[0] for row in rows_of(parts)] == ["qkv", "waiting for the host", "step"]
    assert rows_of(parts)[0][1:4] == ["30", "50,020", "+49,990"]
    assert rows_of(parts)[0][-2:] == ["20", "20"]


def test_with_steps_on_one_side_there_is_no_table() -> None:
    answer = msgspec.structs.replace(step_of(9).answer, step=None, step_ns=None)
    whole = msgspec.structs.replace(step_of(9), steps=(), layers=(), answer=answer)
    diff = diff_reports(whole, step_of(9))
    for text in (text_of(comparison_table(diff)), comparison_markdown(diff)):
        assert "Where the time went" not in text


def test_every_output_has_the_table() -> None:
    diff = diff_reports(step_of(1_500), step_of(2_501, idle_ns=90_000))
    page = html_report("a title", [], diff)
    for text in (text_of(comparison_table(diff)), comparison_markdown(diff), page):
        for words in ("Where the time went", "waiting for the host", "qkv", "+20"):
            assert words in text.replace("\\", ""), words


def test_hostile_parts_stay_text() -> None:
    diff = hostile_diff()
    markdown = comparison_markdown(diff)
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(markdown)
    inline = [token for token in tokens if token.type == "inline"]
    shown = ["".join(child.content for child in token.children or ()) for token in inline]
    assert shown.count(plain_line(HOSTILE)) == 1
    assert {child.type for token in inline for child in token.children or ()} <= {"text"}
    page = html_report("a title", [], diff)
    assert "<img" not in page
    assert page.count(r"\x1b[31mred\nnew\u202e") == 2
    for text in (markdown, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
