"""`attach`: windows of processes and servers that run already."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable, check_writable_in, make_folder
from decodescope.cli.app import AppOptions, app_options, show_app
from decodescope.cli.ending import current_ending
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, file_option, json_option, number_option
from decodescope.cli.output import print_result, progress, say
from decodescope.cli.recording import recorded, recording_writer

if TYPE_CHECKING:
    from decodescope.analyzer.recordings.writer import RecordingWriter
    from decodescope.analyzer.reports.user_facts import Given
    from decodescope.analyzer.schema.ranks_report import ServerFigures, ServersReport
    from decodescope.attach.door import CapturedWindow, Door, WindowPlan
    from decodescope.tui.model.sources import AttachSource

_DEFAULT_MS = 300


@click.command("attach")
@click.argument("targets", metavar="TARGET...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every process that can be attached to.")
@number_option(
    "--windows",
    type=click.IntRange(1, 1000),
    help="Take N windows, without the app. [default: 1 where there is no terminal]",
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.IntRange(0, 86_400),
    help="With --windows: begin one every so many seconds. [default: without a pause]",
)
@number_option(
    "--iterations",
    type=click.IntRange(1, 1000),
    help="The length of a window, where the target counts iterations.",
)
@number_option(
    "--ms",
    "duration_ms",
    type=click.IntRange(1, 10_000),
    help=f"The length of a window in milliseconds. [default: {_DEFAULT_MS}]",
)
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    type=FILE,
    default=Path(),
    help="The folder for the traces. [default: the current one]",
)
@click.option(
    "--trace-dir",
    "trace_dirs",
    metavar="DIR",
    type=FILE,
    multiple=True,
    help="The folder in which a server writes its traces, as this machine names it; one for each "
    "URL.",
)
@click.option(
    "--token-file", metavar="FILE", type=FILE, help="A file with the token that a server asks for."
)
@click.option(
    "--token-variable", metavar="NAME", help="The environment variable that holds such a token."
)
@file_option("--record", help="Record the metrics and the windows; decodescope open replays them.")
@json_option
@app_options
@given_options
def attach(
    targets: tuple[str, ...],
    everything: bool,
    windows: int | None,
    every: int | None,
    iterations: int | None,
    duration_ms: int | None,
    folder: Path,
    trace_dirs: tuple[Path, ...],
    token_file: Path | None,
    token_variable: str | None,
    record: Path | None,
    as_json: bool,
    once: bool,
    page: str | None,
    size: tuple[int, int] | None,
    **given_texts: Any,
) -> None:
    """Watch what runs already, and analyze its decode steps.

    TARGET is the id of a PyTorch process that runs with KINETO_USE_DAEMON=1, of one rank of
    a job or of its launcher for all ranks, or the URL of a server. Several servers are one view.

    On a terminal this is the app, in which t takes a window; with --windows or --json the report of
    each window is printed. The traces of each window stay in --out.
    """
    from decodescope.attach.door import WindowPlan

    if iterations is not None and duration_ms is not None:
        raise InputError(f"--iterations {iterations} and --ms {duration_ms}: give one of the two")
    if every is not None and windows is None:
        raise InputError(f"--every {every}: only with --windows")
    options, showing = GivenOptions(**given_texts), AppOptions(once, page, size)
    prints = as_json or windows is not None
    if prints and showing != AppOptions(False, None, None):
        raise InputError("--once, --page, --size: of the app; leave out --windows and --json")
    place = None if prints else showing.place()
    check_writable_in(folder, (), "--out", options.files)
    check_writable(record, "--record", options.files)
    server = _ServerOptions(trace_dirs, token_file, token_variable)
    with _opened(targets, everything, server) as door, recording_writer(record) as writer:
        current_ending().finishing = f"{door.target}: its window is being closed"
        facts = replace(options, model=options.model or door.model).read()
        make_folder(folder, "--out")
        plan = WindowPlan(folder, duration_ms or _DEFAULT_MS, iterations)
        if place is not None:
            show_app(_source(door, plan, facts, writer), place, showing)
            return
        say(f"{door.target}: {door.cost}")
        began_s = time.monotonic()
        with recorded(door, plan, writer) as note:
            for number in range(windows or 1):
                if every is not None:
                    time.sleep(max(began_s + number * every - time.monotonic(), 0))
                window = _window(door, plan)
                note(window)
                _show(window, facts, as_json)


def _source(
    door: "Door", plan: "WindowPlan", facts: "Given", writer: "RecordingWriter | None"
) -> "AttachSource":
    """The source of the app, whose events `writer` records."""
    from decodescope.tui.link.attached import AttachLink
    from decodescope.tui.model.sources import AttachSource

    link = AttachLink(door, plan)
    if writer is None:
        return AttachSource(link, facts)
    from decodescope.tui.link.recording import RecordingLink

    return AttachSource(RecordingLink(link, writer), facts)


@dataclass(frozen=True, slots=True)
class _ServerOptions:
    """The values of the options that are of servers alone."""

    trace_dirs: tuple[Path, ...]
    token_file: Path | None
    token_variable: str | None

    def check_unused(self) -> None:
        """Raises `InputError` if one is given."""
        for name, value in (
            ("--trace-dir", next(iter(self.trace_dirs), None)),
            ("--token-file", self.token_file),
            ("--token-variable", self.token_variable),
        ):
            if value is not None:
                raise InputError(f"{name} {value}: only with the URL of a server")

    def open(self, urls: Sequence[str]) -> "Door":
        from decodescope.attach.servers.opening import open_servers
        from decodescope.attach.servers.tokens import Token

        token = None
        if self.token_file is not None and self.token_variable is not None:
            raise InputError("--token-file and --token-variable: give one of the two")
        if self.token_file is not None:
            token = Token.from_file(self.token_file)
        elif self.token_variable is not None:
            token = Token.from_variable(self.token_variable)
        return open_servers(urls, self.trace_dirs, token)


def _opened(targets: Sequence[str], everything: bool, server: _ServerOptions) -> "Door":
    """The door into the targets; nothing happens to them yet."""
    urls = [target for target in targets if "://" in target]
    if bool(targets) == everything:
        raise click.UsageError("give TARGET..., or --all.")
    if urls and len(targets) > len(urls):
        raise InputError(f"{urls[0]}: give servers, or ids of processes")
    if urls:
        return server.open(urls)
    server.check_unused()
    from decodescope.attach.kineto.kineto_door import KinetoDoor
    from decodescope.attach.kineto.targets import all_processes, job_processes

    if everything:
        return KinetoDoor(all_processes(), all_must_ask=False)
    return KinetoDoor(job_processes([_pid(target) for target in targets]))


def _pid(target: str) -> int:
    if target.isascii() and target.isdigit() and 0 < int(target) < 1 << 31:
        return int(target)
    raise InputError(
        f"{target}: neither the id of a process nor a URL; give one such as 4711 or "
        "http://127.0.0.1:8000"
    )


def _window(door: "Door", plan: "WindowPlan") -> "CapturedWindow":
    with progress(say) as stage:
        window = door.window(plan, stage)
    for trace in window.traces:
        say(f"wrote {trace}")
    return window


def _show(window: "CapturedWindow", facts: "Given", as_json: bool) -> None:
    """Print the report of a window, as `analyze` does that of its traces."""
    from msgspec.structs import replace as with_fields

    from decodescope.analyzer.views.ranks_table import servers_report_table

    if window.group is not None:
        print_result(_servers_report(window, window.group, facts), servers_report_table, as_json)
        return
    if len(window.traces) == 1:
        from decodescope import analyzer
        from decodescope.analyzer.views.report_table import report_table

        analysis = analyzer.analyze(analyzer.load(window.traces[0]), facts)
        report = with_fields(analysis.report, observer=window.observer)
        print_result(report, report_table, as_json)
        return
    from decodescope.analyzer.reports.rank_analysis import analyze_ranks
    from decodescope.analyzer.views.ranks_table import ranks_report_table

    ranks = analyze_ranks(window.traces, facts).report
    observed = partial(with_fields, observer=window.observer)
    observed_ranks = with_fields(
        ranks,
        ranks=tuple(with_fields(rank, report=observed(rank.report)) for rank in ranks.ranks),
        merged=None if ranks.merged is None else observed(ranks.merged),
    )
    print_result(observed_ranks, ranks_report_table, as_json)


def _servers_report(
    window: "CapturedWindow", group: "ServerFigures", facts: "Given"
) -> "ServersReport":
    from decodescope.analyzer.reports.rank_analysis import ServerTraces, analyze_servers

    servers = [
        ServerTraces(figures, problem=one.problem)
        if one.window is None
        else ServerTraces(figures, one.window.traces, one.window.observer)
        for figures, one in zip(group.servers, window.servers, strict=True)
    ]
    return analyze_servers(group, window.observer, servers, facts)
