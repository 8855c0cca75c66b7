"""A report, or the reports of several ranks of one run, as tables for a terminal."""

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.communication_report import CommunicationReport, SkewReport
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Attribution, Report
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.tables.devices_table import devices_table, streams_table
from decodescope.analyzer.tables.gap_classes_table import gap_classes_table
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.tables.ranges_table import ranges_table
from decodescope.analyzer.tables.steps_table import (
    idle_by_step_table,
    roles_table,
    step_kinds_table,
    steps_table,
)
from decodescope.analyzer.text.formatting import bytes_size, count, duration, percent, weights_note
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.report_blocks import launches_table
from decodescope.analyzer.views.table_parts import (
    Fitted,
    answer_text,
    rich_table,
    section,
    waterfall_section,
)
from decodescope.analyzer.vocabulary.words import (
    device_words,
    layers_words,
    ops_word,
    overlap_words,
    straggler_text,
)

_FOCUS_ROWS, _OTHER_ROWS = 30, 10
_INTERRUPTION_ROWS, _STEP_ROWS, _STREAM_ROWS = 10, 10, 12
_STEP_CELLS, _CLASS_CELLS = 24, 16
_MAX_COLLECTIVES, _MAX_STEPS = 12, 5


def report_table(report: Report, by: str = "kernel") -> RenderableType:
    """Everything a report says, in tables that fit the width of the terminal; `by` ("kernel",
    "range", "gap") chooses what is shown at length."""
    return Fitted(partial(_parts, report, by))


def _parts(report: Report, by: str, width: int) -> RenderResult:
    yield _title(report, width)
    yield _verdict(report)
    yield from _health(report)
    yield from waterfall_section(report.answer.parts, width)
    if report.interruptions:
        yield from section("Interruptions", _interruptions(report, width))
    if report.devices:
        yield from _idle(report, by, width)
    yield from _work(report, width)
    if report.kernels:
        title = "Leaf operators" if report.on_cpu else "Kernels"
        line = [Text(words, style="dim")] if (words := overlap_words(report)) else []
        table = kernels_table(
            report.kernels,
            attributed=report.overlapping,
            on_cpu=report.on_cpu,
            most=_FOCUS_ROWS if by == "kernel" else _OTHER_ROWS,
        )
        yield from section(title, *line, rich_table(table, width))
    if report.ranges:
        attribution = report.attribution
        line = [_attribution_line(report, attribution)] if attribution is not None else []
        ranges = ranges_table(report, _FOCUS_ROWS if by == "range" else _OTHER_ROWS)
        yield from section("Ranges", *line, rich_table(ranges, width))


def _work(report: Report, width: int) -> RenderResult:
    """The launch calls, the steps and what they consist of."""
    if report.launches.calls:
        yield from section("Launch calls", launches_table(report.launches, width))
    if report.steps:
        yield from section("Steps", rich_table(steps_table(report, _STEP_ROWS), width))
    # The title of a capture of ours says what its steps are.
    if report.capture is None and any(row.kind != "unknown" for row in report.step_kinds):
        kinds = step_kinds_table(report, _STEP_ROWS)
        yield from section("Kinds of steps", rich_table(kinds, width))
    if report.structure is not None and report.structure.layers:
        line = [Text(layers_words(report.structure))]
        if report.step_cost is not None:
            line.append(_cost_line(report.step_cost))
        roles = rich_table(roles_table(report.roles), width)
        yield from section("Parts of a step", *line, roles)


def _interruptions(report: Report, width: int) -> RenderableType:
    from decodescope.analyzer.tables.gaps_table import interruptions_table

    return rich_table(interruptions_table(report, _INTERRUPTION_ROWS), width)


def _title(report: Report, width: int) -> Text:
    source = report.source
    text = Text(cut_middle(source.path, width), style="bold")
    text.append(f"\n{source.format} · {count(source.events)} events", style="not bold")
    names = {device_words(device.device): device.name for device in report.devices}
    if report.on_cpu:
        text.append(f"\ndevice: cpu · {names['cpu']}", style="not bold")
    elif names:
        shown = ", ".join(f"{name or 'unnamed'} ({key})" for key, name in names.items())
        text.append(f"\ndevice: {shown}", style="not bold")
    if capture := report.capture:
        text.append(f"\n{capture.model}", style="not bold")
        if note := weights_note(capture.weights):
            text.append(f" ({note})", style="bold yellow")
        text.append(
            f" · {capture.variant} · {capture.dtype} · batch {capture.batch} · "
            f"context {capture.context} · {capture.steps} steps from position {capture.position}",
            style="not bold",
        )
    return text


def _verdict(report: Report) -> Text:
    text = Text("\n").append_text(answer_text(report.answer))
    observer = report.observer
    if observer is not None and observer.ratio is not None:
        text.append(
            f"\n  a step takes {duration(observer.unprofiled_step_ns)}, "
            f"{duration(observer.profiled_step_ns)} under the profiler (x{observer.ratio:.2f})",
            style="not bold",
        )
    return text


def _health(report: Report) -> RenderResult:
    health = report.health
    if health.findings:
        style = "" if health.status == "ok" else "yellow"
        lines = (Text(f"  {finding.message}", style=style) for finding in health.findings)
        yield from section(f"Trace health: {health.status.replace('_', ' ')}", *lines)


