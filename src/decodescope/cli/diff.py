"""`diff`: what changed from one trace to another, or from several to several."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, json_option
from decodescope.cli.output import check_out, end_comparison, write_comparison

if TYPE_CHECKING:
    from decodescope.analyzer.reports.analysis import Analysis
    from decodescope.analyzer.schema.comparison_report import Diff
    from decodescope.analyzer.schema.report import Report

_AGAINST = "--against"


class _DiffCommand(click.RichCommand):
    """Every file after `--against` belongs to it, up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        is_against = False
        for arg in args:
            is_option = arg.startswith("-") and arg != "-"
            is_against = arg == _AGAINST if is_option else is_against
            if is_against and not is_option:
                spread.append(f"{_AGAINST}={arg}")
            elif arg != _AGAINST:
                spread.append(arg)
        given = any(arg.startswith(f"{_AGAINST}=") for arg in spread)
        if _AGAINST in args and not given and not ctx.resilient_parsing:
            raise click.UsageError(f"{_AGAINST} needs at least one trace after it.", ctx)
        return super().parse_args(ctx, spread)


@click.command(cls=_DiffCommand)
@click.argument("traces", metavar="A B", nargs=-1, required=True, type=FILE)
@click.option(
    _AGAINST,
    metavar="B1 B2 …",
    type=FILE,
    multiple=True,
    help="The traces of side B; all others are of side A. The interval is then over traces.",
)
@json_option
@click.option("--out", metavar="DIR", type=FILE, help="Write diff.json, diff.md and diff.html.")
@given_options
def diff(
    traces: tuple[Path, ...],
    against: tuple[Path, ...],
    as_json: bool,
    out: Path | None,
    **given_texts: Any,
) -> None:
    """Report what changed from trace A to trace B, or from A1 A2 … to --against B1 B2 …; one of
    them may be -, the standard input.

    A capture is used for the trace that it fits, a model for all.
    """
    from decodescope import analyzer
    from decodescope.analyzer.comparing.diff import diff_sides

    bases, others = _sides(traces, against)
    options = GivenOptions(**given_texts)
    check_out(out, "diff", (*bases, *others, *options.files))
    facts, kept = options.read(), list["Analysis"]()

    def report_of(file: Path) -> "Report":
        analysis = analyzer.analyze(analyzer.load(file), facts)
        if out is not None:
            kept.append(analysis)
        return analysis.report

    result = diff_sides([report_of(file) for file in bases], [report_of(file) for file in others])
    if out is not None:
        _write(out, result, kept)
    end_comparison(result, as_json)


def _sides(
    traces: tuple[Path, ...], against: tuple[Path, ...]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The files of side A and of side B; a side may not have a file twice."""
    if not against and len(traces) != 2:
        raise click.UsageError(
            "give two traces, A and B, or several of each side as A1 A2 --against B1 B2."
        )
    bases, others = (traces, against) if against else (traces[:1], traces[1:])
    for name, files in (("A", bases), ("B", others)):
        paths = [file.resolve() for file in files]
        if repeated := [
            file for file, path in zip(files, paths, strict=True) if paths.count(path) > 1
        ]:
            raise InputError(f"{repeated[0]}: side {name} has it twice; each trace counts once")
    return bases, others


def _write(out: Path, result: "Diff", analyses: "list[Analysis]") -> None:
    """Write the diff; its page has a view for the trace that stands for each side."""
    from decodescope.analyzer.exporting import source_name

    views = [
        next(analysis for analysis in analyses if analysis.report is report)
        for report in (result.base, result.other)
    ]
    names = [source_name(view) for view in views]
    titled = {f"{side}: {name}": view for side, name, view in zip("AB", names, views, strict=True)}
    write_comparison(out, "diff", result, " → ".join(names), titled)
