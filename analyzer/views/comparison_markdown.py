"""A comparison or a diff as GitHub Markdown, for a pull request."""

import re
from collections.abc import Iterable

from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.comparison_sections import summary_of
from decodescope.analyzer.views.pair_sections import Section

# An underscore inside a word is not emphasis, and kernel and range names are full of them. GitHub
# makes a link of "://" and of "www.".
_SPECIAL = re.compile(
    r"[\\`*\[\]{}|#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def comparison_markdown(compared: Comparison | Diff) -> str:
    """What `comparison_table` shows, as Markdown."""
    summary = summary_of(compared)
    title = f"## {_escaped(summary.title)}"
    if summary.weights_note:
        title += f" ({_escaped(summary.weights_note)})"
    blocks = [title, _list(summary.facts)]
    if summary.gate:
        sentence = f"**{_escaped(summary.gate_sentence)}**"
        blocks.append("\n\n".join(filter(None, (sentence, _list(summary.failures)))))
    for section in summary.sections:
        blocks += [f"### {_escaped(section.title)}", _table(section)]
        if section.note:
            blocks.append(_escaped(section.note))
    if summary.findings:
        blocks += ["### Findings", _list(finding.message for finding in summary.findings)]
    return "\n\n".join(blocks) + "\n"


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


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
    """`text` on one line, without anything that Markdown or HTML would interpret."""
    return _SPECIAL.sub(r"\\\g<0>", plain_line(text)).translate(_ENTITIES)
