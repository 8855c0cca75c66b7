"""The interruptions, and the steady state beside the whole."""

from typing import NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.interruption_report import (
    InterruptionReport,
    SteadyState,
    StepSummary,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.views.table_parts import MEDIUM_WIDTH, Column, columns_table
from decodescope.analyzer.vocabulary.words import device_words

_ROWS, _KINDS = 10, 6
_FIGURES_CELLS = 62


def interruption_parts(report: Report, steady: SteadyState, width: int) -> list[RenderableType]:
    """The interruptions, the windows with and without them, and the median steps."""
    parts: list[RenderableType] = [_intervals(report, width), "", _windows(report, steady)]
    if steady.steps:
        parts += ["", _median_steps(steady, width)]
    return parts


def _intervals(report: Report, width: int) -> Table:
    """Each interruption in order of time, with its evidence."""
    several = len(report.devices) > 1

    def described(one: InterruptionReport) -> Text:
        where = [one.cause.replace("_", " ")]
        where += [f"step {one.step}"] if one.step is not None else []
        where += [device_words(one.device)] if several else []
        return Text(" · ".join(where)).append(f"\n{one.evidence}", style="dim")

    columns: list[Column[InterruptionReport]] = [
        Column("at", lambda one: duration(one.at_ns)),
        Column("interrupted", lambda one: duration(one.ns)),
        Column("cause", described, text=True),
    ]
    table = columns_table(columns, report.interruptions, _ROWS, "intervals")
    table.columns[-1].no_wrap = False
    table.columns[-1].max_width = max(width - 24, 24)
    return table


class _Window(NamedTuple):
    """The windows of all devices: the whole, or what remains of it."""

    name: str
    window_ns: int
    busy_ns: int
    idle_ns: int

    @property
    def idle_share(self) -> float | None:
        return self.idle_ns / self.window_ns if self.window_ns else None


def _windows(report: Report, steady: SteadyState) -> Table:
    devices = report.devices
    whole = _Window(
        "whole",
        sum(device.window_ns for device in devices),
        sum(device.busy_ns for device in devices),
        sum(device.idle_ns for device in devices),
    )
    columns: list[Column[_Window]] = [
        Column("", lambda row: row.name, text=True),
        Column("window", lambda row: duration(row.window_ns)),
        Column("busy", lambda row: duration(row.busy_ns)),
        Column("idle", lambda row: duration(row.idle_ns)),
        Column("idle %", lambda row: percent(row.idle_share)),
    ]
    left = _Window("steady", steady.window_ns, steady.busy_ns, steady.idle_ns)
    return columns_table(columns, [whole, left])


def _median_steps(steady: SteadyState, width: int) -> Table:
    """The median step of each kind, without interruptions."""
    medium = width >= MEDIUM_WIDTH
    columns: list[Column[StepSummary]] = [
        Column(
            "median step",
            lambda one: cut_middle(one.kind, width - _FIGURES_CELLS),
            medium,
            text=True,
        ),
        Column("steps", lambda one: count(one.steps)),
        Column("interrupted", lambda one: count(one.interrupted_steps)),
        Column("time", lambda one: duration(one.time_ns)),
        Column("GPU span", lambda one: duration(one.gpu_span_ns)),
        Column("busy", lambda one: duration(one.busy_ns)),
        Column("idle", lambda one: duration(one.idle_ns)),
    ]
    return columns_table(columns, steady.steps, _KINDS, "kinds")