def _idle(report: Report, by: str, width: int) -> RenderResult:
    yield from section("Devices", rich_table(devices_table(report), width))
    if any(len(device.streams) > 1 for device in report.devices):
        title = "Threads" if report.on_cpu else "Streams"
        yield from section(title, rich_table(streams_table(report, _STREAM_ROWS), width))
    if any(device.communication_ns for device in report.devices):
        from decodescope.analyzer.tables.communication_table import communication_table

        yield from section("Communication", rich_table(communication_table(report), width))
    if report.communication is not None:
        yield from waiting_sections(report.communication, width)
    yield from section("Idle gaps", rich_table(gap_classes_table(report), width))
    if by == "gap":
        from decodescope.analyzer.tables.gaps_table import longest_gaps_table
        from decodescope.analyzer.views.report_blocks import gap_blocks

        if report.steps:
            classes = max((width - _STEP_CELLS) // _CLASS_CELLS, 1)
            table = idle_by_step_table(report, classes, _STEP_ROWS)
            yield from section("Idle by step", rich_table(table, width))
        yield from section("Longest gaps", gap_blocks(longest_gaps_table(report), report, width))


def _cost_line(cost: StepCost) -> Text:
    """The bytes that the step must read and its sizes, in a sentence."""
    sizes = [f"{count(cost.batch)} requests" if cost.batch != 1 else "1 request"]
    sizes += [f"{count(cost.kv_tokens)} KV positions"] if cost.kv_tokens is not None else []
    formats = f" ({plain_line(cost.weights)})" if cost.weights else ""
    devices = f", 1 of {cost.tensor_parallel} devices" if cost.tensor_parallel > 1 else ""
    peak = cost.peak_bytes_per_s
    at = f", {bytes_size(peak)}/s at most" if peak else ", at an unknown bandwidth"
    return Text(
        f"{plain_line(cost.model)}{formats}: {', '.join(sizes)}{devices}; a step reads "
        f"{bytes_size(cost.bytes_per_step)}{at}",
        style="dim",
    )


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
    sentence = f"of {count(ops)} {ops_word(report)}: {', '.join(parts)} attributed"
    if attribution.inferred:
        sentence += (
            f"; {percent(attribution.inferred / ops)} % have a path inferred from kernel names"
        )
    return Text(sentence, style="dim")


def ranks_report_table(report: RanksReport, by: str = "kernel") -> RenderableType:
    """Each rank in one line, the findings about them, who waits for whom, the skew of the steps,
    and the report of the merged trace."""
    return Fitted(partial(_ranks_parts, report, by))


def _ranks_parts(report: RanksReport, by: str, width: int) -> RenderResult:
    from decodescope.analyzer.tables.communication_table import ranks_table

    yield Text(f"{len(report.ranks)} ranks", style="bold")
    yield rich_table(ranks_table(report), width)
    yield from (Text(finding.message, style="yellow") for finding in report.findings)
    yield from waiting_sections(report.communication, width)
    if report.merged is not None:
        yield from section("All ranks on one clock", report_table(report.merged, by))


def waiting_sections(communication: CommunicationReport, width: int) -> RenderResult:
    """Sections with the straggler, the transfer and wait of each rank, the collectives, and the
    skew of the steps."""
    if communication.collectives:
        yield from section("Who waits for whom", *_waiting(communication, width))
        yield from section("Collectives", *_collectives(communication, width))
    if communication.skew is not None:
        yield from section(
            "Skew of the steps", *_skew(communication.skew, communication.member, width)
        )


def _waiting(communication: CommunicationReport, width: int) -> Iterator[RenderableType]:
    from decodescope.analyzer.tables.waiting_table import waiting_table

    yield Text(straggler_text(communication), style="bold" if communication.straggler else "")
    if communication.clock == "durations":
        yield Text("waits are found from durations: the clocks do not agree", style="dim")
    yield rich_table(waiting_table(communication), width)


def _collectives(communication: CommunicationReport, width: int) -> Iterator[RenderableType]:
    from decodescope.analyzer.tables.communication_table import collectives_table

    yield rich_table(collectives_table(communication, _MAX_COLLECTIVES), width)
    if any(collective.transfer_ns is None for collective in communication.collectives):
        yield Text(
            "without transfer and wait: not matched on another one, or an operation without a wait",
            style="dim",
        )


def _skew(skew: SkewReport, member: str, width: int) -> Iterator[RenderableType]:
    from decodescope.analyzer.tables.waiting_table import skew_table, spreads_table

    recorded = f"{count(skew.steps)} steps that {len(skew.ranks)} {member}s recorded"
    yield Text(f"{recorded}{_starters(skew, member)}")
    yield rich_table(spreads_table(skew), width)
    if any(step.start_spread_ns for step in skew.worst):
        yield rich_table(skew_table(skew, member, _MAX_STEPS), width)


def _starters(skew: SkewReport, member: str) -> str:
    """The member that starts most steps last."""
    if not skew.last_to_start:
        return ""
    rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
    return f"; {member} {rank} starts {count(steps)} of them last"
