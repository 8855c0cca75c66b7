"""`run`: one variant, measured and profiled."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
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
from decodescope.cli.output import (
    library_output_to_stderr,
    print_result,
    progress,
    progress_option,
    say,
)

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import WorkerConfig
    from decodescope.analyzer.schema.run_report import RunReport


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
    from decodescope.variants.parallel.place import is_rank

    require_run_packages()
    report = _as_rank(options, trace) if is_rank(os.environ) else _as_user(options, trace)
    if report is not None:
        print_result(report, run_table, as_json)


def _as_user(options: Mapping[str, Any], trace: Path | None) -> "RunReport | None":
    """The report of one process; asked for several ranks, it starts them, and ends with them."""
    from decodescope.variants.machine.child_process import exit_now
    from decodescope.variants.measuring.request import read_request
    from decodescope.variants.parallel.launcher import launch

    config = _asked(options, trace)
    if config.tp > 1:
        read_request(config)
        exit_now(launch(config.tp, "decodescope", sys.argv[1:]))
    with progress(piped=False) as show, library_output_to_stderr():
        from decodescope.variants.measuring.run import run_variant

        return run_variant(config, trace, show)


def _as_rank(options: Mapping[str, Any], trace: Path | None) -> "RunReport | None":
    """The report on rank 0, whose options count for all ranks."""
    from decodescope.analyzer.protocol.messages import WorkerConfig
    from decodescope.variants.parallel.group import group_of_this_process
    from decodescope.variants.parallel.place import rank_files

    with (
        progress(piped=False) as show,
        library_output_to_stderr(),
        group_of_this_process() as group,
    ):
        config = group.shared(lambda: _asked(options, trace), WorkerConfig)
        from decodescope.variants.measuring.run import run_variant

        tell = (lambda stage: None) if group.ranks.rank else show
        report = run_variant(config, trace, tell, group.join(config))
    if report is not None and trace is not None:
        first, *_, last = rank_files(trace, config.tp)
        say(f"wrote {first} to {last}, one file a rank; decodescope open shows all of them")
    return report


def _asked(options: Mapping[str, Any], trace: Path | None) -> "WorkerConfig":
    from decodescope.variants.parallel.place import rank_files

    config = worker_config(options)
    if trace is not None:
        if not trace.name.endswith((".json", ".json.gz")):
            raise InputError(f"--trace {trace}: must end in .json or .json.gz")
        for file in rank_files(trace, config.tp):
            check_writable(file, "--trace", checkpoint_files(options["model"]))
    return config
