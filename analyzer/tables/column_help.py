"""The help of columns from docs/columns.md, which the package carries as columns.md."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.tables.columns import Column
from decodescope.analyzer.vocabulary.terms import Term

_ROW = re.compile(r"^- \*\*(.*?)\*\* `(.*?)`: (.*)$", re.MULTILINE)


@cache
def help_sections() -> dict[str, dict[str, tuple[str, str]]]:
    """For each table of the page, the heading and the help of its columns by their keys. A row of
    {class} stands for one of each class of idle time."""
    page = files("decodescope").joinpath("columns.md").read_text(encoding="utf-8")
    page = re.sub(".*{class}.*", lambda row: _of_each_class(row[0]), page)
    titles = (section.partition("\n") for section in page.split("\n## ")[1:])
    return {
        title: {key: (heading, words) for heading, key, words in _ROW.findall(rows)}
        for title, _, rows in titles
    }


def _of_each_class(row: str) -> str:
    return "\n".join(row.replace("{class}", name) for name in GAP_CLASSES)


def column_terms() -> Iterator[Term]:
    """The columns of all tables as terms, by their headings."""
    for title, columns in help_sections().items():
        for heading, words in columns.values():
            # Without its unit: "KL, nats".
            yield Term(heading.partition(",")[0], "Columns", f"{title}: {words}")


def help_of(columns: Iterable[Column[Any]]) -> dict[str, str]:
    """The help of the columns of one table, by heading: of the table of the page that has most of
    their keys and headings. Columns without a heading have none."""
    # A bar has the help of the share that it shows.
    shown = {column.heading: column.key.removesuffix(".bar") for column in columns}

    def alike(section: dict[str, tuple[str, str]]) -> int:
        known = [(heading, section[key][0]) for heading, key in shown.items() if key in section]
        return sum(1 + (heading == other) for heading, other in known)

    section = max(help_sections().values(), key=alike)
    return {
        heading: section[key][1] for heading, key in shown.items() if heading and key in section
    }
