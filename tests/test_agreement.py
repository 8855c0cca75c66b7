"""Every output says the same step time, parts that add up to it, and names that differ."""

import csv
import html
import io
import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.exporting import html_page
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.tables.gaps_table import gap_groups_table
from decodescope.analyzer.text.formatting import UNKNOWN, duration
from decodescope.analyzer.views.comparison_table import comparison_table
from decodescope.analyzer.views.csv_export import render_csv
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from tests.helpers.app.recorded import press
from tests.helpers.app.shown_figures import Row, tables
from tests.helpers.app.shown_figures import shown as read_figure
from tests.helpers.kineto_events import DATA, read
from tests.helpers.planted.situations import SITUATIONS, situation
from tests.helpers.read_once import analysed_once
from tests.helpers.rich_report import text_of
from tests.helpers.scripted import StillClock, settle
from tests.helpers.scripted import text_of as screen_of

RECORDED = tuple(
    f"h200_{name}"
    for name in ("compiled_replays", "compiled_ungraphed", "graph_capture", "graph_replays")
)
TRACES = ("cpu_two_blocks", *RECORDED, *SITUATIONS)
WIDTH = 100
pytestmark = pytest.mark.usefixtures("quick_pilot")
_TAG = re.compile(r"<[^>]*>")


@cache
def analysis_of(name: str) -> Analysis:
    if name in SITUATIONS:
        return analyze(read(situation(name, 0).traces[0]))
    return analysed_once(DATA / f"{name}.json.gz")


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
def test_a_kernel_has_one_short_name_in_all_tables(name: str) -> None:
    report = analysis_of(name).report
    rows = csv.DictReader(io.StringIO(render_csv(report, "kernel")))
    short = {row["name"]: row["short_name"] for row in rows}
    parts, groups = answer_table(report.answer, 3, report.kernels), gap_groups_table(report, 3)
    shown = [
        (name, column.cell(row, 1_000))
        for table, key in ((parts, "kernel"), (groups, "prev"), (groups, "next"))
        for column in table.columns
        for row in table.rows
        if column.key == key and (name := getattr(row, key)) in short
    ]
    assert all(short[name] == cell for name, cell in shown)
    assert shown or not report.kernels


@pytest.mark.parametrize("name", TRACES)
async def test_each_number_of_the_app_is_that_of_the_json(name: str, tmp_path: Path) -> None:
    """The tables of pages 1, 3, 4 and 5, the points of page 6, and the strip of each."""
    path = DATA / f"{name}.json.gz"
    if name in SITUATIONS:
        path = tmp_path / f"{name}.json"
        path.write_bytes(situation(name, 0).traces[0])
    report = json.loads(msgspec.json.encode(analysis_of(name).report))
    answer, step_ns = report["answer"], report["answer"]["step_ns"]
    app = DecodescopeApp(TraceSource((path,)), clock=StillClock(), folder=tmp_path)
    pages: dict[str, str] = {}
    async with app.run_test(size=(160, 50)) as pilot:
        await settle(pilot)
        # The timeline and the comparison have none of these figures but the strip's.
        for key in "13456" if name in SITUATIONS else "1234567":
            await press(pilot, key, *(["z"] if key == "5" else []))
            screen = screen_of(app)
            lines = iter(screen.splitlines())
            strip = next(next(lines) for line in lines if "8 Files" in line)
            pages[key] = app._painter.screen.as_text()
            assert_strip(strip, report, first=key == "1")
            if key == "4":
                await press(pilot, "z")
                pages["z"] = app._painter.screen.as_text()
            if key == "1":
                where = "in all" if step_ns is None else "a step"
                assert f"{duration(answer['whole_ns'])} {where}" in screen
    checked = [
        assert_rows(pages["1"], "time", [part_figures(part, answer) for part in answer["parts"]]),
        assert_rows(pages["3"], "calls", kernel_figures(report)),
        assert_rows(pages["4"], "of idle %", gap_group_figures(report)),
        assert_rows(pages["z"], "length", report["largest_gaps"], {"length": "length_ns"}),
        assert_rows(pages["5"], "launches", range_figures(report)),
    ]
    assert checked[0] > 0
    assert checked[1] or not report["kernels"]
    assert_points(pages["6"], report)
    assert_classes(pages["4"], report)


