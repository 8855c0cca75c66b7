"""`explain`: the definition of a term of the screens, tables and JSON, from docs/terms.md."""

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import rich_click as click
from click.shell_completion import CompletionItem

from decodescope.cli.options import json_option
from decodescope.cli.output import print_json, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from decodescope.analyzer.vocabulary.terms import Term


def _completed(
    context: click.Context, parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    from decodescope.analyzer.vocabulary.terms import read_terms

    names = (term.name.replace(" ", "_") for term in read_terms())
    return [CompletionItem(name) for name in names if name.lower().startswith(start.lower())]


@click.command()
@click.argument("words", metavar="[TERM]", nargs=-1, shell_complete=_completed)
@json_option
def explain(words: tuple[str, ...], as_json: bool) -> None:
    """Print the definition of a term, column or part of a step, as "step time", or list all terms.

    Case, plurals, and _ or - for a space do not matter.
    """
    from decodescope.analyzer.tables.column_help import column_terms
    from decodescope.analyzer.vocabulary.terms import find_term, read_terms

    result = find_term(" ".join(words), column_terms()) if words else read_terms()
    if as_json:
        print_json(result)
    elif isinstance(result, tuple):
        print_table(result, _contents)
    else:
        print_table((result.name, *result.definition.splitlines()), _definition)


def _definition(lines: tuple[str, ...]) -> "RenderableType":
    from rich.text import Text

    return Text(lines[0], style="bold").append("\n".join(("", *lines[1:])), style="not bold")


def _contents(terms: "tuple[Term, ...]") -> "RenderableType":
    from decodescope.analyzer.views.table_parts import facts

    sections = groupby(terms, key=attrgetter("section"))
    return facts({title: ", ".join(term.name for term in of_it) for title, of_it in sections})
