"""Figures per step are of the steps of the main kind, and all else has a row."""

import random

import numpy as np
import pytest

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.attribution.range_tree import OWN_OPS
from decodescope.analyzer.reports.step_figures import (
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.tables.ranges_table import ranges_table
from decodescope.analyzer.tables.steps_table import step_kinds_table
from decodescope.analyzer.vocabulary.words import main_steps_words, steps_words
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.reports import check_report

PREFILL, DECODE = "step[EXTEND bs=2 toks=900]", "step[DECODE bs=4]"
Kernels = list[tuple[str, int]]


def steps_of(*steps: tuple[str, Kernels], gap_ns: int = 7, last: Kernels = ()) -> Analysis:  # type: ignore[assignment]
    """Steps of these names, one after another; each launches its kernels (name, length), with a gap
    of `gap_ns` before each. The kernels `last` run after all steps."""
    events: list[Event] = []
    at, correlation = 1_000, 0
    for index, (name, kernels) in enumerate([*steps, ("", last)]):
        host = 10_000_000 * index
        if name:
            events.append(span(host, host + 9_000_000, name))
        for number, (kernel, length_ns) in enumerate(kernels):
            correlation += 1
            called = host + 100 + 10 * number if name else host + 9_500_000
            events.append(call(called, called + 5, correlation))
            at = max(at + gap_ns, called + 5)
            events.append(op(at, at + length_ns, correlation, name=kernel))
            at += length_ns
    return analyze(trace_of(*events))


def kernels(report: Report) -> dict[str, tuple[int, int, int]]:
    return {k.name: (k.count, k.total_ns, k.attributed_ns) for k in report.kernels}


def test_a_prefill_among_decodes_is_in_no_figure_per_step() -> None:
    decode: Kernels = [("gemv", 3_000), ("norm", 1_000), ("gemv", 3_000)]
    prefill: Kernels = [("gemm", 50_000_000), ("gemv", 9_000), ("norm", 2_000)]
    analysis = steps_of(
        (DECODE, decode), (PREFILL, prefill), (DECODE, decode), (DECODE, decode), last=[("tail", 5)]
    )
    report = analysis.report
    check_report(report)
    assert kernels(report) == {"gemv": (6, 18_000, 18_000), "norm": (3, 3_000, 3_000)}
    main = report.main_steps
    assert (main.steps, main.gpu_ops, main.launch_calls) == (3, 9, 9)
    assert main.attributed_ns == 21_000
    assert (main.outside_ops, main.outside_attributed_ns) == (4, 50_011_005)
    assert launch_calls_per_step(report) == gpu_ops_per_step(report) == 3
    table = kernels_table(report.kernels, attributed=False, steps=main.steps)
    count = next(column for column in table.columns if column.key == "count")
    assert [count.figure(row) for row in table.rows] == [2, 1]
    assert steps_words(report) == "mean of 3 of 4 steps"
    assert "outside of these steps: 4 GPU ops, 50.0 ms" in main_steps_words(report)
    kinds = step_kinds_table(report, 10)
    rows = [(kinds.columns[0].cell(row), row.gpu_ops, row.attributed_ns) for row in kinds.rows]
    assert rows == [("decode", 9, 21_000), ("prefill", 3, 50_011_000), ("no step", 1, 5)]


def test_busy_and_idle_time_of_the_main_steps_are_their_time() -> None:
    decode: Kernels = [("gemv", 3_000), ("norm", 1_000)]
    analysis = steps_of(
        (DECODE, decode), (DECODE, decode), (PREFILL, [("gemm", 8_000)]), (DECODE, decode)
    )
    report = analysis.report
    main, times_ns = report.main_steps, [report.steps[index].time_ns or 0 for index in (0, 1, 3)]
    assert main.busy_ns == 3 * 4_000
    assert main.busy_ns + main.all_gaps.total_ns == sum(times_ns)
    assert sum(total.total_ns for total in main.gaps.values()) == main.all_gaps.total_ns
    assert idle_fraction(report) == pytest.approx(main.all_gaps.total_ns / sum(times_ns))


def test_steps_of_each_kind_have_a_row_with_their_extremes() -> None:
    lengths = [4_000, 2_000, 9_000, 3_000]
    decode = [(DECODE, [("gemv", length)]) for length in lengths]
    report = steps_of((PREFILL, [("gemm", 50_000)]), *decode, gap_ns=0).report
    rows = {row.kind: row for row in report.step_kinds}
    times_ns = sorted(step.time_ns or 0 for step in report.steps if step.timed)
    row = rows["decode"]
    assert (row.min_ns, row.median_ns, row.p99_ns) == (times_ns[0], times_ns[1], times_ns[-1])
    assert row.median_ns == report.answer.step_ns
    assert (row.steps, row.gpu_ops, row.attributed_ns) == (4, 4, sum(lengths))
    assert (rows["prefill"].steps, rows["prefill"].attributed_ns) == (1, 50_000)


def test_an_interrupted_step_is_in_no_figure_per_step() -> None:
    decode: Kernels = [("gemv", 300_000), ("norm", 100_000)] * 3
    events: list[Event] = []
    at, correlation = 1_000, 0
    for index in range(8):
        begin = at
        for number, (kernel, length_ns) in enumerate(decode):
            correlation += 1
            at += 50_000_000 if index == 4 and number == 3 else 1_000
            events += [call(at - 900, at - 800, correlation)]
            events.append(op(at, at + length_ns, correlation, name=kernel))
            at += length_ns
        events.append(span(begin, at - 500, DECODE))
    report = analyze(trace_of(*events)).report
    assert [interruption.step for interruption in report.interruptions] == [4]
    main = report.main_steps
    assert (main.steps, report.answer.steps) == (7, 8)
    assert kernels(report)["gemv"] == (21, 21 * 300_000, 21 * 300_000)
    assert main.all_gaps.max_ns < 1_000_000
    assert main.outside_ops == len(decode)
    check_report(report)


def test_a_single_step_is_without_its_interruption() -> None:
    """The wait inside the only step is set apart from its idle time."""
    events = [span(0, 900_000_000, DECODE)]
    at = 1_000
    for number in range(400):
        at += 400_000_000 if number == 200 else 1_000
        events += [call(at - 900, at - 800, number + 1), op(at, at + 20_000, number + 1)]
        at += 20_000
    events.append(call(at - 300_000_000, at - 200_000, 9_999, name="cudaStreamSynchronize"))
    report = analyze(trace_of(*events)).report
    main = report.main_steps
    assert main.steps == 1
    assert report.steps[0].time_ns == main.busy_ns + main.all_gaps.total_ns
    assert report.answer.step_ns == report.steps[0].time_ns


def test_without_steps_the_whole_trace_counts_and_nothing_is_per_step() -> None:
    events = [call(0, 5, 1), op(10, 30, 1), call(31, 36, 2), op(40, 90, 2, name="b")]
    for marks in ([], [span(500, 600, DECODE)]):
        report = analyze(trace_of(*events, *marks)).report
        check_report(report)
        assert report.main_steps.steps == report.main_steps.outside_ops == 0
        assert report.main_steps.gpu_ops == 2
        assert launch_calls_per_step(report) is None
        assert gpu_ops_per_step(report) is None
        assert steps_words(report) == "whole trace"
        assert main_steps_words(report) == ""


@pytest.mark.parametrize("seed", range(20))
def test_rows_and_what_is_outside_add_up_to_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    names = [DECODE, "step[DECODE bs=3]", PREFILL, "step[MIXED bs=2]"]
    steps = [
        (
            chance.choice(names),
            [(chance.choice("abc"), chance.randrange(1, 90)) for _ in range(chance.randrange(6))],
        )
        for _ in range(chance.randrange(1, 12))
    ]
    analysis = steps_of(*steps, gap_ns=chance.randrange(40), last=[("a", chance.randrange(1, 9))])
    report = analysis.report
    check_report(report)
    launched = [index for index, (_, ops) in enumerate(steps) if ops]
    decodes = [index for index in launched if "DECODE" in steps[index][0]]
    if decodes:
        counts = [steps[index][0] for index in decodes]
        batch = max(dict.fromkeys(counts), key=counts.count)
        wanted = [index for index in decodes if steps[index][0] == batch]
    else:
        kinds = [steps[index][0] for index in launched]
        kind = max(dict.fromkeys(kinds), key=kinds.count, default="")
        wanted = [index for index in launched if steps[index][0] == kind]
    if not report.interruptions and wanted:
        of_kernel: dict[str, list[int]] = {}
        for index in wanted:
            for name, length_ns in steps[index][1]:
                of_kernel.setdefault(name, []).append(length_ns)
        assert kernels(report) == {
            name: (len(lengths), sum(lengths), sum(lengths)) for name, lengths in of_kernel.items()
        }
        assert report.main_steps.busy_ns + report.main_steps.all_gaps.total_ns == sum(
            report.steps[index].time_ns or 0 for index in wanted
        )
    assert np.count_nonzero(analysis.main_ops) == report.main_steps.gpu_ops
    rows = ranges_table(report).rows
    assert sum(row.label != OWN_OPS for row in rows) == len(report.ranges)
