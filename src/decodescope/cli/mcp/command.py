"""`mcp`: the command that serves the tools on stdin and stdout."""

from pathlib import Path

import rich_click as click

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.cli.ending import current_ending
from decodescope.cli.options import FILE


@click.command("mcp")
@click.argument("folders", metavar="FOLDER...", type=FILE, nargs=-1, required=True)
@click.option("--allow-write", is_flag=True, help="Let tools write files below the folders.")
@click.option(
    "--allow-run",
    is_flag=True,
    help="Let tools decode models, which they may download, in processes of their own.",
)
def mcp_command(folders: tuple[Path, ...], allow_write: bool, allow_run: bool) -> None:
    """Serve figures of the traces below FOLDER to a coding agent, by MCP on stdin and stdout.

    No other file is read, but the bundled recordings. The server ends with its input.
    """
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: not a folder; name the one that holds the traces")
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise MissingRequirement(
            "mcp: needs the package mcp, which is not installed; "
            "install it from a checkout with: pip install '.[mcp]'"
        ) from error
    from decodescope.cli.mcp.server import run_mcp_server
    from decodescope.cli.mcp.tool_host import ToolHost

    host = ToolHost(folders, allow_write=allow_write, allow_run=allow_run)
    run_mcp_server(host, current_ending())
