"""`diff`: what changed from one trace to another, or from several to several."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, gate_option, json_option
from decodescope.cli.output import check_out, end_on_regression, print_result, say, write_comparison

if TYPE_CHECKING:
    from decodescope.analyzer.reports.user_facts import Given
    from decodescope.analyzer.schema.comparison_report import Diff

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
        if _AGAINST in args and not any(arg.startswith(f"{_AGAINST}=") for arg in spread):
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
@gate_option(help="Exit with 1 if B's step takes longer than A's by more than this.")
@given_options
def diff(
    traces: tuple[Path, ...],
    against: tuple[Path, ...],
    as_json: bool,
    out: Path | None,
    fail_on_regression: float | None,
    **given_texts: Any,
) -> None:
    """Report what changed from trace A to trace B, or from A1 A2 … to --against B1 B2 …; one of
    them may be -, the standard input.

    A capture is used for the trace that it fits, a model for all.
    """
    from decodescope.analyzer.comparing.diff import INCONCLUSIVE
    from decodescope.analyzer.comparing.regression_gate import gate_diff
    from decodescope.analyzer.views.comparison_table import comparison_table

    bases, others = _sides(traces, against)
    options = GivenOptions(**given_texts)
    check_out(out, "diff", (*bases, *others, *options.files))
    result = _compared(bases, others, options.read(), out)
    if fail_on_regression is not None:
        result = gate_diff(result, fail_on_regression)
    print_result(result, comparison_table, as_json)
    for finding in result.findings:
        if finding.code == INCONCLUSIVE:
            say(finding.message)
    end_on_regression(result.gate)
