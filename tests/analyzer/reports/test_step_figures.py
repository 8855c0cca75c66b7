"""Figures per step, against brute force."""

import msgspec
import pytest

from decodescope.analyzer.reports.step_figures import (
    communication_fraction,
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.tables.columns import Row, Table
from decodescope.analyzer.tables.kernels_table import kernels_table
from tests.helpers.kineto_events import call, op, span, trace_of
from tests.helpers.read_once import analysed_once
from tests.helpers.reports import analyzed


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


@pytest.mark.parametrize("apart", ["nothing", "a hold", "a prefill"])
def test_communication_is_of_the_main_steps(apart):
    """A fifth of each decode step communicates, whatever else the trace holds."""
    events, at_ns, number = [], 1_001, 0
    for step in range(10):
        if apart == "a hold" and step == 5:
            events.append(call(at_ns, at_ns + 400_000_000, name="cudaMalloc"))
            at_ns += 400_000_000
        name = "execute_context_0(0)_generation_4(4)"
        lengths_ns = [("nvjet_tst", 800_000), ("ncclDevKernel_AllReduce", 200_000)]
        if apart == "a prefill" and step == 3:
            name = "execute_context_4(9000)_generation_0(0)"
            lengths_ns = [("nvjet_tst", 90_000_000)]
        begin_ns = at_ns
        for kernel, length_ns in lengths_ns:
            number += 1
            events.append(call(begin_ns + number % 7, begin_ns + 900, number))
            events.append(op(at_ns + 1_000, at_ns + 1_000 + length_ns, number, name=kernel))
            at_ns += length_ns
        events.append(span(begin_ns, at_ns, name))
    report = analyzed(trace_of(*events)).report
    assert communication_fraction(report) == pytest.approx(0.2)


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
