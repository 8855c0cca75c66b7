"""The command line: the only module that wires the rooms together.

Data goes to stdout, progress and messages to stderr. An error a user can cause is one line and an
exit code: 1 a regression gate failed, 2 bad usage or input, 3 the environment lacks something.
"""

import difflib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click
from click.exceptions import Exit

from decodescope import __version__
from decodescope.analyzer.errors import DecodescopeError, EnvironmentLacks, InputError
from decodescope.analyzer.files import check_writable, write_atomically
from decodescope.terminal_io import (
    json_bytes,
    library_output_to_stderr,
    print_json,
    print_rich,
    progress,
    say,
)

if TYPE_CHECKING:
    from decodescope.analyzer.protocol import WorkerConfig
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.sources import Source

FILE = click.Path(path_type=Path)
DEFAULT_TOKENS = 128


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


def decode_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is decoded and how; shared by `live` and `run`."""
    for option in reversed(
        (
            click.option(
                "--model",
                metavar="M",
                help="A hub id, a checkpoint folder, PRESET@random, or tiny. "
                "[default: llama-3.2-1b@random on a GPU, tiny without]",
            ),
            click.option("--variant", metavar="V", default="eager", show_default=True),
            click.option("--batch", metavar="N", type=int, default=1, show_default=True),
            click.option(
                "--context",
                metavar="N",
                type=int,
                help="Prompt tokens before the first decode step. [default: 128]",
            ),
            click.option("--device", type=click.Choice(["cuda", "cpu"])),
            click.option(
                "--trust-remote-code",
                is_flag=True,
                help="Allow a checkpoint to run its own Python code.",
            ),
        )
    ):
        command = option(command)
    return command


@click.group(cls=DefaultToLive, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="decodescope")
@click.option("--debug", is_flag=True, help="Show a traceback where an error ends the command.")
def cli(debug: bool) -> None:
    """Shows where one LLM decode step loses its time, and whether your change won it back."""


@cli.command()
@decode_options
@click.option("--record", metavar="FILE", type=FILE, help="Record what the app receives.")
def live(record: Path | None, context: int | None, **options: Any) -> None:
    """Decode live in a worker process and watch it in the terminal (the default)."""
    if not sys.stdout.isatty():
        if record is not None:
            raise InputError("--record: needs a terminal; without one, use run --trace FILE")
        _run(context=context, **options)
        return
    from decodescope.variants.environment import require_run_packages

    require_run_packages()
    check_writable(record, "--record")
    config = _worker_config(context=context, **options)
    _start(_live_app(config, record, cpu_chosen=config.device == "cpu"))


@cli.command()
@decode_options
@click.option(
    "--tokens",
    metavar="N",
    type=int,
    default=DEFAULT_TOKENS,
    show_default=True,
    help="Decode steps: the first few warm up, the last few are profiled, the others are timed.",
)
@click.option("--prompt", metavar="TEXT", help="Prompt text; its tokens are the context.")
@click.option("--prompt-ids", metavar="1,2,3", help="Prompt token ids; they are the context.")
@click.option("--dtype", type=click.Choice(["bf16", "fp16", "fp32"]))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--trace", metavar="FILE", type=FILE, help="Keep the profiled window (.json[.gz]).")
def run(**options: Any) -> None:
    """Measure one variant's decode step and profile a window of it."""
    _run(**options)


@cli.command()
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--format", "output_format", type=click.Choice(["table", "csv"]), default="table")
@click.option("--by", type=click.Choice(["kernel", "range", "gap"]), default="kernel")
def analyze(file: Path, as_json: bool, output_format: str, by: str) -> None:
    """Say what a trace says: busy, idle, gaps, launches, steps, kernels, ranges."""
    from decodescope import analyzer

    report = analyzer.analyze(analyzer.load(file)).report
    if as_json:
        print_json(report)
    elif output_format == "csv":
        from decodescope.analyzer.csv_export import render_csv

        click.echo(render_csv(report, by), nl=False)
    else:
        from decodescope.analyzer.table import report_table

        print_rich(report_table(report, by))


@cli.command("open")
@click.argument("files", metavar="FILE...", type=FILE, nargs=-1)
def open_files(files: tuple[Path, ...]) -> None:
    """Open traces or recordings in the app; without a file, a bundled recording."""
    from decodescope.tui.sources import TraceSource, bundled_recordings, source_for

    for file in files:
        _check_readable(file)
    if not sys.stdout.isatty():
        raise InputError("open: needs a terminal; without one, use analyze FILE")
    if len(files) > 1:
        _start(_app(TraceSource(files)))
        return
    _start(_app(source_for(files[0] if files else bundled_recordings()[0])))


