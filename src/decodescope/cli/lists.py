"""`models`, `variants` and `doctor`: what can run on this machine."""

from functools import partial

import rich_click as click

from decodescope.analyzer.errors import MissingRequirement
from decodescope.cli.options import device_option
from decodescope.cli.output import print_table


@click.command()
def models() -> None:
    """List the models that need no download, and the presets."""
    from decodescope.variants.listings import models_table
    from decodescope.variants.model.source import presets

    print_table(tuple(presets().values()), models_table)


@click.command()
@device_option
def variants(device: str | None) -> None:
    """List the variants of the decode step, and whether they run here."""
    from decodescope.variants.listings import variants_table
    from decodescope.variants.machine.environment import choose_device
    from decodescope.variants.registry import available_variants

    chosen = choose_device(device)
    print_table(available_variants(chosen), partial(variants_table, device=chosen))


@click.command()
def doctor() -> None:
    """Check this machine for what decodescope needs; exits with 3 if something is missing."""
    from decodescope.variants.listings import checks_table, doctor_checks

    checks = doctor_checks()
    print_table(checks, checks_table)
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise MissingRequirement(f"doctor: {', '.join(failed)} failed; see the advice above")
