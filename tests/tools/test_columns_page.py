"""docs/columns.md is what the declarations of the tables say."""

from tools.make_columns import PAGE, columns_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == columns_page(), "run python -m tools.make_columns"
