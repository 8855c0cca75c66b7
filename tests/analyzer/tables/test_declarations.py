"""Every declared column has one key, a title, and one line of help on docs/columns.md."""

from collections import defaultdict

import pytest

from decodescope.analyzer.tables.column_help import help_of, help_sections
from tests.helpers.every_table import tables_of_all

TABLES = dict(tables_of_all())
# The columns of these are declared in tui.
OF_THE_APP = {"What to compare", "Files", "The log"}


@pytest.mark.parametrize("title", TABLES)
def test_every_column_has_its_own_key_and_one_line_of_help(title: str) -> None:
    columns = TABLES[title]
    keys = [column.key for column in columns]
    assert len(set(keys)) == len(keys)
    found = help_of(columns)
    assert found.keys() == {column.heading for column in columns if column.heading}
    for words in found.values():
        assert words.endswith(".")
        assert len(words) <= 113


def test_the_page_lists_the_columns_of_each_table_in_their_order() -> None:
    """A table whose columns another one has too is in that one's section."""
    page = {
        title: [(heading, key, words.endswith(" Only in CSV.")) for key, (heading, words) in rows]
        for title, rows in ((title, rows.items()) for title, rows in help_sections().items())
    }
    declared = {
        title: [(column.heading or "(no title)", column.key, column.csv_only) for column in columns]
        for title, columns in TABLES.items()
    }
    for title in page.keys() & declared.keys():
        assert [row for row in page[title] if row in declared[title]] == declared[title]
    of_outputs = [row for title in page.keys() - OF_THE_APP for row in page[title]]
    assert set(of_outputs) == {row for rows in declared.values() for row in rows}


def test_a_key_has_the_same_unit_of_figures_wherever_it_is_a_time() -> None:
    """A time in nanoseconds is never shown as a plain number."""
    for columns in TABLES.values():
        for column in columns:
            if column.key.endswith("_ns"):
                assert column.write(1_500_000) != "1,500,000", column.key


def test_figures_of_the_same_key_have_the_same_title() -> None:
    """Where titles differ, it is because the figures do."""
    titles: dict[str, set[str]] = defaultdict(set)
    for columns in TABLES.values():
        for column in columns:
            titles[column.key].add(column.title)
    same = ("share", "idle_ns", "busy_ns", "window_ns", "overlap_ns", "launch_calls", "host_ns")
    assert [key for key in same if len(titles[key]) != 1] == []
    assert titles["roofline.share_of_limit"] | titles["share_of_limit"] == {"of limit"}
