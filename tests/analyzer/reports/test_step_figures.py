"""Figures per step, against brute force."""

import msgspec
import pytest

from decodescope.analyzer.reports.step_figures import (
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.tables.columns import Row, Table
from decodescope.analyzer.tables.kernels_table import kernels_table
from tests.helpers.read_once import analysed_once


def figures(table: Table[Row], key: str) -> list[float]:
    """The figures of one column of a table."""
    column = next(column for column in table.columns if column.key == key)
    return [column.figure(row) for row in table.rows]


def test_rows_of_a_real_trace_add_up(foreign_traces):
    report = analysed_once(str(foreign_traces / "h200_llama1b_hf_eager.json.gz")).report
    steps = len(report.steps)
    device = report.devices[0]
    idle_ns = sum(total.total_ns for total in report.main_steps.gaps.values())
    assert steps == 3
    assert idle_ns == device.idle_ns
    assert idle_ns / device.window_ns == pytest.approx(idle_fraction(report))
    kernels = kernels_table(report.kernels, attributed=False, steps=steps)
    assert sum(figures(kernels, "count")) * steps == pytest.approx(device.kernels)
    assert gpu_ops_per_step(report) == pytest.approx(679, abs=2)
    assert launch_calls_per_step(report) == pytest.approx(679, abs=2)


def test_a_trace_without_steps_has_no_figures_per_step(foreign_traces):
    report = analysed_once(str(foreign_traces / "h200_llama1b_hf_eager.json.gz")).report
    whole = msgspec.structs.replace(report.main_steps, steps=0)
    bare = msgspec.structs.replace(report, steps=(), main_steps=whole)
    assert launch_calls_per_step(bare) is None
    assert gpu_ops_per_step(bare) is None
    assert (
        figures(kernels_table(bare.kernels, attributed=False, steps=0), "count")[0]
        == report.kernels[0].count
    )
