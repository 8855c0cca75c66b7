"""What holds for every declared column: one key, a title, and one line of help."""

from collections import defaultdict

import pytest

from tools.make_columns import tables_of_all

TABLES = dict(tables_of_all())


@pytest.mark.parametrize("title", TABLES)
def test_every_column_has_its_own_key_and_one_line_of_help(title: str) -> None:
    columns = TABLES[title]
    keys = [column.key for column in columns]
    assert len(set(keys)) == len(keys)
    for column in columns:
        assert column.help.endswith(".")
        assert len(column.help) <= 100
        assert "\n" not in column.help


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
