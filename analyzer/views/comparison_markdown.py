"""A comparison or a diff as GitHub Markdown, for a pull request."""

import re
from collections.abc import Iterable

from decodescope.analyzer.formatting import plain_text
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.views.comparison_sections import Summary, comparison_summary, diff_summary
from decodescope.analyzer.views.pair_sections import Section

# An underscore inside a word is not emphasis, and kernel and range names are full of them.
_SPECIAL = re.compile(r"[\\`*\[\]{}|#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ENTITY = re.compile("[&<>]")


def comparison_markdown(comparison: Comparison) -> str:
    """What `comparison_table` shows, as Markdown."""
    return _markdown(comparison_summary(comparison))


def diff_markdown(diff: Diff) -> str:
    """What `diff_table` shows, as Markdown."""
    return _markdown(diff_summary(diff))


def _markdown(summary: Summary) -> str:
    title = f"## {_escaped(summary.title)}"
    if summary.weights_note:
        title += f" ({_escaped(summary.weights_note)})"
    blocks = [title, "\n".join(f"- {_escaped(fact)}" for fact in summary.facts)]
    if summary.gate:
        failures = [f"- {_escaped(failure)}" for failure in summary.failures]
        blocks.append(
            "\n".join([f"**{_escaped(summary.gate)}**", *([""] if failures else []), *failures])
        )
    for section in summary.sections:
        blocks += [f"### {_escaped(section.title)}", _table(section)]
        if section.note:
            blocks.append(_escaped(section.note))
    if summary.findings:
        blocks += ["### Findings", "\n".join(f"- {_escaped(one)}" for one in summary.findings)]
    return "\n\n".join(blocks) + "\n"


def _table(section: Section) -> str:
    rules = [
        ":--" if index == 0 or column in section.words else "--:"
        for index, column in enumerate(section.columns)
    ]
    rows = (map(_escaped, row) for row in section.rows)
    return "\n".join(_row(row) for row in (map(_escaped, section.columns), rules, *rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """`text` on one line, with nothing in it that Markdown or HTML would read."""
    line = " ".join(plain_text(text).split())
    return _ENTITY.sub(lambda found: _ENTITIES[found[0]], _SPECIAL.sub(r"\\\g<0>", line))
