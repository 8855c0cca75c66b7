"""The output of commands: data on stdout or in files, progress and messages on stderr."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

import rich_click as click

from decodescope.analyzer.io.files import encode_json, write_atomically, write_json
from decodescope.analyzer.io.output_paths import check_writable_in, is_stdout, make_folder
from decodescope.analyzer.text.plain import plain, plain_line
from decodescope.cli.streams import Messages

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from textual.strip import Strip

    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.schema.comparison_report import Comparison, Diff

Result = TypeVar("Result")
_PROGRESS = "decodescope.progress"


def print_json(structure: object) -> None:
    click.echo(encode_json(structure))


def print_table(result: Result, table: Callable[[Result], "RenderableType"]) -> None:
    """The table of a result on stdout, as wide as the terminal, from the result's plain strings."""
    _console(sys.stdout).print(table(plain(result)))


def table_text(result: Result, table: Callable[[Result], "RenderableType"], cells: int) -> str:
    """The table of a result as lines of `cells` cells without styles, whatever the terminal."""
    console = _console(io.StringIO())
    console.width = cells
    text = "".join(segment.text for segment in console.render(table(plain(result))))
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def print_lines(lines: Iterable["Strip"], width: int) -> None:
    """Lines of the app on stdout, with their styles; the app has made every string plain."""
    from rich.segment import Segments

    console = _console(sys.stdout)
    console.width = width
    for line in lines:
        console.print(Segments(line), end="")


def has_few_colors() -> bool:
    """Whether the terminal has only sixteen colours."""
    return _console(sys.stdout).color_system in ("standard", "windows")


def _console(file: TextIO) -> "Console":
    """A console for which no string is markup, an emoji code or something to highlight."""
    from rich.console import Console

    return Console(file=file, markup=False, emoji=False, highlight=False)


def print_result(
    result: Result, table: Callable[[Result], "RenderableType"], as_json: bool
) -> None:
    if as_json:
        print_json(result)
    else:
        print_table(result, table)


def check_out(folder: Path | None, name: str, inputs: Iterable[Path | None]) -> None:
    """Check the folder of `write_comparison` before any work is done.

    Raises:
        InputError: the folder cannot be created or written to, or one of its files is an input.
    """
    if folder is not None:
        names = [f"{name}.{suffix}" for suffix in ("json", "md", "html")]
        check_writable_in(folder, names, "--out", inputs)


def write_comparison(
    folder: Path,
    name: str,
    result: "Comparison | Diff",
    title: str,
    analyses: "Mapping[str, Analysis]",
) -> None:
    """Write a comparison as JSON, Markdown and HTML; creates the folder if it is missing. `title`
    is that of the page, which has a view for each of `analyses`.

    Raises:
        InputError: the folder or a file cannot be written.
    """
    from decodescope.analyzer.exporting import html_page
    from decodescope.analyzer.views.comparison_table import comparison_markdown

    markdown, page = comparison_markdown(result), html_page(title, analyses, result)
    make_folder(folder, "--out")
    write_json(folder / f"{name}.json", result)
    write_atomically(folder / f"{name}.md", markdown.encode(errors="replace"))
    write_atomically(folder / f"{name}.html", page.encode(errors="replace"))
    say(f"wrote {name}.json, {name}.md and {name}.html to {folder}")


def end_comparison(result: "Comparison | Diff", as_json: bool) -> None:
    """Print a comparison, and on stderr in one line what it leaves open."""
    from decodescope.analyzer.comparing.undecided import undecided
    from decodescope.analyzer.views.comparison_table import comparison_table

    print_result(result, comparison_table, as_json)
    if open_questions := undecided(result):
        say(open_questions)


def say_written(path: Path, kind: str) -> None:
    """Report a written file; what went to standard output needs no report."""
    if not is_stdout(path):
        say(f"wrote {path} ({kind})")


def say(text: str) -> None:
    """A message on stderr: one line."""
    sys.stderr.write(f"{plain_line(text)}\n")


class ShowStage(Protocol):
    """Shows the stage that a command is at; a line of JSON has its `facts` too."""

    def __call__(self, stage: str, /, **facts: object) -> None: ...


progress_option = click.option(
    "--progress",
    type=click.Choice(["text", "json"]),
    expose_value=False,
    callback=lambda context, option, value: context.meta.update({_PROGRESS: value}),
    help="Print each stage on stderr as a line of text or JSON. [default: a spinner on a terminal]",
)


@contextlib.contextmanager
def progress(piped: bool = True) -> Iterator[ShowStage]:
    """Yields a function that shows the current stage on stderr, in the form that `progress_option`
    names: by default a spinner on a terminal, otherwise lines of text if `piped`."""
    from rich.text import Text

    context, messages = click.get_current_context(silent=True), sys.stderr
    form = None if context is None else context.meta.get(_PROGRESS)
    console = _console(messages.styled if isinstance(messages, Messages) else messages)
    if form == "json":
        yield lambda stage, /, **facts: say(encode_json({"progress": stage, **facts}).decode())
    elif form == "text" or (piped and not console.is_terminal):
        yield lambda stage, /, **facts: say(stage)
    elif not console.is_terminal:
        yield lambda stage, /, **facts: None
    else:
        # The spinner puts a stream of its own in the place of stderr, which reads escape sequences.
        with console.status("starting") as status, contextlib.redirect_stderr(Messages(sys.stderr)):
            yield lambda stage, /, **facts: status.update(Text(plain_line(stage)))


@contextlib.contextmanager
def library_output_to_stderr() -> Iterator[None]:
    """Keeps what a library prints while a model loads out of the data on stdout."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