@cli.command()
@click.argument("file", type=FILE)
@click.option("--to", "target", type=click.Choice(["chrome"]), required=True)
@click.option("-o", "--output", metavar="OUT", type=FILE, required=True)
def export(file: Path, target: str, output: Path) -> None:
    """Export an analysed trace: chrome (.json or .json.gz, for Perfetto)."""
    from decodescope import analyzer
    from decodescope.analyzer.chrome_export import export_chrome

    check_writable(output, "-o")
    export_chrome(analyzer.analyze(analyzer.load(file)), output)
    say(f"wrote {output} ({target})")


@cli.command()
def models() -> None:
    """List the models that need no download, and the presets."""
    from decodescope.variants.listings import models_table

    print_rich(models_table())


@cli.command()
@click.option("--device", type=click.Choice(["cuda", "cpu"]))
def variants(device: str | None) -> None:
    """List the variants of the decode step, and whether they run here."""
    from decodescope.variants.environment import choose_device
    from decodescope.variants.listings import variants_table

    print_rich(variants_table(choose_device(device)))


@cli.command()
def doctor() -> None:
    """Check what decodescope needs on this machine; exit 3 where something is missing."""
    from decodescope.variants.environment import doctor as run_checks
    from decodescope.variants.listings import checks_table

    checks = run_checks()
    print_rich(checks_table(checks))
    failed = [check.name for check in checks if check.status == "fail"]
    if failed:
        raise EnvironmentLacks(f"doctor: {', '.join(failed)} failed; see the advice above")


@cli.group()
def bench() -> None:
    """Measure decodescope itself; the result carries its environment."""


@bench.command("analyzer")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write the JSON to a file.")
@click.option("--repeats", metavar="N", type=click.IntRange(min=1), default=5, show_default=True)
def bench_analyzer(as_json: bool, output: Path | None, repeats: int) -> None:
    """Time and memory to read and analyse a 230,000-event, 63 MB trace."""
    from decodescope.analyzer.benchmark import benchmark_table, run_analyzer_benchmark
    from decodescope.tui.sources import bundled_recordings

    check_writable(output, "-o")
    most_events = max(bundled_recordings(), key=lambda path: path.stat().st_size)
    result = run_analyzer_benchmark(most_events, repeats)
    if output is not None:
        write_atomically(output, msgspec.json.format(json_bytes(result)) + b"\n")
        say(f"wrote {output}")
    if as_json:
        print_json(result)
    else:
        print_rich(benchmark_table(result))


def _run(
    trace: Path | None = None,
    as_json: bool = False,
    tokens: int = DEFAULT_TOKENS,
    **options: Any,
) -> None:
    from decodescope.analyzer.run_table import run_table
    from decodescope.variants.environment import require_run_packages

    require_run_packages()
    check_writable(trace, "--trace")
    config = _worker_config(tokens=tokens, **options)

    with progress() as show, library_output_to_stderr():
        from decodescope.variants.run import run_variant

        report = run_variant(config, trace, show)
    if as_json:
        print_json(report)
    else:
        print_rich(run_table(report))


def _worker_config(
    *,
    model: str | None,
    variant: str,
    batch: int,
    context: int | None,
    device: str | None,
    trust_remote_code: bool,
    tokens: int = DEFAULT_TOKENS,
    dtype: str | None = None,
    prompt: str | None = None,
    prompt_ids: str | None = None,
) -> "WorkerConfig":
    from decodescope.analyzer.protocol import WorkerConfig

    ids = None if prompt_ids is None else _parse_ids(prompt_ids)
    if prompt is not None and ids is not None:
        raise InputError("--prompt and --prompt-ids: give one of them")
    if context is not None and (prompt is not None or ids is not None):
        raise InputError("--context: the prompt's length is the context; give one of them")
    return WorkerConfig(
        model=model,
        variant=variant,
        batch=batch,
        context=context,
        tokens=tokens,
        dtype=dtype,
        device=device,
        prompt=prompt,
        prompt_ids=ids,
        trust_remote_code=trust_remote_code,
    )


def _parse_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--prompt-ids {text}: must be whole numbers with commas between, such as 1,2,3"
        ) from None


def _check_readable(path: Path) -> None:
    if not path.is_file():
        reason = "is a folder, not a file" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {reason}; name a trace or a recording")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: not readable; check its permissions")


def _app(source: "Source") -> "DecodescopeApp":
    from decodescope.tui.app import DecodescopeApp
    from decodescope.tui.traits import TerminalTraits

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    traits = TerminalTraits(unicode=encoding == "utf8", color=not os.environ.get("NO_COLOR"))
    return DecodescopeApp(source, traits)


def _live_app(config: "WorkerConfig", record: Path | None, cpu_chosen: bool) -> "DecodescopeApp":
    from decodescope.tui.link import Link
    from decodescope.tui.sources import LiveSource
    from decodescope.tui.worker_link import WorkerLink

    link: Link = WorkerLink(config)
    if record is not None:
        from decodescope.analyzer.recording import RecordingWriter
        from decodescope.tui.recording_link import RecordingLink

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
