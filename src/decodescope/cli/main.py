"""The command line: the only module that wires the rooms together.

Data goes to stdout, progress and messages to stderr. An error a user can cause is one line and an
exit code: 1 a regression gate failed, 2 bad usage or input, 3 the environment lacks something.
"""

import difflib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.exceptions import Exit

from decodescope import __version__
from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.files import check_writable
from decodescope.cli.bench import bench_kernels
from decodescope.cli.compare import compare
from decodescope.cli.options import (
    DEFAULT_TOKENS,
    FILE,
    measuring_options,
    model_options,
    sampling_options,
    variant_option,
    worker_config,
)
from decodescope.cli.reports import analyze, bench_analyzer, diff, export
from decodescope.cli.terminal_io import (
    library_output_to_stderr,
    print_json,
    print_rich,
    progress,
    say,
)

if TYPE_CHECKING:
    from decodescope.analyzer.protocol import WorkerConfig
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.link.sources import Source


class DefaultToLive(click.RichGroup):
    """`decodescope --model M` means `decodescope live --model M`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own_options = {"-h", "--help", "--version", "--debug"}
        if not args or (args[0].startswith("-") and args[0] not in own_options):
            args = ["live", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(self.commands)}"
            raise InputError(f"no command {args[0]}: {hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=DefaultToLive, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="decodescope")
@click.option("--debug", is_flag=True, help="Show a traceback where an error ends the command.")
def cli(debug: bool) -> None:
    """Shows where one LLM decode step loses its time, and whether your change won it back."""


@cli.command()
@model_options
@variant_option
@sampling_options
@click.option("--record", metavar="FILE", type=FILE, help="Record what the app receives.")
def live(record: Path | None, context: int | None, **options: Any) -> None:
    """Decode live in a worker process and watch it in the terminal (the default)."""
    if not sys.stdout.isatty():
        if record is not None:
            raise InputError("--record: needs a terminal; without one, use run --trace FILE")
        _run(context=context, **options)
        return
    from decodescope.variants.machine.environment import require_run_packages

    require_run_packages()
    check_writable(record, "--record")
    config = worker_config(context=context, **options)
    _start(_live_app(config, record, cpu_chosen=config.device == "cpu"))


@cli.command()
@model_options
@variant_option
@measuring_options
@sampling_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--trace", metavar="FILE", type=FILE, help="Keep the profiled window (.json[.gz]).")
def run(**options: Any) -> None:
    """Measure one variant's decode step and profile a window of it."""
    _run(**options)


@cli.command("open")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
def open_files(files: tuple[Path, ...]) -> None:
    """Open traces or recordings in the app; without a file, a bundled recording."""
    from decodescope.analyzer.recordings.bundled import bundled_recordings
    from decodescope.tui.link.sources import TraceSource, source_for

    for file in files:
        _check_readable(file)
    if not sys.stdout.isatty():
        raise InputError("open: needs a terminal; without one, use analyze FILE")
    if len(files) > 1:
        _start(_app(TraceSource(files)))
        return
    _start(_app(source_for(files[0] if files else bundled_recordings()[0])))


@cli.command()
def models() -> None:
    """List the models that need no download, and the presets."""
    from decodescope.variants.listings import models_table

    print_rich(models_table())


@cli.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]))
def variants(device: str | None) -> None:
    """List the variants of the decode step, and whether they run here."""
    from decodescope.variants.listings import variants_table
    from decodescope.variants.machine.environment import choose_device

    print_rich(variants_table(choose_device(device)))


@cli.command()
def doctor() -> None:
    """Check what decodescope needs on this machine; exit 3 where something is missing."""
    from decodescope.variants.listings import checks_table
    from decodescope.variants.machine.environment import doctor as run_checks

    checks = run_checks()
    print_rich(checks_table(checks))
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise MissingRequirement(f"doctor: {', '.join(failed)} failed; see the advice above")


@cli.group()
def bench() -> None:
    """Measure decodescope itself, or its kernels; the result carries its environment."""


for command in (analyze, compare, diff, export):
    cli.add_command(command)
bench.add_command(bench_analyzer)
bench.add_command(bench_kernels)


def _run(
    trace: Path | None = None,
    as_json: bool = False,
    tokens: int = DEFAULT_TOKENS,
    **options: Any,
) -> None:
    from decodescope.analyzer.views.run_table import run_table
    from decodescope.variants.machine.environment import require_run_packages

    require_run_packages()
    check_writable(trace, "--trace")
    config = worker_config(tokens=tokens, **options)

    with progress() as show, library_output_to_stderr():
        from decodescope.variants.measuring.run import run_variant

        report = run_variant(config, trace, show)
    if as_json:
        print_json(report)
    else:
        print_rich(run_table(report))


def _check_readable(path: Path) -> None:
    if not path.is_file():
        reason = "is a folder, not a file" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {reason}; name a trace or a recording")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: not readable; check its permissions")


def _app(source: "Source") -> "DecodescopeApp":
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.style.traits import TerminalTraits

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    traits = TerminalTraits(unicode=encoding == "utf8", color=not os.environ.get("NO_COLOR"))
    return DecodescopeApp(source, traits)


def _live_app(config: "WorkerConfig", record: Path | None, cpu_chosen: bool) -> "DecodescopeApp":
    from decodescope.tui.link.base import Link
    from decodescope.tui.link.sources import LiveSource
    from decodescope.tui.link.worker import WorkerLink

    link: Link = WorkerLink(config)
    if record is not None:
        from decodescope.analyzer.recordings.recording import RecordingWriter
        from decodescope.tui.link.recording import RecordingLink

        link = RecordingLink(link, RecordingWriter(record))
    return _app(LiveSource(link, cpu_chosen=cpu_chosen))


def _start(app: "DecodescopeApp") -> None:
    app.run()
    if app.fatal_failure is not None:
        say(f"decodescope: {app.fatal_failure.message}")
        sys.exit(app.fatal_failure.exit_code)
    if app.return_code:
        sys.exit(app.return_code)


def main() -> None:
    """The entry point: runs a command and turns errors into one line and an exit code."""
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
