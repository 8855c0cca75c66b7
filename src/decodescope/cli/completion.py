"""`completion`: what a shell needs to complete commands, options and file names."""

import rich_click as click
from click.shell_completion import get_completion_class

_PROGRAM = "decodescope"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion of a shell, for its startup file.

    bash, zsh: eval "$(decodescope completion bash)"; fish: decodescope completion fish | source
    """
    complete = get_completion_class(shell)
    assert complete is not None
    root = context.find_root().command
    variable = f"_{_PROGRAM}_COMPLETE".upper()
    click.echo(complete(root, {}, _PROGRAM, variable).source())
