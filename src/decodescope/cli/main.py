"""The entry point: the list of commands.

Data goes to stdout, progress and messages to stderr; `ending.py` says how a command ends.
"""

import os
import sys
from typing import NoReturn

import rich_click as click

from decodescope import __version__
from decodescope.analyzer.text.numbers import whole_number
from decodescope.cli.analyze import analyze_command
from decodescope.cli.attach import attach
from decodescope.cli.cache import cache
from decodescope.cli.compare import compare
from decodescope.cli.completion import completion
from decodescope.cli.config import config
from decodescope.cli.diff import diff
from decodescope.cli.ending import Ending, end_with
from decodescope.cli.explain import explain
from decodescope.cli.export import export
from decodescope.cli.gate import baseline, gate
from decodescope.cli.group import DefaultToLive
from decodescope.cli.lists import doctor, models, variants
from decodescope.cli.live import live
from decodescope.cli.mcp.command import mcp_command
from decodescope.cli.open import open_files
from decodescope.cli.run import run
from decodescope.cli.serve import serve
from decodescope.cli.tune import tune

# No terminal and no page is wider.
_MAX_CELLS = 10_000
COMMANDS: tuple[click.Command, ...] = (
    live,
    run,
    open_files,
    models,
    variants,
    doctor,
    tune,
    analyze_command,
    attach,
    compare,
    diff,
    gate,
    baseline,
    export,
    explain,
    serve,
    mcp_command,
    config,
    cache,
    completion,
)


@click.group(
    cls=DefaultToLive,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", prog_name="decodescope")
@click.option("--debug", is_flag=True, help="Show a traceback if an error ends the command.")
def cli(debug: bool) -> None:
    """Shows where one LLM decode step loses its time, and whether your change won it back."""


def _forget_odd_sizes() -> None:
    """Leave the size of the terminal to the terminal where a variable names one that is none: Rich
    and Click print nothing at 0 columns, and fill memory at 99,999,999."""
    for name in ("COLUMNS", "LINES"):
        cells = whole_number(os.environ.get(name, "1"))
        if cells is None or not 0 < cells <= _MAX_CELLS:
            del os.environ[name]


def main() -> NoReturn:
    """Run the command of this process's arguments; --debug may stand anywhere among the options."""
    _forget_odd_sizes()
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [option for option in arguments[:end] if option != "--debug"]
    ending = Ending()
    end_with(
        lambda: cli([*options, *arguments[end:]], "decodescope", standalone_mode=False, obj=ending),
        debug=len(options) < end,
        ending=ending,
    )
