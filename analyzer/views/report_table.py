"""A report as text for a terminal: an overview of at most 60 lines, or the sections that `--show`
names."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.report import Attribution, Report
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.devices_table import devices_table, streams_table
from decodescope.analyzer.tables.gaps_table import (
    gap_classes_table,
    gap_groups_table,
    interruptions_table,
)
from decodescope.analyzer.tables.kernels_table import (
    kernels_table,
    launch_apis_table,
    launch_times_table,
)
from decodescope.analyzer.tables.ranges_table import ranges_table
from decodescope.analyzer.tables.steps_table import NO_LIMITS, step_kinds_table, steps_table
from decodescope.analyzer.text.formatting import count, percent, weights_note
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.table_parts import (
    MIN_WIDTH,
    Fitted,
    answer_block,
    rich_table,
    section,
)
from decodescope.analyzer.vocabulary import words
from decodescope.analyzer.vocabulary.answer_words import REFUSED, answer_lines

# Lines of the overview, and rows of a table in it; the kernels have the lines that are left.
OVERVIEW_LINES = 60
SUMMARY_LINES = 30
_OVERVIEW_ROWS = {"kinds": 4, "steps": 5, "kernels": 30}
_OVERVIEW_PARTS, _OVERVIEW_FINDINGS, _LEAST_KERNEL_LINES = 8, 5, 10
# Rows of a table that was asked for.
MOST_ROWS = 1_000
_DEVICES_BY_NAME = 4
_LEVELS = " ▁▂▃▄▅▆▇█"

Draw = Callable[[Report, int, int], Iterator[RenderableType]]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the output that `--show` names: how many rows a report has for it, and how it is
    drawn, with its title, for a width and at most so many rows."""

    name: str
    rows: Callable[[Report], int]
    draw: Draw


def chosen_sections(show: str | None, sections: Sequence[Section]) -> tuple[str, ...]:
    """The names in the value of `--show`, separated by commas; `all` is every one.

    Raises:
        InputError: there is no such section.
    """
    names = tuple(section.name for section in sections)
    chosen = () if show is None else tuple(name.strip() for name in show.split(","))
    for name in chosen:
        if name != "all" and name not in names:
            known = ", ".join(names)
            raise InputError(f"--show {name or repr(name)}: give all, or some of {known}")
    return names if "all" in chosen else chosen


def report_table(
    report: Report, show: Collection[str] = (), limits_ns: Mapping[int, int] = NO_LIMITS
) -> RenderableType:
    """The overview of a report, or all rows of the sections named in `show`, with the limits of
    steps that are known, by the step's index."""
    if not show:
        return Overview(report)
    steps = partial(_steps, limits_ns=limits_ns)
    parts = [replace(part, draw=steps) if part.name == "steps" else part for part in SECTIONS]
    return shown_sections(report, show, parts)


def shown_sections(
    report: Report, show: Collection[str], sections: Sequence[Section]
) -> RenderableType:
    """The title of a report, and the named of the sections."""

    def parts(width: int) -> RenderResult:
        yield _title(report, width)
        for part in sections:
            if part.name in show and part.rows(report):
                yield from part.draw(report, width, MOST_ROWS)
            elif part.name in show and len(show) < len(sections):
                yield from section(part.name.capitalize(), Text("none in this trace", style="dim"))

    return Fitted(parts)


@dataclass(frozen=True, slots=True)
class Overview:
    """The lines of `before`, title, answer and findings of a report, and as many of its steps and
    kernels as fit in `OVERVIEW_LINES`."""

    report: Report
    before: Callable[[int], Iterable[RenderableType]] = lambda width: ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        report, width = self.report, max(options.max_width, MIN_WIDTH)
        lines = _line_counter(console, options)
        shown = [
            *self.before(width),
            _title(report, width),
            *_answer(report, width, _OVERVIEW_PARTS),
            *_health(report, width, _OVERVIEW_FINDINGS),
        ]
        sections = [part for part in SECTIONS if part.rows(report) and part.name != "health"]
        room = OVERVIEW_LINES - lines([*shown, "", _more(sections)])
        whole = []
        for part in sections:
            most = _overview_rows(part, report)
            if most:
                others = lines(list(part.draw(report, width, 1))) - 1
                kept = 0 if part.name == "kernels" else _LEAST_KERNEL_LINES
                most = min(most, room - others - kept)
            if most > 0:
                drawn = list(part.draw(report, width, most))
                room -= lines(drawn)
                shown += drawn
                whole += [part] if part.rows(report) <= most else []
        yield from shown
        yield ""
        yield _more([part for part in sections if part not in whole])


