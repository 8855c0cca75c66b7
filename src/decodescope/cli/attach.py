"""`attach`: windows of processes and servers that run already."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable_in, make_folder
from decodescope.analyzer.text.numbers import whole_number
from decodescope.cli.analyze import analyzed, print_report
from decodescope.cli.app import AppOptions, app_options, show_app
from decodescope.cli.ending import current_ending
from decodescope.cli.given import GivenOptions, given_options
from decodescope.cli.options import FILE, json_option, number_option, record_option
from decodescope.cli.output import print_result, progress, progress_option, say
from decodescope.cli.recording import check_recording, recorded, recording_writer

if TYPE_CHECKING:
    from decodescope.analyzer.recordings.writer import RecordingWriter
    from decodescope.analyzer.reports.user_facts import Given
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
@record_option(help="Record the metrics and the windows; decodescope open replays them.")
@json_option
@progress_option
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
    check_recording(record, options.files)
    opened = _opened(targets, everything, trace_dirs, token_file, token_variable)
    with opened as door, recording_writer(record) as writer:
        current_ending().finishing = f"{door.target}: its window is being closed"
        facts = _facts(options, door)
        make_folder(folder, "--out")
        plan = WindowPlan(folder, duration_ms or _DEFAULT_MS, iterations)
        if place is not None:
            show_app(_source(door, plan, facts, writer), place, showing)
            return
        target = door.target
        say(f"{target}: {door.cost}")
        began_s = time.monotonic()
        with recorded(door, plan, writer) as note:
            for number in range(windows or 1):
                if every is not None:
                    time.sleep(max(began_s + number * every - time.monotonic(), 0))
                if number:
                    door.look_again()
                window = _window(door, plan)
                note(window)
                if door.target != target:
                    target = door.target
                    say(f"now {target}")
                    facts = _facts(options, door)
                _show(window, facts, as_json)


def _facts(options: GivenOptions, door: "Door") -> "Given":
    return replace(options, model=options.model or door.model).read()


def _source(
    door: "Door", plan: "WindowPlan", facts: "Given", writer: "RecordingWriter | None"
) -> "AttachSource":
    """The source of the app, whose events `writer` records."""
    from decodescope.tui.link.attached import AttachLink
    from decodescope.tui.link.recording import Recorder
    from decodescope.tui.model.sources import AttachSource

    recorder = Recorder(writer) if writer is not None else None
    return AttachSource(AttachLink(door, plan), facts, recorder=recorder)


def _opened(
    targets: Sequence[str],
    everything: bool,
    trace_dirs: tuple[Path, ...],
    token_file: Path | None,
    token_variable: str | None,
) -> "Door":
    """The door into the targets; nothing happens to them yet."""
    urls = [target for target in targets if "://" in target]
    if bool(targets) == everything:
        raise click.UsageError("give TARGET..., or --all.")
    if urls and len(targets) > len(urls):
        raise InputError(f"{urls[0]}: give servers, or ids of processes")
    if urls:
        from decodescope.attach.servers.opening import open_servers
        from decodescope.attach.servers.tokens import read_token

        return open_servers(urls, trace_dirs, read_token(token_file, token_variable), say)
    for name, value in (
        ("--trace-dir", next(iter(trace_dirs), None)),
        ("--token-file", token_file),
        ("--token-variable", token_variable),
    ):
        if value is not None:
            raise InputError(f"{name} {value}: only with the URL of a server")
    from decodescope.attach.kineto.kineto_door import KinetoDoor
    from decodescope.attach.kineto.processes import all_processes, job_processes

    if everything:
        return KinetoDoor(all_processes(), all_must_ask=False)
    return KinetoDoor(job_processes([_pid(target) for target in targets]))


def _pid(target: str) -> int:
    pid = whole_number(target)
    if pid is not None and 0 < pid < 1 << 31:
        return pid
    from decodescope.attach.servers.address import shown_address

    raise InputError(
        f"{shown_address(target)}: neither the id of a process nor a URL; give one such as 4711 or "
        "http://127.0.0.1:8000"
    )


def _window(door: "Door", plan: "WindowPlan") -> "CapturedWindow":
    from decodescope.analyzer.vocabulary.words import observer_words
    from decodescope.attach.taking import take_window

    with progress() as stage:
        window = take_window(door, plan, stage)
    for trace in window.traces:
        say(f"wrote {trace}")
    if words := observer_words(window.observer):
        say(f"cost of the window: {words}")
    return window


def _show(window: "CapturedWindow", facts: "Given", as_json: bool) -> None:
    """Print the report of a window, as `analyze` does that of its traces."""
    from msgspec.structs import replace as with_fields

    from decodescope.analyzer.reports.rank_analysis import analyze_servers
    from decodescope.analyzer.schema.report import Report
    from decodescope.analyzer.views.ranks_table import servers_report_table

    if window.group is not None:
        servers = analyze_servers(window.group, window.observer, window.servers, facts)
        for one, traces in zip(servers.servers, window.servers, strict=True):
            if one.problem != traces.problem:
                say(f"no report of {one.figures.name}: {one.problem}")
        print_result(servers, servers_report_table, as_json)
        return
    report = analyzed(window.traces, facts).report
    observed = partial(with_fields, observer=window.observer)
    if isinstance(report, Report):
        print_report(observed(report), as_json)
        return
    ranks = tuple(with_fields(rank, report=observed(rank.report)) for rank in report.ranks)
    merged = None if report.merged is None else observed(report.merged)
    print_report(with_fields(report, ranks=ranks, merged=merged), as_json)
