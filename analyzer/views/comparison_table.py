"""A comparison or a diff as titles, tables and notes: for a terminal from 60 columns on, and as
GitHub Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace
from rich.console import RenderableType, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from decodescope.analyzer.comparing.diff import BASE, OTHER
from decodescope.analyzer.comparing.range_alignment import time_figure
from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.schema.comparison_report import Comparison, Diff, DiffAnswer, Pair
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.step_report import StepKind
from decodescope.analyzer.tables.changes_table import parts_table, range_changes_table, range_notes
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.tables.sides_table import (
    accuracy_notes,
    accuracy_table,
    speed_table,
    speeds_table,
)
from decodescope.analyzer.text.formatting import (
    duration,
    parallel_words,
    ratio_text,
    sampling_words,
    signed_change,
    weights_note,
)
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.table_parts import Fitted, plain_table
from decodescope.analyzer.vocabulary.words import (
    STANDINGS_NOTE,
    STEP_NOTE,
    device_words,
    part_words,
    step_ratio_text,
)

_MOST_RANGES = 12
_FIRST_COLUMN_CELLS = 16
_SPACE = 2
# An underscore inside a word is not emphasis, and kernel and range names are full of them. GitHub
# makes a link of "://" and of "www.".
_SPECIAL = re.compile(
    r"[\\`*\[\]{}|#~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|(?<=:)/(?=/)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its title, and a note below it."""

    title: str
    table: Table[Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything an output shows, in its order. `answer`: the lines of a diff's below the title.
    `last` is what a terminal shows once more below all others, where the prompt follows."""

    title: str
    weights_note: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    answer: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    last: tuple[Section, ...] = ()


def summary_of(compared: Comparison | Diff) -> Summary:
    return _diff_summary(compared) if isinstance(compared, Diff) else _comparison_summary(compared)


def _comparison_summary(comparison: Comparison) -> Summary:
    run, result, sides = comparison.runs[0], comparison.comparison, sides_of(comparison)
    untimed = [variant.variant for variant in result.variants if variant.interpreted]
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    speeds = [pair.speed for pair in result.pairs if pair.speed is not None]
    reasons = dict.fromkeys(speed.reason for speed in speeds if speed.reason)
    accuracy = [*accuracy_notes(sides)[:1], *([STANDINGS_NOTE] if result.standings else [])]
    ratios = Section("Ratios of tokens/s", speed_table(result.pairs), "; ".join(reasons))
    return Summary(
        title=run.model,
        weights_note=weights_note(run.weights),
        facts=(
            f"{run.dtype} · batch {run.batch} · context {run.context} + {run.tokens} tokens · "
            f"{sampling_words(run.sampling)}"
            + (f" · {parallel_words(run.tp, run.ep)}" if run.tp > 1 else ""),
            f"{rounds}, variants in turn · device: {run.device} · {run.device_name}",
            *([f"interpreted, without times: {', '.join(untimed)}"] if untimed else ()),
        ),
        sections=_with_rows(
            ratios,
            Section("Tokens/s, unprofiled, and figures of a step", speeds_table(sides)),
            Section("Accuracy of the logits", accuracy_table(sides), "; ".join(accuracy)),
            *_change_sections(result.pairs),
        ),
        findings=result.findings,
        last=_with_rows(ratios),
    )


def _diff_summary(diff: Diff) -> Summary:
    reports = {BASE: diff.base, OTHER: diff.other}
    pair = replace(diff.pair, base=BASE, other=OTHER, step=diff.answer)
    per = "per step" if diff.base.steps or diff.other.steps else "in all"
    weights = [report.capture.weights for report in reports.values() if report.capture]
    traces = (diff.answer.base_traces, diff.answer.other_traces)
    title, *answer = answer_lines(diff)
    return Summary(
        title=title,
        weights_note=", ".join(dict.fromkeys(filter(None, map(weights_note, weights)))),
        answer=tuple(answer),
        facts=tuple(
            _source_line(name, report, len(of_side))
            for (name, report), of_side in zip(reports.items(), traces, strict=True)
        ),
        sections=_with_rows(
            Section("Figures of both sides", speeds_table(sides_of(diff))),
            *_change_sections((pair,), per),
        ),
        findings=diff.findings,
    )


def answer_lines(diff: Diff) -> Iterator[str]:
    """Step against step in one line; the step times without a profiler; the part that changed most
    (that the profiler's cost changed says nothing about the step)."""
    answer = diff.answer
    yield _step_line(answer, diff.base.answer.kind)
    if answer.unprofiled_ratio is not None:
        base_ns, other_ns = (report.answer.unprofiled_step_ns for report in (diff.base, diff.other))
        ratio = "" if answer.differences else f", {ratio_text(answer.unprofiled_ratio)}"
        yield f"unprofiled: {duration(base_ns)} → {duration(other_ns)}{ratio}"
    largest = next((row for row in answer.parts if row.group != "profiler"), None)
    if largest is not None and largest.change_ns:
        whole_ns = sum(row.change_ns for row in answer.parts)
        yield (
            f"changed most: {part_words(largest.part)} {signed_change(largest.change_ns)}, of the "
            f"step {signed_change(whole_ns)}"
        )


def _step_line(answer: DiffAnswer, kind: StepKind) -> str:
    """Of sides that differ, in what comes first, and their two step times are no ratio."""
    if answer.base_step_ns is None and answer.other_step_ns is None:
        return "What changed from A to B: whole traces, without steps"
    base, other = duration(answer.base_step_ns), duration(answer.other_step_ns)
    if answer.differences:
        return f"A and B differ in {', '.join(answer.differences)}: step {base} in A, {other} in B"
    step = "step" if kind == "unknown" else f"{kind} step"
    return f"{step} from A to B: {base} → {other}, {step_ratio_text(answer)}"


def _with_rows(*sections: Section) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.table.rows)


def _source_line(name: str, report: Report, traces: int) -> str:
    parts = [f"{name}: {report.source.path}"]
    if capture := report.capture:
        parts += [capture.model, capture.variant, capture.dtype]
        parts += [f"batch {capture.batch}", f"context {capture.context}"]
    parts.append(", ".join(device.name or device_words(device.device) for device in report.devices))
    parts.append("1 step" if report.answer.steps == 1 else f"{report.answer.steps} steps")
    if traces > 1:
        parts.append(f"the median of {traces} traces")
    return " · ".join(filter(None, parts))


def _change_sections(pairs: Sequence[Pair], per: str = "per step") -> Iterator[Section]:
    for pair in pairs:
        sides = f"{pair.base} to {pair.other}"
        if pair.step is not None:
            table = parts_table(pair.step, (pair.base, pair.other))
            yield Section(f"Where the time went {per}: {sides}", table, STEP_NOTE)
        yield range_section(pair)


def range_section(pair: Pair) -> Section:
    """The innermost ranges whose busy (if ops overlap: attributed) and idle time changed most."""
    table = range_changes_table(pair, (pair.base, pair.other), _MOST_RANGES)
    figure = time_figure(pair)
    keys = (f"{key}.{side}" for key in (figure, "idle_ns") for side in ("base", "other", "moved"))
    return Section(
        f"Ranges that changed most: {pair.base} to {pair.other}",
        table.only("path", "change", *keys),
        range_notes(table, pair.overlapping),
    )


def comparison_table(compared: Comparison | Diff) -> RenderableType:
    return summary_table(summary_of(compared))


def summary_table(summary: Summary) -> RenderableType:
    """For a terminal; columns that do not fit side by side continue below."""
    return Fitted(partial(_parts, summary))


def _parts(summary: Summary, width: int) -> RenderResult:
    yield _title(summary)
    for failure in summary.failures:
        yield Text(f"  {failure}", style="red")
    for section in summary.sections:
        yield from _section_parts(section, width)
    if summary.findings:
        yield ""
    for finding in summary.findings:
        yield Text(f"note: {finding.message}", style="yellow")
    for section in summary.last:
        yield from _section_parts(section, width)


def _section_parts(section: Section, width: int) -> RenderResult:
    yield ""
    yield Text(section.title, style="bold")
    yield from _fitting(section, width)
    if section.note:
        yield Text(section.note, style="dim")


def _title(summary: Summary) -> Text:
    text = Text(summary.title, style="bold")
    if summary.weights_note:
        text.append(f" ({summary.weights_note})", style="bold yellow")
    for fact in (*summary.answer, *summary.facts):
        text.append(f"\n{fact}", style="not bold")
    return text


def _fitting(section: Section, width: int) -> Iterator[RichTable]:
    """The table in as many parts as its columns need; each part repeats the first column."""
    columns = section.table.shown()
    texts = [[column.cell(row) for row in section.table.rows] for column in columns]
    taken: list[int] = []
    room = 0
    for index in range(1, len(columns)):
        needed = _SPACE + max(map(len, (columns[index].heading, *texts[index])))
        if taken and room + needed > width - _FIRST_COLUMN_CELLS:
            yield _table(columns, texts, [0, *taken])
            taken, room = [], 0
        taken.append(index)
        room += needed
    yield _table(columns, texts, [0, *taken])


def _table(
    columns: Sequence[Column[Any]], texts: Sequence[Sequence[str]], taken: Sequence[int]
) -> RichTable:
    table = plain_table()
    for index in taken:
        table.add_column(
            Text(columns[index].heading),
            justify=columns[index].align,
            no_wrap=index > 0,
            overflow="fold",
        )
    for cells in zip(*(texts[index] for index in taken), strict=True):
        table.add_row(*map(Text, cells))
    return table


def comparison_markdown(compared: Comparison | Diff) -> str:
    return summary_markdown(summary_of(compared))


def summary_markdown(summary: Summary) -> str:
    """The contents of `summary_table` as Markdown."""
    title = f"## {_escaped(summary.title)}"
    if summary.weights_note:
        title += f" ({_escaped(summary.weights_note)})"
    blocks = [title, _list((*summary.answer, *summary.facts))]
    if summary.failures:
        blocks.append(_list(summary.failures))
    for section in summary.sections:
        blocks += [f"### {_escaped(section.title)}", _markdown_table(section.table)]
        if section.note:
            blocks.append(_escaped(section.note))
    if summary.findings:
        blocks += ["### Findings", _list(finding.message for finding in summary.findings)]
    return "\n\n".join(blocks) + "\n"


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_escaped(text)}" for text in texts)


def _markdown_table(table: Table[Any]) -> str:
    columns = table.shown()
    rules = ["--:" if column.number else ":--" for column in columns]
    heads = [_escaped(column.heading) for column in columns]
    rows = [[_escaped(column.cell(row)) for column in columns] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _escaped(text: str) -> str:
    """`text` on one line, without anything that Markdown or HTML would interpret."""
    return _SPECIAL.sub(r"\\\g<0>", plain_line(text)).translate(_ENTITIES)