@dataclass(frozen=True, slots=True)
class BriefReport:
    """The lines of `before`, title and answer of a report, with as many parts as fit in
    `SUMMARY_LINES`, and then as many of its findings."""

    report: Report
    before: Callable[[int], Iterable[RenderableType]] = lambda width: ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        report, width = self.report, max(options.max_width, MIN_WIDTH)
        lines = _line_counter(console, options)
        head = [*self.before(width), _title(report, width)]
        for most in range(_OVERVIEW_PARTS, 0, -1):
            shown = [*head, *_answer(report, width, most)]
            if lines(shown) <= SUMMARY_LINES:
                break
        for most in range(_OVERVIEW_FINDINGS, 0, -1):
            findings = list(_health(report, width, most))
            if lines([*shown, *findings]) <= SUMMARY_LINES:
                shown += findings
                break
        yield from shown


def _line_counter(
    console: Console, options: ConsoleOptions
) -> Callable[[Sequence[RenderableType]], int]:
    """Counts the lines that parts take on a console, at least `MIN_WIDTH` wide."""
    at_width = options.update(width=max(options.max_width, MIN_WIDTH))
    return lambda parts: len(console.render_lines(Group(*parts), at_width, pad=False))


def _overview_rows(part: Section, report: Report) -> int:
    """The most rows in the overview. The title of a capture of ours says what its steps are."""
    named = any(row.kind != "unknown" for row in report.step_kinds)
    shown = report.capture is None and (named or report.main_steps.outside_ops > 0)
    if part.name == "kinds" and not shown:
        return 0
    return _OVERVIEW_ROWS.get(part.name, 0)


def _more(sections: Sequence[Section]) -> Text:
    names = ", ".join([*(part.name for part in sections), "all"])
    return Text(f"more, with --show: {names}", style="dim")


