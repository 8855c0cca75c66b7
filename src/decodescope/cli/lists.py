"""`models`, `variants` and `doctor`: what can run on this machine."""

import rich_click as click

from decodescope.analyzer.errors import MissingRequirement
from decodescope.cli.options import device_option
from decodescope.cli.output import print_rich


@click.command()
def models() -> None:
    """List the models that need no download, and the presets."""
    from decodescope.variants.listings import models_table

    print_rich(models_table())


@click.command()
@device_option
def variants(device: str | None) -> None:
    """List the variants of the decode step, and whether they run here."""
    from decodescope.variants.listings import variants_table
    from decodescope.variants.machine.environment import choose_device

    print_rich(variants_table(choose_device(device)))


@click.command()
def doctor() -> None:
    """Check this machine for what decodescope needs; exits with 3 if something is missing."""
    from decodescope.variants.doctor import doctor as run_checks
    from decodescope.variants.listings import checks_table

    checks = run_checks()
    print_rich(checks_table(checks))
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise MissingRequirement(f"doctor: {', '.join(failed)} failed; see the advice above")
