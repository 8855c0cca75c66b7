"""`compare`: several variants of one model, measured in turn."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.cli.options import (
    FILE,
    measuring_options,
    model_options,
    sampling_options,
    worker_config,
)
from decodescope.cli.reports import comparison_page, end_on_regression, write_outputs
from decodescope.cli.terminal_io import json_bytes, print_json, print_rich, progress, say

if TYPE_CHECKING:
    from decodescope.variants.comparing.command import CompareOutcome


@click.command()
@model_options
@click.option("--variants", metavar="A,B,...", required=True, help="The first is the base.")
@click.option(
    "--repeats",
    metavar="N",
    type=int,
    default=5,
    show_default=True,
    help="Rounds; each measures every variant once, in a process of its own.",
)
@measuring_options
@sampling_options
@click.option("--text", metavar="FILE", type=FILE, help="The text that accuracy is scored on.")
@click.option(
    "--out", metavar="DIR", type=FILE, help="Keep the traces; write JSON, Markdown and HTML."
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option(
    "--baseline", metavar="FILE", type=FILE, help="An earlier comparison.json to hold this against."
)
@click.option(
    "--fail-on-regression",
    metavar="PCT",
    type=click.FloatRange(min=0),
    help="With --baseline: exit with 1 where a variant is slower by more than this.",
)
def compare(
    variants: str,
    repeats: int,
    text: Path | None,
    out: Path | None,
    as_json: bool,
    baseline: Path | None,
    fail_on_regression: float | None,
    **options: Any,
) -> None:
    """Measure variants in turn (A B A B ...) and say which is faster, and how sure that is."""
    if (baseline is None) != (fail_on_regression is None):
        raise InputError("--baseline and --fail-on-regression: give both, or neither")
    from decodescope.variants.comparing.command import CompareRequest, compare_variants

    request = CompareRequest(
        config=worker_config(**options),
        variants=tuple(name.strip() for name in variants.split(",")),
        repeats=repeats,
        text=None if text is None else _read(text, "--text").decode(errors="replace"),
        keep=out,
    )
    held_against = None
    if baseline is not None and fail_on_regression is not None:
        from decodescope.analyzer.comparing.regression_gate import refuse_bad_baseline

        held_against = _read(baseline, "--baseline")
        refuse_bad_baseline(held_against, str(baseline), request.variants, fail_on_regression)
    with progress(say) as show, compare_variants(request, show) as outcome:
        comparison = outcome.comparison
        try:
            if held_against is not None and fail_on_regression is not None:
                from decodescope.analyzer.comparing.regression_gate import check_baseline

                path = str(baseline)
                comparison = check_baseline(comparison, held_against, path, fail_on_regression)
        finally:
            # A baseline of another workload is told only now, and must not cost the runs.
            if out is not None:
                _write(out, outcome, comparison)
    if as_json:
        print_json(comparison)
    else:
        from decodescope.analyzer.views.comparison_table import comparison_table

        print_rich(comparison_table(comparison))
    end_on_regression(comparison.comparison.gate)


def _write(folder: Path, outcome: "CompareOutcome", comparison: Any) -> None:
    from decodescope import analyzer
    from decodescope.analyzer.views.comparison_markdown import comparison_markdown

    analyses = {
        name: analyzer.analyze(analyzer.load(trace)) for name, trace in outcome.traces.items()
    }
    title = f"{comparison.runs[0].model}: {', '.join(analyses)}"
    page = comparison_page(title, analyses, comparison)
    write_outputs(
        folder, "comparison", json_bytes(comparison), comparison_markdown(comparison), page
    )


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}; name a file") from error