def assert_strip(strip: str, report: dict[str, Any], first: bool) -> None:
    """The step with its limit, launches, ops and idle time; on page 1 the answer has the step."""
    answer, main = report["answer"], report["main_steps"]
    step_ns, limit_ns = answer["step_ns"], answer["limit_ns"]
    assert (f"decode step {duration(step_ns or 0)} " in strip.replace("steps ", "step ")) == (
        step_ns is not None and answer["kind"] == "decode" and not first
    )
    if step_ns is not None:
        assert f"median of {answer['steps']} " in strip
        if not first:
            words = "limit not known" if limit_ns is None else f" {duration(limit_ns)} "
            assert f" {duration(step_ns)} " in strip
            assert words in strip
    for noun, total in (("launch", main["launch_calls"]), ("GPU ops", main["gpu_ops"])):
        if (found := re.search(rf" (\S+) {noun}", strip)) is not None:
            figure = read_figure(found[1])
            assert figure is not None
            assert figure.is_figure(total / main["steps"])
    if (found := re.search(r"idle (\S+) %", strip)) is not None:
        idle_ns = main["all_gaps"]["total_ns"]
        figure = read_figure(found[1])
        assert figure is not None
        assert figure.is_figure(100 * idle_ns / (idle_ns + main["busy_ns"]))


def assert_rows(
    page: str, heading: str, rows: list[dict[str, Any]], keys: dict[str, str] | None = None
) -> int:
    """The rows of the table of `page` with this heading are `rows`, whose figures are by heading;
    how many cells were compared. Rows below the last one of `rows` are not compared."""
    table: Sequence[Row] = next((one for one in tables(page) if heading in one[0]), ())
    # What a range launched outside of the ranges inside it is no range.
    table = [cells for cells in table if "(own ops)" not in cells.get("range", "")]
    assert len(table) >= len(rows)
    compared = 0
    for cells, row in zip(table, rows, strict=False):
        figures = row if keys is None else {head: row[key] for head, key in keys.items()}
        for head, exact in figures.items():
            if head not in cells:
                continue
            figure = read_figure(cells[head])
            assert (figure is None) == (exact is None), (head, cells, exact)
            assert figure is None or figure.is_figure(exact), (head, cells, exact)
            compared += 1
    return compared


def part_figures(part: dict[str, Any], answer: dict[str, Any]) -> dict[str, float | None]:
    ns, limit_ns, lost_ns = part["ns"], part["limit_ns"], part["over_ns"]
    lost_ns = ns if lost_ns is None else lost_ns
    return {
        "time": ns,
        "limit": limit_ns,
        "over": part["over_ns"],
        "of step %": 100 * lost_ns / answer["whole_ns"],
        "of limit %": None if limit_ns is None or not ns else 100 * limit_ns / ns,
        "GB/s": None if part["bytes"] is None or not ns else part["bytes"] / ns,
        "ops": part["ops"] or None,
    }


def gap_group_figures(report: dict[str, Any]) -> list[dict[str, float | None]]:
    idle_ns = sum(device["idle_ns"] for device in report["devices"])
    return [
        {
            "gaps": group["count"],
            "total": group["total_ns"],
            "mean": group["total_ns"] / group["count"],
            "longest": group["max_ns"],
            "of idle %": 100 * group["total_ns"] / idle_ns,
        }
        for group in report["gap_groups"]
    ]