def _answer(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    """The answer; asked for, with all parts, the layers of the step, and the work that it has."""
    whole = most == MOST_ROWS
    parts = None if whole else most
    yield from answer_block(answer_lines(report), report.answer, width, parts, report.kernels)
    if whole and report.structure is not None and report.structure.layers:
        yield Text(words.layers_words(report.structure), style="dim")
    if whole and report.step_cost is not None:
        yield Text(plain_line(words.cost_words(report.step_cost)), style="dim")


def _tabled(title: str, table_of: Callable[[Report, int], Table[Any]]) -> Draw:
    """Draws one table below its title."""
    return lambda report, width, most: section(title, rich_table(table_of(report, most), width))


def _steps(
    report: Report, width: int, most: int, limits_ns: Mapping[int, int] = NO_LIMITS
) -> Iterator[RenderableType]:
    return section("Steps", rich_table(steps_table(report, most, limits_ns), width))


def _kernels(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    sentences = (words.main_steps_words(report), words.overlap_words(report))
    steps = report.main_steps.steps
    table = kernels_table(
        report.kernels,
        attributed=report.overlapping,
        on_cpu=report.on_cpu,
        steps=steps or None,
        most=most,
    )
    title = "Leaf operators" if report.on_cpu else "Kernels"
    lines = [Text(line, style="dim") for line in sentences if line]
    return section(title, *lines, rich_table(table, width))


def _ranges(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    attribution, steps = report.attribution, report.main_steps.steps
    lines = [Text(f"per step, {words.steps_words(report)}", style="dim")] if steps else []
    lines += [_attribution_line(report, attribution)] if attribution is not None else []
    table = rich_table(ranges_table(report, most, steps=steps or None), width)
    return section("Ranges", *lines, table)


def _gaps(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    yield from section("Idle gaps", rich_table(gap_classes_table(report), width))
    yield from section("Gaps", rich_table(gap_groups_table(report, most), width))


def _launches(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    """The launch calls by function and by time, the queue depth over time, and sentences."""
    launches = report.launches
    yield from section("Launch calls", rich_table(launch_apis_table(launches), width))
    yield ""
    yield rich_table(launch_times_table(launches), width)
    yield ""
    if (depth := launches.queue_depth) is not None and any(depth.over_time):
        title = "queue depth  "
        yield Text(f"{title}{_sparkline(depth.over_time, width - len(title))}")
    yield from map(Text, words.launch_words(report))


def _sparkline(depths: Sequence[int], cells: int) -> str:
    """One mark for each run of equally many depths, as high as the largest; blank only for zero."""
    each = max(math.ceil(len(depths) / cells), 1)
    largest = [max(depths[place : place + each]) for place in range(0, len(depths), each)]
    top = max(largest, default=0) or 1
    return "".join(_LEVELS[math.ceil(depth * (len(_LEVELS) - 1) / top)] for depth in largest)


def _streams(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    title = "Threads" if report.on_cpu else "Streams"
    return section(title, rich_table(streams_table(report, most), width))


def _communication(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    """The time of each device that communicated; with several, who waits for whom."""
    from decodescope.analyzer.tables.communication_table import communication_table
    from decodescope.analyzer.views.waiting_sections import waiting_sections

    yield from section("Communication", rich_table(communication_table(report), width))
    if report.communication is not None:
        yield from waiting_sections(report.communication, width, most)


def _title(report: Report, width: int) -> Text:
    source = report.source
    text = Text(cut_middle(source.path, width), style="bold")
    text.append(f"\n{source.format} · {count(source.events)} events", style="not bold")
    if report.devices:
        text.append(f"\ndevice: {_device_names(report, width)}", style="not bold")
    if capture := report.capture:
        text.append(f"\n{cut_middle(capture.model, width)}", style="not bold")
        if note := weights_note(capture.weights):
            text.append(f" ({note})", style="bold yellow")
        ranks = f"TP {capture.tp} · " * (capture.tp > 1)
        text.append(
            f" · {cut_middle(capture.variant, width)} · {ranks}"
            f"{cut_middle(capture.dtype, width)} · batch {capture.batch} · "
            f"context {capture.context} · {capture.steps} steps from position {capture.position}",
            style="not bold",
        )
    return text


def _device_names(report: Report, width: int) -> str:
    """The name of each device; with many of one name, how many they are."""
    by_name: dict[str, list[str]] = {}
    for device in report.devices:
        name = cut_middle(device.name or "unnamed", width)
        by_name.setdefault(name, []).append(words.device_words(device.device))
    if report.on_cpu:
        return f"cpu · {next(iter(by_name))}"
    return ", ".join(
        f"{name} ({', '.join(keys)})"
        if len(keys) <= _DEVICES_BY_NAME
        else f"{count(len(keys))} x {name}"
        for name, keys in by_name.items()
    )


def _health(report: Report, width: int, most: int) -> Iterator[RenderableType]:
    """The first `most` findings, and who is waited for. The overview has refused a model before."""
    health, findings = report.health, report.health.findings
    if most < MOST_ROWS:
        findings = tuple(finding for finding in findings if finding.code != REFUSED)
    if findings:
        style = "" if health.status == "ok" else "yellow"
        lines = [Text(f"  {finding.message}", style=style) for finding in findings[:most]]
        if (more := len(findings) - most) > 0:
            lines.append(Text(f"and {more} more findings: --show health", style="dim"))
        yield from section(f"Trace health: {health.status.replace('_', ' ')}", *lines)
    if (waits := report.communication) is not None and waits.straggler is not None:
        yield Text(words.straggler_text(waits), style="bold")


def _attribution_line(report: Report, attribution: Attribution) -> Text:
    """How many ops have a path, by confidence."""
    ops = attribution.exact + attribution.partial + attribution.none
    parts = [
        f"{percent(number / ops)} % {word}"
        for number, word in (
            (attribution.exact, "exactly"),
            (attribution.partial, "partially"),
            (attribution.none, "not"),
        )
        if number
    ]
    sentence = f"of {count(ops)} {words.ops_word(report)}: {', '.join(parts)} attributed"
    if attribution.inferred:
        sentence += (
            f"; {percent(attribution.inferred / ops)} % have a path inferred from kernel names"
        )
    return Text(sentence, style="dim")


# In the order of printing; the first two begin every overview.
SECTIONS = (
    Section("answer", lambda report: 1, _answer),
    Section("health", lambda report: len(report.health.findings), _health),
    Section(
        "kinds", lambda report: len(report.step_kinds), _tabled("Kinds of steps", step_kinds_table)
    ),
    Section("steps", lambda report: len(report.steps), _steps),
    Section("kernels", lambda report: len(report.kernels), _kernels),
    Section("ranges", lambda report: len(report.ranges), _ranges),
    Section("gaps", lambda report: len(report.devices), _gaps),
    Section("launches", lambda report: report.launches.calls, _launches),
    Section(
        "devices",
        lambda report: len(report.devices),
        _tabled("Devices", lambda report, most: devices_table(report)),
    ),
    Section("streams", lambda report: sum(len(row.streams) for row in report.devices), _streams),
    Section(
        "communication",
        lambda report: sum(device.communication_ns > 0 for device in report.devices),
        _communication,
    ),
    Section(
        "interruptions",
        lambda report: len(report.interruptions),
        _tabled("Interruptions", interruptions_table),
    ),
)
