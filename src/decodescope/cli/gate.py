"""`gate` and `baseline`: is a step slower than a saved one, by more than is allowed?"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.shell_completion import CompletionItem

from decodescope.analyzer.errors import InputError, RegressionFound, TooNoisy
from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.group import CommandGroup
from decodescope.cli.options import FILE, file_option, json_option
from decodescope.cli.output import print_json, print_result, say

if TYPE_CHECKING:
    from decodescope.analyzer.comparing.gate import Allowed
    from decodescope.analyzer.comparing.gate_samples import Measured
    from decodescope.analyzer.schema.gate_report import GateReport, Subject

_FOLDER = Path(".decodescope", "baselines")

_files_argument = click.argument("files", metavar="FILE…", nargs=-1, required=True, type=FILE)
_folder_option = click.option(
    "--folder",
    metavar="DIR",
    type=FILE,
    default=_FOLDER,
    show_default=True,
    help="The folder of the baselines.",
)


def _completed(
    context: click.Context, parameter: click.Parameter, start: str
) -> list[CompletionItem]:
    from decodescope.analyzer.comparing.baselines import baseline_names

    names = baseline_names(context.params.get("folder") or _FOLDER)
    return [CompletionItem(name) for name in names if name.startswith(start)]


_name_argument = click.argument("name", metavar="NAME", shell_complete=_completed)


@click.command()
@_files_argument
@click.option(
    "--baseline",
    "name",
    metavar="NAME",
    required=True,
    shell_complete=_completed,
    help="A baseline of the folder.",
)
@_folder_option
@click.option(
    "--allow",
    "allow",
    metavar="[PART=]PCT",
    multiple=True,
    help="How much longer the step may take, as 2, or a part of it, as attention=5; several "
    "times for several parts. [default: 0 for the step, parts are not judged]",
)
@click.option(
    "--accept",
    metavar="CONDITION",
    multiple=True,
    help="Compare although this condition differs, as driver, device or model.",
)
@click.option("--strict", is_flag=True, help="Exit with 4 if noise leaves a figure undecided.")
@json_option
@file_option("--markdown", help="Write the report as Markdown, for a pull request.")
@file_option("--junit", help="Write a JUnit XML file, a test case for each judged figure.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions on stdout.")
@given_options
def gate(
    files: tuple[Path, ...],
    name: str,
    folder: Path,
    allow: tuple[str, ...],
    accept: tuple[str, ...],
    strict: bool,
    as_json: bool,
    markdown: Path | None,
    junit: Path | None,
    github: bool,
    **given_texts: Any,
) -> None:
    """Exit with 1 if a step takes longer than in a baseline, by more than is allowed.

    FILEs are traces and recordings, or what compare --json wrote: several of them show how far one
    run is from the next. A slowdown within noise fails nothing.
    """
    from decodescope.analyzer.comparing import gate as judging
    from decodescope.analyzer.comparing.baselines import read_baseline
    from decodescope.analyzer.views.comparison_table import summary_markdown, summary_table
    from decodescope.analyzer.views.gate_outputs import gate_annotations, gate_junit, gate_summary

    if github and as_json:
        raise InputError("--github: not with --json, as both write to stdout; leave one out")
    options = GivenOptions(**given_texts)
    for path, option in ((markdown, "--markdown"), (junit, "--junit")):
        check_writable(path, option, (*files, *options.files))
    allowed = read_allowed(allow, accept)
    baseline = read_baseline(folder, name)
    report = judging.gate(baseline, read_subjects(files, options), allowed)
    if markdown is not None:
        write_atomically(markdown, summary_markdown(gate_summary(report)).encode(errors="replace"))
    if junit is not None:
        write_atomically(junit, gate_junit(report))
    print_result(report, lambda report: summary_table(gate_summary(report)), as_json)
    if github:
        for line in gate_annotations(report):
            click.echo(line)
    _end(report, strict)


def _end(report: "GateReport", strict: bool) -> None:
    """Raise for a figure that is slower, or, if `strict`, for one that is undecided."""
    from decodescope.analyzer.vocabulary.gate_words import row_sentence

    def sentences(verdict: str) -> str:
        return "; ".join(row_sentence(row) for row in report.rows if row.verdict == verdict)

    if report.verdict == "slower":
        raise RegressionFound(f"slower than {report.baseline}: {sentences('slower')}")
    if report.verdict == "undecided":
        undecided = sentences("undecided")
        if strict:
            raise TooNoisy(undecided)
        say(undecided)


def read_allowed(texts: Sequence[str], accepted: Sequence[str]) -> "Allowed":
    from decodescope.analyzer.comparing.gate import Allowed

    step_percent, parts = 0.0, {}
    for text in texts:
        part, equals, figure = text.rpartition("=")
        percent = _percent(figure, text)
        if equals:
            parts[part.strip()] = percent
        else:
            step_percent = percent
    return Allowed(step_percent, parts, frozenset(accepted))


def _percent(figure: str, text: str) -> float:
    try:
        percent = float(figure.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent < 1000:
        raise InputError(f"--allow {text}: not a percentage from 0 to below 1,000, as 2 or o=5")
    return percent


def read_subjects(files: Sequence[Path], options: GivenOptions) -> "tuple[Subject, ...]":
    from decodescope.analyzer.comparing.gate_samples import subjects_of

    paths = [file.resolve() for file in files]
    repeated = [file for file, path in zip(files, paths, strict=True) if paths.count(path) > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: is given twice; each file counts once")
    return subjects_of(_measured(files, options))


def _measured(files: Sequence[Path], options: GivenOptions) -> "Iterator[Measured]":
    from decodescope import analyzer
    from decodescope.analyzer.comparing.gate_samples import measured_runs, measured_trace
    from decodescope.analyzer.comparing.saved import may_be_saved, read_saved
    from decodescope.analyzer.schema.comparison_report import Diff

    facts = options.read()
    for file in files:
        if not (file.is_file() and may_be_saved(file)):
            yield measured_trace(analyzer.analyze(analyzer.load(file), facts))
            continue
        saved = read_saved(file.read_bytes(), str(file))
        if isinstance(saved, Diff):
            raise InputError(f"{file}: a diff has no runs; give its traces")
        yield from measured_runs(saved, str(file))


@click.group(cls=CommandGroup)
def baseline() -> None:
    """Save, list, show and remove the baselines of gates."""


@baseline.command("save")
@_name_argument
@_files_argument
@_folder_option
@given_options
def save(name: str, files: tuple[Path, ...], folder: Path, **given_texts: Any) -> None:
    """Keep the step times of traces, or of what compare --json wrote, under a name.

    A baseline of that name is replaced.
    """
    from decodescope.analyzer.comparing.baselines import save_baseline

    subjects = read_subjects(files, GivenOptions(**given_texts))
    if not subjects:
        raise InputError(f"{files[0]}: has no measured runs; measure with compare --json")
    save_baseline(folder, name, subjects)
    say(f"saved {name} in {folder}")


@baseline.command("list")
@_folder_option
@json_option
def list_baselines(folder: Path, as_json: bool) -> None:
    """List the names of the baselines."""
    from decodescope.analyzer.comparing.baselines import baseline_names

    names = baseline_names(folder)
    if as_json:
        print_json(names)
    else:
        click.echo("".join(f"{name}\n" for name in names), nl=False)


@baseline.command("show")
@_name_argument
@_folder_option
@json_option
def show(name: str, folder: Path, as_json: bool) -> None:
    """Print what a baseline holds: its conditions, and the step time of each of its samples."""
    from decodescope.analyzer.comparing.baselines import read_baseline
    from decodescope.analyzer.views.comparison_table import summary_table
    from decodescope.analyzer.views.gate_outputs import baseline_summary

    saved = read_baseline(folder, name)
    print_result(saved, lambda saved: summary_table(baseline_summary(saved)), as_json)


@baseline.command("remove")
@_name_argument
@_folder_option
def remove(name: str, folder: Path) -> None:
    """Remove a baseline."""
    from decodescope.analyzer.comparing.baselines import remove_baseline

    remove_baseline(folder, name)
    say(f"removed {name} from {folder}")