def kernel_figures(report: dict[str, Any]) -> list[dict[str, float | None]]:
    per = report["main_steps"]["steps"]
    unit, scale = (" µs", 1e3) if per else ("", 1.0)
    share = "share" if report["kernels_ranked_by"] == "total_ns" else "attributed_share"
    return [
        {
            "calls": kernel["count"] / (per or 1),
            "short": kernel["short_calls"] / (per or 1),
            f"total{unit}": kernel["total_ns"] / (per or 1) / scale,
            f"attributed{unit}": kernel["attributed_ns"] / (per or 1) / scale,
            f"mean{unit}": kernel["mean_ns"] / scale,
            "share %": 100 * kernel[share],
            **roofline_figures(kernel["roofline"]),
        }
        for kernel in report["kernels"]
    ]


def roofline_figures(known: dict[str, Any] | None) -> dict[str, float | None]:
    if known is None:
        return {"GB/s": None, "FLOP/s": None, "of limit %": None}
    share = known["share_of_limit"]
    return {
        "GB/s": known["bytes_per_s"] / 1e9,
        "FLOP/s": known["flops_per_s"],
        "of limit %": None if share is None else 100 * share,
    }


def assert_classes(page: str, report: dict[str, Any]) -> None:
    """A row for all gaps, for each class and for what the host did meanwhile, of all devices."""
    devices = report["devices"]
    window_ns = sum(device["window_ns"] for device in devices)
    totals: dict[str, list[dict[str, Any]]] = {}
    for device in devices:
        for name, total in {"all idle": device["all_gaps"], **device["gaps"]}.items():
            totals.setdefault(name, []).append(total)
    named = {name: of_name for name, of_name in totals.items() if any(t["count"] for t in of_name)}
    table: Sequence[Row] = next((one for one in tables(page) if "of window %" in one[0]), ())
    rows = {cells["class"].strip(): cells for cells in table}
    assert named.keys() <= rows.keys()
    for name, of_name in named.items():
        count, ns = (sum(total[key] for total in of_name) for key in ("count", "total_ns"))
        exact = {
            "gaps": count,
            "total": ns,
            "mean": ns / count,
            "longest": max(total["max_ns"] for total in of_name),
            "of window %": 100 * ns / window_ns,
        }
        for head, figure in exact.items():
            cell = read_figure(rows[name][head])
            assert cell is not None, (name, head)
            assert cell.is_figure(figure), (name, head, figure)


def range_figures(report: dict[str, Any]) -> list[dict[str, float]]:
    main = report["main_steps"]
    per, ranked = main["steps"] or 1, "attributed_ns"
    if report["kernels_ranked_by"] == "total_ns":
        ranked = "gpu_ns"
    return [
        {
            "GPU time": found["gpu_ns"] / per,
            "time": found["gpu_ns"] / per,
            "attributed": found["attributed_ns"] / per,
            "idle": found["idle_ns"] / per,
            "launches": found["launch_calls"] / per,
            "GPU ops": found["gpu_ops"] / per,
            "share %": 100 * found[ranked] / main["busy_ns"],
        }
        for found in report["ranges"]
    ]


def assert_points(page: str, report: dict[str, Any]) -> None:
    """The points of the roofline are the kernels whose shapes say their bytes and FLOPs."""
    for kernel in report["kernels"]:
        known = kernel["roofline"]
        if known is None or not (known["flops"] and known["bytes"] and known["total_ns"]):
            continue
        (line,) = (line for line in page.splitlines() if line.startswith(f"{kernel['name']}: "))
        texts = line.removeprefix(f"{kernel['name']}: ").split(", ")
        figures = [read_figure(text.removesuffix(" FLOP/byte").split(" %")[0]) for text in texts]
        exact = [known["flops"] / known["bytes"], known["flops_per_s"]]
        exact += [] if known["share_of_limit"] is None else [100 * known["share_of_limit"]]
        assert len(figures) == len(exact)
        assert all(f is not None and f.is_figure(e) for f, e in zip(figures, exact, strict=True))


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
