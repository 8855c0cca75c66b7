"""The entry point: the list of commands, and how errors end them.

Data goes to stdout, progress and messages to stderr. An error that the user can cause is one line
and an exit code: 1 a regression gate failed, 2 bad usage or input, 3 a missing requirement.
"""

import os
import sys

import rich_click as click
from click.exceptions import Exit

from decodescope import __version__
from decodescope.analyzer.errors import DecodescopeError
from decodescope.cli.analyze import analyze
from decodescope.cli.bench import bench
from decodescope.cli.compare import compare
from decodescope.cli.diff import diff
from decodescope.cli.export import export
from decodescope.cli.group import DefaultToLive
from decodescope.cli.lists import doctor, models, variants
from decodescope.cli.live import live
from decodescope.cli.open import open_files
from decodescope.cli.output import say
from decodescope.cli.run import run

COMMANDS: tuple[click.Command, ...] = (
    live, run, open_files, models, variants, doctor, bench, analyze, compare, diff, export,
)  # fmt: skip


@click.group(
    cls=DefaultToLive,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", prog_name="decodescope")
@click.option("--debug", is_flag=True, help="Show a traceback if an error ends the command.")
def cli(debug: bool) -> None:
    """Shows where one LLM decode step loses its time, and whether your change won it back."""


def main() -> None:
    """Runs a command and turns errors into one line and an exit code."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        sys.exit(cli(arguments, prog_name="decodescope", standalone_mode=False) or 0)
    except DecodescopeError as error:
        code, message = error.exit_code, str(error)
        if debug:
            raise
    except Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        code, message = 2, error.format_message()
    except (KeyboardInterrupt, click.Abort):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    say(f"decodescope: {' '.join(message.split())}")
    sys.exit(code)
