"""`run`: one variant, measured and profiled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rich_click as click

from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import (
    checkpoint_files,
    file_option,
    json_option,
    measuring_options,
    model_options,
    sampling_options,
    variant_option,
    worker_config,
)
from decodescope.cli.output import library_output_to_stderr, print_result, progress, progress_option


@click.command()
@model_options
@variant_option
@measuring_options
@sampling_options
@json_option
@file_option("--trace", help="Keep the profiled window (.json[.gz]).")
@progress_option
def run(trace: Path | None, as_json: bool, **options: Any) -> None:
    """Measure one variant's decode step and profile a window of it."""
    measure(options, trace, as_json)


def measure(options: Mapping[str, Any], trace: Path | None = None, as_json: bool = False) -> None:
    """Measure what `options` name, and print the report."""
    from decodescope.analyzer.views.run_table import run_table
    from decodescope.variants.machine.environment import require_run_packages

    require_run_packages()
    check_writable(trace, "--trace", checkpoint_files(options["model"]))
    config = worker_config(options)
    with progress(piped=False) as show, library_output_to_stderr():
        from decodescope.variants.measuring.run import run_variant

        report = run_variant(config, trace, show)
    print_result(report, run_table, as_json)
