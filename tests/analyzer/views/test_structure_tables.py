"""Layers, roles and interruptions in tables, pages and CSV, at every width and with any
names."""

import csv
import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from decodescope.analyzer import analyze
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.html.report_page import VariantView, html_report
from decodescope.analyzer.names.rules import ROLES, rules_with
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_report import StructureReport
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.views.csv_export import render_csv
from decodescope.analyzer.views.report_table import SECTIONS, report_table
from decodescope.analyzer.views.table_parts import rich_table
from decodescope.analyzer.vocabulary.class_colors import FAMILY_COLORS, ROLE_FAMILIES
from decodescope.analyzer.vocabulary.words import layers_words
from tests.helpers.answers import answer_of
from tests.helpers.foreign.layered import interrupted, slow_layered
from tests.helpers.hostile import HOSTILE, unsafe

ANSWER = replace(
    answer_of({"communication": 7_170_000, "norm": 70_000, "qkv": 2_000_000, "host_wait": 10_000}),
    limit_ns=6_555_210,
)
KNOWN = (
    {
        "ops": 1_144,
        "bytes": 12_345_678_901,
        "limit_ns": 6_543_210,
        "over_ns": 626_790,
        "confidence": "exact",
    },
    {"ops": 72},
    {
        "ops": 72,
        "bytes": 1_000_000,
        "limit_ns": 12_000,
        "over_ns": 1_988_000,
        "confidence": "partial",
    },
    {},
)


def lines_of(table: object, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(width=width, file=file, record=True, markup=False, emoji=False)
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120, 160])
@pytest.mark.parametrize("known", [True, False])
def test_no_column_of_parts_is_cut(width: int, known: bool) -> None:
    parts = ANSWER.parts
    if known:
        parts = tuple(replace(part, **more) for part, more in zip(ANSWER.parts, KNOWN, strict=True))
    table = answer_table(replace(ANSWER, parts=parts))
    lines = lines_of(rich_table(table, width), width)
    assert len(lines) == 5
    assert not any("…" in line for line in lines)
    has_details = known and width >= 120
    for heading, text in (("of limit %", "91.3"), ("GB/s", "1,722"), ("known by", "name")):
        assert (heading in lines[0]) == (text in lines[1].split()) == has_details
    assert ("6.54 ms" in lines[1]) == known
    if has_details:
        assert "1,144" in lines[1].split()
        known_by = [line.replace("█", "").split()[-1] for line in lines[1:]]
        assert known_by == ["name", UNKNOWN, "place", UNKNOWN]


def test_layers_in_words() -> None:
    one = StructureReport("ranges", 1, 1, (7,), 0, "exact", (1,), 0)
    assert layers_words(one) == (
        "1 layer (1 of 7 ops), 1 op before and 0 after them, as the ranges name them"
    )


def test_every_role_has_a_family() -> None:
    assert set(ROLE_FAMILIES) == set(ROLES)
    assert set(ROLE_FAMILIES.values()) <= set(FAMILY_COLORS)


def hostile_report() -> Report:
    report = analyze(interrupted(slow_layered(HOSTILE))).report
    assert report.structure is not None
    assert report.structure.layers == 2
    assert len(report.interruptions) == 2
    assert HOSTILE[:20] in report.interruptions[1].evidence
    return report


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_show_hostile_kernels_with_roles_as_text(width: int) -> None:
    report = hostile_report()
    for show in ((), [section.name for section in SECTIONS]):
        lines = lines_of(report_table(report, show), width)
        assert unsafe("\n".join(lines)) == ""
        assert any(line.startswith("2 layers") for line in lines) == bool(show)
        assert any("Interruptions" in line for line in lines) == bool(show)
        assert max(len(Text(line)) for line in lines) <= width


def test_the_page_shows_hostile_kernels_with_roles_as_text() -> None:
    report = hostile_report()
    page = html_report("it", [VariantView("it", report, None)], None)
    assert "Parts of a step" in page
    assert unsafe(page) == ""
    assert "<b>`" not in page
    assert "<link" not in page
    assert not re.search(r"<a [^>]*x\.example", page)


def test_csv_shows_hostile_kernels_with_roles_as_text() -> None:
    report = hostile_report()
    for by in ("kernel", "range", "gap"):
        text = render_csv(report, by)
        assert unsafe(text.replace("\r", "")) == ""
        for row in csv.reader(io.StringIO(text)):
            assert not any(cell[:1] in "=+@" for cell in row if cell)


def test_a_role_that_is_none_is_named_as_text(tmp_path: Path) -> None:
    rules = tmp_path / "roles.toml"
    role = HOSTILE.encode("unicode_escape").decode()
    quoted = '"' + "".join(f"\\u{ord(one):04x}" for one in HOSTILE) + '"'
    rules.write_text(f'[[rule]]\npattern = "a"\nkind = "norm"\nrole = {quoted}\n')
    with pytest.raises(InputError) as error:
        rules_with(rules)
    assert unsafe(f"{error.value}") == ""
    assert role[:20] in f"{error.value}"
