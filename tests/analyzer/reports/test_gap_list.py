"""Chosen gaps add up to the figures of the report, and filters find exactly what they say."""

from collections import Counter, defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis
from decodescope.analyzer.answer.advice import gap_advice
from decodescope.analyzer.reports.analysis import analysis_of_step
from decodescope.analyzer.reports.device_report import gap_report, idle_totals
from decodescope.analyzer.reports.gap_list import (
    GapChoice,
    chosen_gaps,
    gap_classes,
    gaps_of_group,
    grouped_gaps,
    longest_first,
)
from decodescope.analyzer.schema.report import GAP_CLASSES
from tests.helpers.drawn_windows import Call, Op, analysed, windows
from tests.helpers.read_once import analysed_once


def times(analysis: Analysis, choice: GapChoice) -> dict[str, int]:
    chosen = chosen_gaps(analysis, analysis.ranges, choice)
    totals = idle_totals(analysis, chosen).gaps
    return {name: total.total_ns for name, total in totals.items() if total.total_ns}


def test_all_gaps_of_a_step_and_of_a_range_are_those_of_the_report(foreign_traces):
    analysis = analysed_once(str(foreign_traces / "h200_llama1b_hf_eager.json.gz"))
    report = analysis.report
    device = report.devices[0]
    every = idle_totals(analysis, chosen_gaps(analysis, analysis.ranges, GapChoice()))
    assert every.all_gaps == device.all_gaps
    assert every.gaps == device.gaps
    assert every.host_wait == device.host_wait
    for step in report.steps:
        main = analysis_of_step(analysis, step.index).report.main_steps
        of_step = {name: total.total_ns for name, total in main.gaps.items()}
        assert times(analysis, GapChoice(step=step.index)) == of_step
    for found in report.ranges:
        assert times(analysis, GapChoice(within=found.path)) == found.gaps
    assert len(report.steps) == 3
    assert any(found.gaps for found in report.ranges)


def test_nothing_is_in_a_step_or_range_that_is_not_there(foreign_traces):
    analysis = analysed_once(str(foreign_traces / "h200_llama1b_hf_eager.json.gz"))
    for choice in (GapChoice(within="decode_step/none"), GapChoice(step=3), GapChoice(step=-1)):
        assert not len(chosen_gaps(analysis, analysis.ranges, choice))


@given(windows())
@settings(max_examples=50, deadline=None)
def test_classes_and_order_are_those_of_the_largest_gaps(
    window: tuple[list[Op], list[Call]],
) -> None:
    analysis = analysed(*window)
    rows = longest_first(analysis, chosen_gaps(analysis, analysis.ranges, GapChoice()))
    classes = gap_classes(analysis, np.arange(len(analysis.gaps)))
    assert sorted(rows.tolist()) == list(range(len(analysis.gaps)))
    found = [gap_report(analysis, analysis.ranges, row) for row in rows.tolist()]
    assert tuple(found[:10]) == analysis.report.largest_gaps
    assert [GAP_CLASSES[classes[row]] for row in rows.tolist()] == [g.gap_class for g in found]


@given(windows(), st.sampled_from((None, *GAP_CLASSES)), st.integers(0, 20))
@settings(max_examples=75, deadline=None)
def test_a_class_and_a_bucket_find_what_the_histogram_counts(
    window: tuple[list[Op], list[Call]], gap_class: str | None, power: int
) -> None:
    analysis = analysed(*window)
    totals = idle_totals(analysis, np.arange(len(analysis.gaps)))
    of_class = totals.all_gaps if gap_class is None else totals.gaps[gap_class]
    bucket = (2**power // 2, 2**power)
    choice = GapChoice(gap_class=gap_class, bucket_ns=bucket)
    counted = dict(of_class.histogram).get(2**power, 0)
    assert len(chosen_gaps(analysis, analysis.ranges, choice)) == counted
    whole = chosen_gaps(analysis, analysis.ranges, GapChoice(gap_class=gap_class))
    assert len(whole) == of_class.count


@given(windows(), st.data())
@settings(max_examples=50, deadline=None)
def test_groups_are_those_of_a_plain_count(
    window: tuple[list[Op], list[Call]], data: st.DataObject
) -> None:
    analysis = analysed(*window)
    every = range(len(analysis.gaps))
    chosen = data.draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    expected = defaultdict(list)
    for row in sorted(chosen):
        gap = gap_report(analysis, analysis.ranges, row)
        expected[gap.gap_class, gap.prev, gap.next].append((row, gap))
    groups, rows = grouped_gaps(analysis, np.array(sorted(chosen), dtype=np.int64))
    assert {(group.gap_class, group.prev, group.next) for group in groups} == set(expected)
    totals = [group.total_ns for group in groups]
    assert totals == sorted(totals, reverse=True)
    first = 0
    for group in groups:
        key = (group.gap_class, group.prev, group.next)
        gaps = sorted(expected[key], key=lambda gap: (-gap[1].length_ns, gap[0]))
        assert rows[first : first + group.count].tolist() == [row for row, _ in gaps]
        first += group.count
        lengths = [gap.length_ns for _, gap in gaps]
        assert (group.total_ns, group.max_ns) == (sum(lengths), max(lengths))
        waits = Counter[str]()
        for _, gap in gaps:
            waits.update(gap.host_wait)
        assert (group.label is None) == (group.gap_class != "host_wait")
        assert group.label is None or waits[group.label] == max(waits.values())
        found = gaps_of_group(analysis, np.array(sorted(chosen)), *key)
        assert sorted(row for row, _ in gaps) == found.tolist()
    assert first == len(chosen)


def test_the_groups_of_the_report_add_up_to_the_idle_time(foreign_traces):
    report = analysed_once(str(foreign_traces / "h200_llama1b_hf_eager.json.gz")).report
    assert report.gap_group_count == len(report.gap_groups) == 72
    assert sum(group.total_ns for group in report.gap_groups) == report.devices[0].idle_ns
    largest = report.gap_groups[0]
    assert (largest.gap_class, largest.label, largest.count) == ("host_wait", "python", 48)
    assert largest.total_ns > 0.7 * report.devices[0].idle_ns


def test_every_class_of_gaps_has_advice() -> None:
    said = {name: gap_advice(name, None, "cudaLaunchKernel") for name in GAP_CLASSES}
    assert all(said.values())
    assert gap_advice("host_wait", "sync", None) != gap_advice("host_wait", "python", None)
    graph = gap_advice("launch_latency", None, "cudaGraphLaunch")
    assert "next replay" in graph
    assert graph != said["launch_latency"]
