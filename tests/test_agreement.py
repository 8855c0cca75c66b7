"""Every output says the same step time, parts that add up to it, and names that differ."""

import html
import re
from functools import cache

import msgspec
import pytest

from decodescope.analyzer.exporting import html_page
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from tests.helpers.kineto_events import DATA, read
from tests.helpers.planted.situations import SITUATIONS, situation
from tests.helpers.rich_report import text_of

RECORDED = tuple(
    f"h200_{name}"
    for name in ("compiled_replays", "compiled_ungraphed", "graph_capture", "graph_replays")
)
TRACES = ("cpu_two_blocks", *RECORDED, *SITUATIONS)
WIDTH = 100
_TAG = re.compile(r"<[^>]*>")


@cache
def analysis_of(name: str) -> Analysis:
    if name in SITUATIONS:
        return analyze(read(situation(name, 0).traces[0]))
    return analyze(load(DATA / f"{name}.json.gz"))


@cache
def table_of(name: str, width: int = WIDTH) -> str:
    return text_of(report_table(analysis_of(name).report), width)


def joined(lines: str) -> str:
    return " ".join(lines.split())


@pytest.mark.parametrize("name", TRACES)
def test_figures_of_the_step_are_of_one_step_time(name: str) -> None:
    report = msgspec.json.decode(msgspec.json.encode(analysis_of(name).report), type=Report)
    answer = report.answer
    assert answer == analysis_of(name).report.answer
    assert sum(part.ns for part in answer.parts) == answer.whole_ns
    if answer.step_ns is None or answer.step is None:
        return
    assert answer.whole_ns == answer.step_ns == report.steps[answer.step].time_ns
    assert report.observer is not None
    assert report.observer.profiled_step_ns == answer.step_ns
    times_ns = sorted(step.time_ns or 0 for step in report.steps if step.timed)
    assert answer.step_ns == times_ns[(len(times_ns) - 1) // 2]
    busy_ns = sum(part.ns for part in answer.parts if part.kernel is not None)
    assert sum(layer.ns_per_step for layer in report.layers) in (busy_ns, 0)


@pytest.mark.parametrize("name", TRACES)
def test_the_first_lines_of_a_table_say_that_step_time(name: str) -> None:
    report = analysis_of(name).report
    first = joined(table_of(name).split("\n\n")[1])
    assert joined(answer_lines(report).headline) in first
    if report.answer.step_ns is not None:
        assert f"{duration(report.answer.step_ns)} a step" in first
    if not report.on_cpu:
        assert "unknown" not in first


@pytest.mark.parametrize("name", TRACES)
def test_a_page_says_that_step_time(name: str) -> None:
    analysis = analysis_of(name)
    answer = analysis.report.answer
    page = html.unescape(_TAG.sub(" ", html_page(name, {name: analysis})))
    assert f"{name}: {duration(answer.whole_ns)}" in joined(page)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["alike_names", "host_bound", "two_engines", *RECORDED])
def test_no_two_rows_of_kernels_look_the_same(name: str, width: int) -> None:
    lines = text_of(report_table(analysis_of(name).report, ("kernels",)), width).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("kernel "))
    rows = lines[begin + 1 : begin + 1 + len(analysis_of(name).report.kernels)]
    names = [re.split(r" {2,}", row)[0] for row in rows]
    assert len({*names}) == len(names)
