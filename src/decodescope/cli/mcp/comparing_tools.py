"""The tools that compare traces: `diff`, and `gate` with its baselines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from decodescope.cli.gate import read_allowed, read_subjects
from decodescope.cli.given import GivenOptions
from decodescope.cli.mcp.answers import MOST_ROWS, figures_of, findings_of, page
from decodescope.cli.mcp.tool_host import ToolHost
from decodescope.cli.mcp.trace_tools import Count, Offset, PathText, ShortText

PathTexts = Annotated[tuple[PathText, ...], Meta(min_length=1, max_length=50)]
ShortTexts = Annotated[tuple[ShortText, ...], Meta(max_length=20)]

_DIFF = (
    "base_step_ns",
    "other_step_ns",
    "ratio",
    "interval",
    "verdict",
    "reason",
    "differences",
    "unprofiled_ratio",
    "more_base",
    "more_other",
)
_RANGE = ("path", "attributed_ns", "idle_ns", "gpu_ops", "launch_calls")


class DiffArguments(Struct, frozen=True, forbid_unknown_fields=True):
    base: PathTexts
    other: PathTexts
    rows: Literal["parts", "ranges"] = "parts"
    offset: Offset = 0
    count: Count = MOST_ROWS


class GateArguments(Struct, frozen=True, forbid_unknown_fields=True):
    paths: PathTexts
    baseline: ShortText
    folder: PathText = ".decodescope/baselines"
    allow: ShortTexts = ()
    accept: ShortTexts = ()
    save: bool = False
    offset: Offset = 0


def diff_tool(host: ToolHost, arguments: DiffArguments) -> str:
    from decodescope.analyzer.comparing.diff import diff_sides

    sides = [
        [host.analysis(path).report for path in paths]
        for paths in (arguments.base, arguments.other)
    ]
    result = diff_sides(*sides)
    head = figures_of(result.answer, *_DIFF) | findings_of(result.findings)
    first, after = arguments.offset, arguments.offset + arguments.count
    if arguments.rows == "parts":
        parts = result.answer.parts
        return page(head, "parts", map(figures_of, parts[first:after]), first, len(parts))
    ranges = result.pair.ranges
    rows = (figures_of(row, *_RANGE) for row in ranges[first:after])
    return page(head, "ranges", rows, first, len(ranges))


def gate_tool(host: ToolHost, arguments: GateArguments) -> str:
    from decodescope.analyzer.comparing import gate as judging
    from decodescope.analyzer.comparing.baselines import read_baseline

    files = [host.places.trace(path) for path in arguments.paths]
    name, folder = arguments.baseline, arguments.folder
    if arguments.save:
        host.output(f"{folder}/{name}.json")
        return _save(host.output(folder), name, files)
    host.places.inside(f"{folder}/{name}.json")
    baseline = read_baseline(host.places.inside(folder), name)
    subjects = read_subjects(files, GivenOptions())
    allowed = read_allowed(arguments.allow, arguments.accept)
    report = judging.gate(baseline, subjects, allowed)
    head = figures_of(report, "verdict", "baseline", "saved_at", "conditions")
    head |= findings_of(report.findings)
    rows = map(figures_of, report.rows[arguments.offset :])
    return page(head, "rows", rows, arguments.offset, len(report.rows))


def _save(folder: Path, name: str, files: Sequence[Path]) -> str:
    from decodescope.analyzer.comparing.baselines import save_baseline

    saved = save_baseline(folder, name, read_subjects(files, GivenOptions()))
    samples = [sample for subject in saved.subjects for sample in subject.samples]
    rows = (figures_of(sample, "path") | {"steps": len(sample.step_times_ns)} for sample in samples)
    return page(figures_of(saved, "name", "saved_at"), "samples", rows, 0, len(samples))
