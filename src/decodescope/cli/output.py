"""What a command prints and writes: data on stdout or in files, progress and messages on stderr."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import rich_click as click

from decodescope.analyzer.errors import InputError, RegressionFound
from decodescope.analyzer.files import check_writable, encode_json, write_atomically, write_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from decodescope.analyzer import Analysis
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate

Result = TypeVar("Result")


def print_json(structure: object) -> None:
    """JSON on stdout, on one line."""
    click.echo(encode_json(structure))


def print_rich(renderable: "RenderableType") -> None:
    """A table or text on stdout, as wide as the terminal."""
    from rich.console import Console

    Console().print(renderable)


def print_result(
    result: Result, table: Callable[[Result], "RenderableType"], as_json: bool
) -> None:
    """A result as JSON, or as its table."""
    if as_json:
        print_json(result)
    else:
        print_rich(table(result))


def write_result(path: Path | None, result: object) -> None:
    """Write the JSON to the file given by `-o`; None writes nothing."""
    if path is not None:
        write_json(path, result)
        say(f"wrote {path}")


def source_name(analysis: "Analysis") -> str:
    """The name of the file that was analysed, `<stdin>` for the standard input."""
    return Path(analysis.report.source.path).name


def html_page(
    title: str,
    analyses: Mapping[str, "Analysis"],
    comparison: "Comparison | Diff | None" = None,
) -> str:
    """An HTML page with one view for each analysed window, in order, under its name."""
    from decodescope.analyzer.html.report_page import VariantView, html_report

    views = []
    for name, analysis in analyses.items():
        index = analysis.steps.median()
        timeline = None if index is None else analysis.step_timeline(index)
        views.append(VariantView(name, analysis.report, timeline))
    return html_report(title, views, comparison)


def write_comparison(
    folder: Path, name: str, result: "Comparison | Diff", markdown: str, page: str
) -> None:
    """Write a comparison as JSON, Markdown and HTML; creates the folder if it is missing.

    Raises:
        InputError: the folder cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: cannot be created ({error}); name a folder") from error
    paths = {suffix: folder / f"{name}.{suffix}" for suffix in ("json", "md", "html")}
    for path in paths.values():
        check_writable(path, "--out")
    write_json(paths["json"], result)
    write_atomically(paths["md"], markdown.encode(errors="replace"))
    write_atomically(paths["html"], page.encode(errors="replace"))
    say(f"wrote {name}.json, {name}.md and {name}.html to {folder}")


def end_on_regression(gate: "Gate | None") -> None:
    """Raise `RegressionFound` if the gate failed, with every reason on one line."""
    if gate is not None and gate.failures:
        raise RegressionFound("regression: " + "; ".join(gate.failures))


def say(text: str) -> None:
    """A message on stderr."""
    click.echo(text, err=True)


@contextlib.contextmanager
def progress(piped: Callable[[str], None] | None = None) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current stage: a spinner if stderr is a terminal, otherwise
    `piped`, by default nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield piped or (lambda stage: None)
        return
    with console.status("starting") as status:
        yield status.update


@contextlib.contextmanager
def library_output_to_stderr() -> Iterator[None]:
    """Keeps what a library prints while a model loads out of the data on stdout."""
    with contextlib.redirect_stdout(io.TextIOWrapper(sys.stderr.buffer, write_through=True)) as out:
        try:
            yield
        finally:
            out.detach()
