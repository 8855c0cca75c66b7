"""`diff`: what changed from one trace to another."""

from pathlib import Path
from typing import Any

import rich_click as click

from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, gate_option, json_option
from decodescope.cli.output import check_out, end_on_regression, print_result, write_comparison


@click.command()
@click.argument("base", metavar="A", type=FILE)
@click.argument("other", metavar="B", type=FILE)
@json_option
@click.option("--out", metavar="DIR", type=FILE, help="Write diff.json, diff.md and diff.html.")
@gate_option(help="Exit with 1 if B's step is slower than A's by more than this.")
@given_options
def diff(
    base: Path,
    other: Path,
    as_json: bool,
    out: Path | None,
    fail_on_regression: float | None,
    **given_texts: Any,
) -> None:
    """Report what changed from trace A to trace B; one of them may be -, the standard input.

    A capture is used for the trace that it fits, a model for both.
    """
    from decodescope import analyzer
    from decodescope.analyzer.comparing.diff import diff_reports
    from decodescope.analyzer.comparing.regression_gate import gate_diff
    from decodescope.analyzer.views.comparison_table import comparison_table

    options = GivenOptions(**given_texts)
    check_out(out, "diff", (base, other, *options.files))
    facts = options.read()
    before, after = (analyzer.analyze(analyzer.load(file), facts) for file in (base, other))
    result = diff_reports(before.report, after.report)
    if fail_on_regression is not None:
        result = gate_diff(result, fail_on_regression)
    if out is not None:
        from decodescope.analyzer.exporting import source_name

        names = source_name(before), source_name(after)
        analyses = {f"A: {names[0]}": before, f"B: {names[1]}": after}
        write_comparison(out, "diff", result, " → ".join(names), analyses)
    print_result(result, comparison_table, as_json)
    end_on_regression(result.gate)
