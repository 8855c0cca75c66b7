"""Every output says the same step time, parts that add up to it, and names that differ."""

import csv
import html
import io
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.exporting import html_page
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.text.formatting import UNKNOWN, duration
from decodescope.analyzer.views.comparison_table import comparison_table
from decodescope.analyzer.views.csv_export import render_csv
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.vocabulary.answer_words import answer_lines, limit_words
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from tests.helpers.app.recorded import press
from tests.helpers.kineto_events import DATA, read
from tests.helpers.planted.situations import SITUATIONS, situation
from tests.helpers.rich_report import text_of
from tests.helpers.scripted import StillClock, settle
from tests.helpers.scripted import text_of as screen_of

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
    kinds = [(row.kind, row.median_ns) for row in report.step_kinds]
    assert (answer.kind, answer.step_ns) in kinds
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
def test_a_page_begins_with_the_same_line(name: str) -> None:
    analysis = analysis_of(name)
    page = joined(html.unescape(_TAG.sub(" ", html_page(name, {name: analysis}))))
    assert joined(answer_lines(analysis.report).headline) in page
    assert f"{name}: {duration(analysis.report.answer.whole_ns)}" in page


@pytest.mark.parametrize("name", TRACES)
def test_rows_of_a_csv_are_of_the_main_steps(name: str) -> None:
    report = analysis_of(name).report
    main = report.main_steps
    kernels, gaps = (
        list(csv.DictReader(io.StringIO(render_csv(report, by)))) for by in ("kernel", "gap")
    )
    assert {int(row["steps"]) for row in kernels} <= {main.steps}
    assert sum(int(row["attributed_ns"]) for row in kernels) == main.kernels_attributed_ns
    idle_ns = sum(device.idle_ns for device in report.devices)
    assert sum(int(row["total_ns"]) for row in gaps) == idle_ns
    if 0 < main.steps == len(report.steps) and not report.on_cpu:
        times_ns = sum(step.time_ns or 0 for step in report.steps)
        assert main.busy_ns + main.all_gaps.total_ns == times_ns


@pytest.mark.parametrize("name", TRACES)
async def test_the_app_shows_that_step_time_on_its_pages(name: str, tmp_path: Path) -> None:
    """In the headline of page 1, and in the strip of the others."""
    path = DATA / f"{name}.json.gz"
    if name in SITUATIONS:
        path = tmp_path / f"{name}.json"
        path.write_bytes(situation(name, 0).traces[0])
    answer = analysis_of(name).report.answer
    step_ns = answer.step_ns
    app = DecodescopeApp(TraceSource((path,)), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        for key in "12567":
            await press(pilot, key)
            shown = screen_of(app)
            lines = iter(shown.splitlines())
            strip = next(next(lines) for line in lines if "8 Files" in line)
            assert (f" step {duration(step_ns or 0)} " in f"{strip} ") == (
                step_ns is not None and key != "1"
            )
            if key == "1":
                where = "in all" if step_ns is None else "a step"
                assert f"{duration(answer.whole_ns)} {where}" in shown
            elif step_ns is not None:
                assert limit_words(answer) in strip


@pytest.mark.parametrize(("base", "other"), [*zip(RECORDED[::2], RECORDED[1::2], strict=True)])
async def test_the_app_shows_both_step_times_of_a_comparison(
    base: str, other: str, tmp_path: Path
) -> None:
    paths = tuple(DATA / f"{name}.json.gz" for name in (base, other))
    app = DecodescopeApp(TraceSource(paths), clock=StillClock(), folder=tmp_path)
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        await press(pilot, "7", "c")
        shown = screen_of(app)
    answers = [analysis_of(name).report.answer for name in (base, other)]
    times = [UNKNOWN if one.step_ns is None else duration(one.step_ns) for one in answers]
    assert f"step from A to B: {times[0]} → {times[1]}, " in shown


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_differs_from_itself_in_nothing(name: str) -> None:
    report = analysis_of(name).report
    compared = diff_reports(report, report)
    answer, step_ns = compared.answer, report.answer.step_ns
    assert (answer.base_step_ns, answer.other_step_ns) == (step_ns, step_ns)
    assert answer.ratio == (None if step_ns is None else 1)
    assert not any(part.change_ns for part in answer.parts)
    if step_ns is not None:
        shown = duration(step_ns)
        first = text_of(comparison_table(compared), WIDTH).splitlines()[0]
        assert f": {shown} → {shown}, x1.000" in first


@pytest.mark.parametrize(("base", "other"), pairwise(TRACES))
def test_a_ratio_is_the_quotient_of_the_step_times(base: str, other: str) -> None:
    base_answer, other_answer = (analysis_of(name).report.answer for name in (base, other))
    answer = diff_reports(analysis_of(base).report, analysis_of(other).report).answer
    assert answer.base_step_ns == base_answer.step_ns
    assert answer.other_step_ns == other_answer.step_ns
    if base_answer.step_ns is None or other_answer.step_ns is None:
        assert answer.ratio is None
        return
    assert answer.ratio == other_answer.step_ns / base_answer.step_ns
    assert sum(part.base_ns or 0 for part in answer.parts) == base_answer.step_ns
    assert sum(part.other_ns or 0 for part in answer.parts) == other_answer.step_ns
    changes_ns = sum(part.change_ns for part in answer.parts)
    assert changes_ns == other_answer.step_ns - base_answer.step_ns


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["alike_names", "host_bound", "two_engines", *RECORDED])
def test_no_two_rows_of_kernels_look_the_same(name: str, width: int) -> None:
    lines = text_of(report_table(analysis_of(name).report, ("kernels",)), width).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("kernel "))
    rows = lines[begin + 1 : begin + 1 + len(analysis_of(name).report.kernels)]
    names = [re.split(r" {2,}", row)[0] for row in rows]
    assert len({*names}) == len(names)
