"""The columns of tables that only the app has are on docs/columns.md too, for `?`."""

from typing import Any

import pytest

from decodescope.analyzer.tables.column_help import help_of, help_sections
from decodescope.analyzer.tables.columns import Column
from decodescope.tui.model.comparing import ComparisonState
from decodescope.tui.model.shelf import Shelf
from decodescope.tui.panels import files, log_table
from decodescope.tui.panels.comparing import setup


@pytest.mark.parametrize(
    ("title", "columns"),
    [
        ("Files", files._columns(Shelf())),
        ("The log", log_table._COLUMNS),
        (
            "What to compare",
            (*setup._candidate_columns("variant"), *setup._run_columns(ComparisonState())),
        ),
    ],
)
def test_columns_of_the_app_have_the_help_of_their_table(
    title: str, columns: tuple[Column[Any], ...]
) -> None:
    section = help_sections()[title]
    assert [(row, heading) for row, (heading, _) in section.items()] == [
        (column.key, column.heading) for column in columns
    ]
    assert list(help_of(columns).items()) == list(section.values())
