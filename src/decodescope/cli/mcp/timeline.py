"""The tool `timeline`: what a device did in a step, or in any span, op by op as text."""

from typing import Annotated

import numpy as np
from msgspec import Meta

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.trace import Int64s
from decodescope.analyzer.tracks.build import StepTracks, span_tracks, step_tracks
from decodescope.analyzer.vocabulary.words import device_words
from decodescope.cli.mcp.answers import NAME_BYTES, cut_text, lines_page
from decodescope.cli.mcp.tool_host import ToolHost
from decodescope.cli.mcp.trace_tools import Amount, Offset, TraceArguments, names_shown

_NAME_CELLS = 70
_SPAN_NS = 100_000
_MOST_LINES = 200
_COLUMNS = f"{'at µs':>13} {'length µs':>11} {'stream':>8} op, or class of an idle gap"


class TimelineArguments(TraceArguments, frozen=True):
    step: Annotated[int, Meta(ge=0, description="default: the median step")] | None = None
    at_ns: (
        Annotated[
            int, Meta(ge=0, le=10**15, description="ns after the device's first op, as of gaps")
        ]
        | None
    ) = None
    span_ns: Amount = _SPAN_NS
    device: int | str | None = None
    offset: Offset = 0


def timeline_tool(host: ToolHost, arguments: TimelineArguments) -> str:
    analysis = host.analysis(arguments.path)
    tracks, title = _tracks(analysis, arguments)
    rows = _rows(tracks)
    total = len(rows)
    shown = rows[arguments.offset : arguments.offset + _MOST_LINES]
    head = f"{device_words(tracks.device)}, {title}: {tracks.length_ns:,} ns\n{_COLUMNS}"
    names = names_shown(analysis.report, (tracks.names[row[3]] for row in shown if row[3] >= 0))
    lines = (_line(tracks, names, *row) for row in shown.tolist())
    return lines_page(head, lines, arguments.offset, total, "lines")


def _tracks(analysis: Analysis, arguments: TimelineArguments) -> tuple[StepTracks, str]:
    """The tracks of what is asked for, and what it is."""
    if not analysis.busy:
        raise InputError("no GPU ops in this trace, so it has no timeline")
    step = analysis.median_step if arguments.step is None else arguments.step
    if arguments.at_ns is None and step is not None:
        _check_step(analysis, step)
        tracks = step_tracks(analysis, step)
        begin_ns = analysis.busy[int(analysis.steps.device[step])].start_ns[0]
        at_ns = int(analysis.steps.span.start_ns[step] - begin_ns)
        return tracks, f"step {step}, from at_ns {at_ns}"
    device = next(iter(analysis.busy))
    if arguments.device is not None:
        device = _ordinal(analysis, arguments.device)
    at_ns = arguments.at_ns or 0
    start_ns = int(analysis.busy[device].start_ns[0]) + at_ns
    return span_tracks(analysis, device, start_ns, arguments.span_ns), f"from at_ns {at_ns}"


def _check_step(analysis: Analysis, step: int) -> None:
    count = len(analysis.report.steps)
    if step >= count:
        raise InputError(f"step {step}: there are {count} steps, from 0")
    if not analysis.report.steps[step].gpu_ops:
        raise InputError(f"step {step}: launched no GPU ops; name another one")


def _ordinal(analysis: Analysis, label: int | str) -> int:
    """The device that a report calls by this label."""
    labels = {str(analysis.trace.device_label(device)): device for device in analysis.busy}
    if str(label) not in labels:
        raise InputError(
            f"device {cut_text(str(label), NAME_BYTES)}: there are {', '.join(labels)}"
        )
    return labels[str(label)]


def _rows(tracks: StepTracks) -> Int64s:
    """The ops and idle gaps in order of time: start, end, stream, name; of a gap, -1 - class."""
    parts = [
        np.stack(
            (
                track.slices.start_ns,
                track.slices.end_ns,
                np.full(len(track.slices), track.key.number),
                track.slices.label,
            ),
            axis=1,
        )
        for track in tracks.streams
    ]
    gaps = tracks.gaps.slices
    gap_class = -1 - gaps.kind.astype(np.int64)
    none = np.zeros(len(gaps), dtype=np.int64)
    parts.append(np.stack((gaps.start_ns, gaps.end_ns, none, gap_class), axis=1))
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _line(
    tracks: StepTracks, names: ShortNames, start_ns: int, end_ns: int, stream: int, label: int
) -> str:
    times = f"{start_ns / 1e3:13,.3f} {(end_ns - start_ns) / 1e3:11,.3f}"
    if label < 0:
        return f"{times} {'':>8} idle: {GAP_CLASSES[-1 - label]}"
    name = names.of(tracks.names[label], _NAME_CELLS)
    return f"{times} {stream:>8} {cut_text(name, NAME_BYTES)}"
