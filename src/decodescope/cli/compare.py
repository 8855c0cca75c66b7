"""`compare`: several variants of one model, measured in turn."""

from pathlib import Path
from typing import Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import write_json
from decodescope.cli.ending import current_ending
from decodescope.cli.options import (
    FILE,
    file_option,
    json_option,
    measuring_options,
    model_options,
    number_option,
    refuse_ranks,
    sampling_options,
    worker_config,
)
from decodescope.cli.output import (
    check_out,
    end_comparison,
    progress,
    progress_option,
    write_comparison,
)


@click.command()
@model_options
@click.option("--variants", metavar="A,B,...", required=True, help="The first is the base.")
@number_option(
    "--repeats",
    default=5,
    show_default=True,
    help="Rounds; each measures every variant once, in a process of its own.",
)
@measuring_options
@sampling_options
@file_option("--text", help="The text that accuracy is scored on.")
@click.option(
    "--out", metavar="DIR", type=FILE, help="Keep traces, JSON (each round), Markdown and HTML."
)
@json_option
@progress_option
def compare(
    variants: str,
    repeats: int,
    text: Path | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure variants in turn (A B A B ...); report which is faster, and how certain that is."""
    from msgspec.structs import asdict

    from decodescope import analyzer
    from decodescope.analyzer.comparing.comparison_messages import (
        ComparisonEvent,
        ComparisonProgress,
        RoundCompared,
    )
    from decodescope.variants.comparing.command import CompareRequest, compare_variants

    refuse_ranks("compare")
    check_out(out, "comparison", (text,))
    request = CompareRequest(
        config=worker_config(options),
        variants=tuple(name.strip() for name in variants.split(",")),
        repeats=repeats,
        text=None if text is None else _read(text, "--text").decode(errors="replace"),
        keep=out,
        each_round=out is not None,
    )
    current_ending().finishing = "the complete rounds are being compared"
    with progress() as show:

        def tell(event: ComparisonEvent) -> None:
            if isinstance(event, ComparisonProgress):
                show(event.describe(), **asdict(event))
            elif isinstance(event, RoundCompared) and out is not None:
                # Whatever ends this process loses no complete round.
                write_json(out / "comparison.json", event.comparison)

        comparison = compare_variants(request, tell)
        if out is not None:
            analyses = {
                name: analyzer.analyze(analyzer.load(window.source.path))
                for name, window in comparison.windows.items()
            }
            title = f"{comparison.runs[0].model}: {', '.join(analyses)}"
            write_comparison(out, "comparison", comparison, title, analyses)
    end_comparison(comparison, as_json)


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}; name a file") from error
