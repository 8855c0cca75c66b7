"""`claims`: published figures of the field, measured again."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import json_option, output_option
from decodescope.cli.output import library_output_to_stderr, progress


@click.command("claims")
@click.option("--only", "names", metavar="NAME", multiple=True, help="Only this claim; repeatable.")
@click.option("--list", "listed", is_flag=True, help="Only list the claims and their sources.")
@click.option(
    "--gpt-fast",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A checkout of gpt-fast, to measure beside ours.",
)
@json_option
@output_option
def command(
    as_json: bool, output: Path | None, names: tuple[str, ...], listed: bool, gpt_fast: Path | None
) -> None:
    """Published figures of the field, measured again side by side; needs a GPU.

    Every result is checked before it is timed, all contestants take turns in the same rounds, and
    no ratio is given whose check failed.
    """
    check_writable(output, "-o", [])
    if gpt_fast is not None and not (gpt_fast / "model.py").is_file():
        raise InputError(f"--gpt-fast {gpt_fast}: no checkout of gpt-fast (it has no model.py)")
    from decodescope.variants.machine.environment import require_gpu, require_run_packages

    require_run_packages()
    from benchmarks.claims.catalog import chosen_claims

    claims = chosen_claims(names)
    if listed:
        for claim in claims:
            click.echo(f"{claim.name}: {claim.title} ({claim.source.title}, {claim.source.url})")
        return
    require_gpu("claims")
    from benchmarks.claims.bench import run_claims
    from benchmarks.claims.table import claims_table

    with progress() as show, library_output_to_stderr():
        result = run_claims(claims, gpt_fast, show)
    report_result(output, result, claims_table, as_json)
    if result.errors:
        raise DecodescopeError("claims: " + "; ".join(result.errors))
