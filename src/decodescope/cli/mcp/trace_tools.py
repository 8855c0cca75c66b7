"""The tools about one trace: its answer, and its tables row by row."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from decodescope.analyzer.errors import InputError
from decodescope.cli.analyze import summary_text
from decodescope.cli.given import GivenOptions
from decodescope.cli.mcp.answers import (
    MOST_ROWS,
    Figures,
    cut,
    cut_text,
    figures_of,
    findings_of,
    page,
)
from decodescope.cli.mcp.places import RECORDINGS
from decodescope.cli.mcp.tool_host import ToolHost

if TYPE_CHECKING:
    from decodescope.analyzer.names.fitted_names import ShortNames
    from decodescope.analyzer.schema.report import (
        DeviceReport,
        GapGroup,
        GapReport,
        RangeReport,
        Report,
    )

_MOST_NAMES, _MOST_DEVICES = 4, 4
_NAME_CELLS = 80
_LONG_NAME_BYTES = 1_500
ANSWER = (
    "kind",
    "steps",
    "step",
    "step_ns",
    "whole_ns",
    "unprofiled_step_ns",
    "tokens_per_s",
    "batch",
    "limit_ns",
    "limit_is_lower_bound",
    "limit_bound",
    "model",
    "model_source",
    "bound",
    "interruptions_ns",
)
_COMMON = ("count", "total_ns", "attributed_ns", "mean_ns")

PathText = Annotated[str, Meta(min_length=1, max_length=4096)]
ShortText = Annotated[str, Meta(min_length=1, max_length=200)]
Amount = Annotated[int, Meta(ge=1, le=10**9)]
Offset = Annotated[int, Meta(ge=0, le=10**9, description="the number of the first row")]
Count = Annotated[int, Meta(ge=1, le=MOST_ROWS, description="the most rows")]


class TraceArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: PathText


class AnswerArguments(TraceArguments, frozen=True):
    all_parts: Annotated[bool, Meta(description="every part, as JSON")] = False
    offset: Offset = 0


class OpenArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: PathText | None = None
    offset: Offset = 0
    model: ShortText | None = None
    weights: ShortText | None = None
    batch: Amount | None = None
    context: Amount | None = None
    tensor_parallel: Amount | None = None
    peak: ShortText | None = None
    captures: Annotated[tuple[PathText, ...], Meta(max_length=8)] = ()

    def facts(self, host: ToolHost) -> GivenOptions | None:
        """The facts given beside the trace; None without any."""
        facts = GivenOptions(
            captures=tuple(map(host.places.trace, self.captures)),
            model=host.places.model(self.model),
            weights=self.weights,
            batch=self.batch,
            context=self.context,
            tensor_parallel=self.tensor_parallel,
            peak=self.peak,
        )
        return facts if facts else None


class KernelsArguments(TraceArguments, frozen=True):
    offset: Offset = 0
    count: Count = MOST_ROWS
    index: Annotated[int, Meta(ge=0, description="one kernel, with all its figures")] | None = None


class GapsArguments(TraceArguments, frozen=True):
    by: Literal["group", "length", "device"] = "group"
    offset: Offset = 0
    count: Count = MOST_ROWS


class LayersArguments(TraceArguments, frozen=True):
    under: (
        Annotated[str, Meta(max_length=4096, description="ranges below this path; '' is all")]
        | None
    ) = None
    offset: Offset = 0
    count: Count = MOST_ROWS


def open_tool(host: ToolHost, arguments: OpenArguments) -> str:
    path = arguments.path
    if path is None or (not path.startswith(RECORDINGS) and host.places.is_folder(path)):
        return _listing(host, path, arguments.offset)
    report = host.analysis(path, arguments.facts(host)).report
    names = dict.fromkeys(device.name for device in report.devices)
    head = {
        "path": cut(path),
        **figures_of(report.source, "format", "events"),
        "devices_total": len(report.devices),
        "device_names": cut(list(names)[:_MOST_NAMES]),
        **({} if report.capture is None else {"capture": figures_of(report.capture)}),
        "health": report.health.status,
        **findings_of(report.health.findings),
        "answer": figures_of(report.answer, *ANSWER),
        "rows": {
            "kernels": len(report.kernels),
            "gap_groups": len(report.gap_groups),
            "layers": len(report.layers),
            "ranges": len(report.ranges),
            "steps": len(report.steps),
        },
    }
    rows = (figures_of(row) for row in report.step_kinds[arguments.offset :])
    return page(head, "step_kinds", rows, arguments.offset, len(report.step_kinds))


def _listing(host: ToolHost, path: str | None, offset: int) -> str:
    from decodescope.analyzer.recordings.bundled import bundled_recordings

    entries = host.places.entries(path)
    if path is None:
        entries += [{"path": f"{RECORDINGS}{file.stem}"} for file in bundled_recordings()]
    return page({}, "entries", entries[offset:], offset, len(entries))


def answer_tool(host: ToolHost, arguments: AnswerArguments) -> str:
    report = host.analysis(arguments.path).report
    if not arguments.all_parts:
        return summary_text(report)
    head, parts = figures_of(report.answer, *ANSWER, "host"), report.answer.parts
    rows = map(figures_of, parts[arguments.offset :])
    return page(head, "parts", rows, arguments.offset, len(parts))


def kernels_tool(host: ToolHost, arguments: KernelsArguments) -> str:
    report = host.analysis(arguments.path).report
    if arguments.index is not None:
        return _kernel(report, arguments.index)
    head = {
        "kernels_ranked_by": report.kernels_ranked_by,
        "main_steps": figures_of(report.main_steps, "steps", "gpu_ops", "kernels_attributed_ns"),
    }
    first, after = arguments.offset, arguments.offset + arguments.count
    rows = _kernel_rows(report, first, after)
    return page(head, "kernels", rows, first, len(report.kernels))


def names_shown(report: "Report", others: Iterable[str] = ()) -> "ShortNames":
    """Short names of the kernels of a report and of `others`: in every answer, each has the name
    that tells it from all others."""
    from decodescope.analyzer.tables.kernels_table import short_names

    return short_names(report.kernels, (*(kernel.name for kernel in report.kernels), *others))


def _kernel_rows(report: "Report", first: int, after: int) -> Iterator[Figures]:
    names, chosen = names_shown(report), report.kernels[first:after]
    share = "attributed_share" if report.overlapping else "share"
    for index, kernel in enumerate(chosen, first):
        row = {"index": index, "name": cut(names.of(kernel.name, _NAME_CELLS))}
        row |= figures_of(kernel, *_COMMON, share)
        if kernel.roofline is not None:
            row["roofline"] = figures_of(kernel.roofline, "limit", "share_of_limit")
        yield row


def _kernel(report: "Report", index: int) -> str:
    if index >= len(report.kernels):
        raise InputError(f"index {index}: there are {len(report.kernels)} kernels, from 0")
    kernel = report.kernels[index]
    head: Figures = {"index": index, **figures_of(kernel)}
    head["name"] = cut_text(kernel.name, _LONG_NAME_BYTES)
    rows = [figures_of(part) for part in report.answer.parts if part.kernel == kernel.name]
    return page(head, "parts", rows, 0, len(rows))


def gaps_tool(host: ToolHost, arguments: GapsArguments) -> str:
    report = host.analysis(arguments.path).report
    first, after = arguments.offset, arguments.offset + arguments.count
    if arguments.by == "device":
        rows = map(_idle, report.devices[first:after])
        return page({}, "devices", rows, first, len(report.devices))
    head = {
        "devices_total": len(report.devices),
        "devices": [_idle(device) for device in report.devices[:_MOST_DEVICES]],
    }
    found: Sequence[GapReport | GapGroup] = report.gap_groups
    key = "gap_groups"
    if arguments.by == "length":
        found, key = report.largest_gaps, "largest_gaps"
    else:
        # The rows are those with the most time.
        head["gap_group_count"] = report.gap_group_count
    names = names_shown(report, (name for gap in found for name in (gap.prev, gap.next)))
    gaps = (_gap(gap, names) for gap in found[first:after])
    return page(head, key, gaps, first, len(found))


def _idle(device: "DeviceReport") -> Figures:
    classes = {name: gap.total_ns for name, gap in device.gaps.items()}
    known = figures_of(device, "device", "window_ns", "busy_ns", "idle_ns", "kernel_floor_ns")
    return known | {"gaps_total_ns": classes}


def _gap(gap: "GapReport | GapGroup", names: "ShortNames") -> Figures:
    around = (("prev", gap.prev), ("next", gap.next))
    return figures_of(gap) | {key: cut(names.of(name, _NAME_CELLS)) for key, name in around}


def layers_tool(host: ToolHost, arguments: LayersArguments) -> str:
    report = host.analysis(arguments.path).report
    first, after = arguments.offset, arguments.offset + arguments.count
    if arguments.under is not None:
        found = _ranges(report.ranges, arguments.under)
        rows = map(figures_of, found[first:after])
        head = figures_of(report.main_steps, "steps")
        return page(head, "ranges", rows, first, len(found))
    head = {} if report.structure is None else {"structure": figures_of(report.structure)}
    rows = map(figures_of, islice(report.layers, first, after))
    return page(head, "layers", rows, first, len(report.layers))


def _ranges(ranges: "Sequence[RangeReport]", under: str) -> "list[RangeReport]":
    inside = under.rstrip("/") + "/" if under else ""
    return [row for row in ranges if f"{row.path}/".startswith(inside)]
