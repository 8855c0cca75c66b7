"""The tables of a report by name, whole, for CSV, records and frames."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.communication_table import communication_table
from decodescope.analyzer.tables.devices_table import devices_table, streams_table
from decodescope.analyzer.tables.gaps_table import (
    gap_classes_table,
    gap_groups_table,
    interruptions_table,
    stream_gaps_table,
)
from decodescope.analyzer.tables.kernels_table import kernels_table, launch_apis_table
from decodescope.analyzer.tables.ranges_table import ranges_table
from decodescope.analyzer.tables.steps_table import step_kinds_table, steps_table

REPORT_TABLES: Mapping[str, Callable[[Report], Table[Any]]] = MappingProxyType(
    {
        "parts": lambda report: answer_table(report.answer, kernels=report.kernels),
        "kinds": step_kinds_table,
        "steps": steps_table,
        "kernels": lambda report: kernels_table(
            report.kernels, attributed=report.overlapping, on_cpu=report.on_cpu
        ),
        "ranges": ranges_table,
        "gaps": gap_groups_table,
        "gap_classes": gap_classes_table,
        "stream_gaps": stream_gaps_table,
        "launches": lambda report: launch_apis_table(report.launches),
        "devices": devices_table,
        "streams": streams_table,
        "communication": communication_table,
        "interruptions": interruptions_table,
    }
)
