"""Figures per step, against brute force."""

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.reports.step_figures import (
    gap_rows,
    gpu_ops_per_step,
    idle_fraction,
    kernel_rows,
    launch_calls_per_step,
)


def test_rows_of_a_real_trace_add_up(foreign_traces):
    report = analyze(load(str(foreign_traces / "h200_llama1b_hf_eager.json.gz"))).report
    steps = len(report.steps)
    device = report.devices[0]
    gaps, kernels = gap_rows(report), kernel_rows(report)
    assert steps == 3
    assert sum(row.ns for row in gaps) * steps == pytest.approx(device.idle_ns)
    assert sum(row.share for row in gaps) == pytest.approx(idle_fraction(report))
    assert [row.ns for row in gaps] == sorted((row.ns for row in gaps), reverse=True)
    assert sum(row.count for row in kernels) * steps == pytest.approx(device.kernels)
    assert gpu_ops_per_step(report) == pytest.approx(679, abs=2)
    assert launch_calls_per_step(report) == pytest.approx(679, abs=2)


def test_a_trace_without_steps_has_no_figures_per_step(foreign_traces):
    report = analyze(load(str(foreign_traces / "h200_llama1b_hf_eager.json.gz"))).report
    bare = msgspec.structs.replace(report, steps=())
    assert launch_calls_per_step(bare) is None
    assert gpu_ops_per_step(bare) is None
    assert kernel_rows(bare)[0].count == report.kernels[0].count
    assert idle_fraction(msgspec.structs.replace(report, devices=())) is None
