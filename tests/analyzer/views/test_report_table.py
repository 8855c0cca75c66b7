"""A report as tables of any width: nothing is cut that is a figure."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.kernel_report import QueueDepth
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.analyzer.schema.report import Attribution, Report
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.views.ranks_table import ranks_report_table, ranks_sections
from decodescope.analyzer.views.report_table import (
    OVERVIEW_LINES,
    SECTIONS,
    chosen_sections,
    report_table,
)
from tests.helpers.kineto_events import DATA, call, op, span, trace_of
from tests.helpers.read_once import analysed_once
from tests.helpers.rich_report import rich_report, text_of

ALL = tuple(section.name for section in SECTIONS)
TITLES = {
    *("Kinds of steps", "Steps", "Parts of a step", "Kernels", "Leaf operators", "Ranges"),
    *("Idle gaps", "Gaps", "Launch calls", "Devices", "Streams"),
    *("Threads", "Communication", "Interruptions"),
}
OURS = ("cpu_two_blocks", "h200_compiled_ungraphed", "h200_graph_replays")
OTHERS = ("a100_eager", "v100_cuda_graph", "cpu_only", "mi300x_vllm_decode_graph")
GAPS = ("Idle gaps", "Gaps")
CUT_CELL = re.compile(r"…(  |$)", re.MULTILINE)


def table_text(report: Report, width: int = 100, show: Sequence[str] = ALL) -> str:
    return text_of(report_table(report, show), width)


@pytest.fixture(scope="module")
def reports(foreign_traces: Path) -> list[Report]:
    """Reports of traces that others recorded, and of our own."""
    ours = [path for name in OURS for path in DATA.glob(f"{name}.json.gz")]
    others = [foreign_traces / f"{name}.json.gz" for name in OTHERS]
    return [rich_report(), *(analysed_once(path).report for path in (*ours, *others))]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_overview_has_at_most_60_lines(reports: list[Report], width: int) -> None:
    assert len(reports) == 8
    for report in reports:
        name = report.source.path
        lines = table_text(report, width, ()).splitlines()
        assert len(lines) <= OVERVIEW_LINES, name
        more = " ".join(lines[lines.index("", len(lines) - 5) + 1 :])
        assert more.startswith("more, with --show: "), name
        assert more.endswith("all"), name
        if len(report.kernels) > 12:
            rows = len(lines) - lines.index("Leaf operators" if report.on_cpu else "Kernels")
            assert rows >= 10, name
            assert len(lines) > OVERVIEW_LINES - 8, name


@pytest.mark.parametrize("width", [60, 100])
def test_no_two_rows_of_a_real_trace_look_alike(reports: list[Report], width: int) -> None:
    """Kernels and steps have names of their own, and so has each range beside others."""
    for report in reports:
        for section, title in (("kernels", "kernel"), ("steps", "step"), ("ranges", "range")):
            lines = table_text(report, width, (section,)).splitlines()
            heads = [line.startswith((f"{title} ", "operator ")) for line in lines]
            if any(heads):
                end = lines[heads.index(True)].index("  ")
                rows = lines[heads.index(True) + 1 :]
                names = [re.match(r" *\S+(?: \S+)*", row.rstrip()) for row in rows]
                _distinct_in_tree([name[0] for name in names if name is not None], section)
                assert end > 0


def _distinct_in_tree(names: list[str], section: str) -> None:
    above: list[str] = []
    seen = set()
    for name in names:
        depth = (len(name) - len(name.lstrip())) // 2
        above = [*above[:depth], name]
        assert tuple(above) not in seen, section
        seen.add(tuple(above))


def test_what_the_overview_leaves_out_is_named_and_shown_by_that_name(
    reports: list[Report],
) -> None:
    for report in reports:
        whole = table_text(report, 100)
        overview = table_text(report, 100, ())
        more = " ".join(overview[overview.rindex("more, with --show:") :].split())
        left_out = [name.strip() for name in more.partition(": ")[2].split(",")]
        for section in SECTIONS:
            alone = table_text(report, 100, (section.name,)).splitlines()
            (title,) = [line for line in alone[1:] if line in TITLES][:1] or [""]
            if "none in this trace" in alone:
                assert section.name not in left_out
            elif title:
                assert title in whole.splitlines()
                shown = title in overview.splitlines()
                assert shown or section.name in left_out
                if section.name not in left_out:
                    assert all(line in overview.splitlines() for line in alone[3:])


def test_sections_are_chosen_by_name() -> None:
    assert chosen_sections("gaps, kernels", SECTIONS) == ("gaps", "kernels")
    assert chosen_sections("gaps,all", SECTIONS) == ALL
    assert chosen_sections(None, SECTIONS) == ()
    for wrong in ("gap", "", "kernels,", "ALL"):
        with pytest.raises(InputError, match="give all, or some of answer, health, "):
            chosen_sections(wrong, SECTIONS)
    with pytest.raises(InputError):
        chosen_sections("ranks", SECTIONS)
    assert chosen_sections("ranks", ranks_sections()) == ("ranks",)


def test_only_the_named_sections_are_printed() -> None:
    text = table_text(rich_report(), 100, ("gaps", "kernels"))
    titles = [line for line in text.splitlines() if line in TITLES]
    assert titles == ["Kernels", *GAPS]
    assert "none in this trace" in table_text(analyze(trace_of()).report, 100, ("gaps",))


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_table_fits_its_width_and_names_what_matters(width: int) -> None:
    text = table_text(rich_report(), width)
    assert max(map(len, text.splitlines())) <= width
    assert "NVIDIA H200 (GPU 0, GPU 1)" in text
    assert "(random weights)" in text
    assert "\x1b" not in text
    assert "Trace health: degraded" in text
    assert "decode_step" in text
    for title in ("Streams", "Launch calls", "Ranges", *GAPS):
        assert title in text.splitlines()


@pytest.mark.parametrize("show", [(), ALL])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_cell_is_cut_short_by_its_table(show: tuple[str, ...], width: int) -> None:
    """Names are cut in their middle on purpose; a cell cut by its table ends with the ellipsis."""
    assert not CUT_CELL.search(table_text(rich_report(), width, show))


@pytest.mark.parametrize("width", [60, 100])
def test_no_cell_of_a_real_trace_is_cut_short(foreign_traces: Path, width: int) -> None:
    for name in ("v100_cuda_graph", "h200_llama1b_hf_eager", "a100_eager"):
        report = analysed_once(foreign_traces / f"{name}.json.gz").report
        for show in ((), ALL):
            assert not CUT_CELL.search(table_text(report, width, show))


def test_the_table_shows_every_kernel_figure_it_has_room_for() -> None:
    lines = [f"{k.name}" for k in rich_report().kernels]
    text = table_text(rich_report(), 120)
    # The fourth kernel has no launch call, so that no step launched it.
    assert len(lines) == 3
    assert "outside of these steps: 1 GPU ops, 10 ns" in " ".join(text.split())
    assert "elementwise mul f32" in text
    assert "201 ns" in text
    assert "1 graph launch of 2 GPU ops" in text


def line_with(text: str, start: str) -> str:
    """The first line that begins so, below the answer."""
    lines = text.partition("\n\n")[2].partition("\n\n")[2].splitlines()
    return next(line for line in lines if line.startswith(start))


def test_rooflines_are_shown_beside_their_kernels() -> None:
    text = table_text(rich_report(), 100)
    assert line_with(text, "elementwise mul").split()[-3:] == ["2,400", "50.0", "memory"]
    assert "of limit" in line_with(table_text(rich_report(), 60), "kernel  ")
    bare = [msgspec.structs.replace(k, roofline=None) for k in rich_report().kernels]
    assert "of limit" not in table_text(msgspec.structs.replace(rich_report(), kernels=bare))


def test_each_stream_has_a_row() -> None:
    report = rich_report()
    first = report.devices[0]
    lines = table_text(report).splitlines()
    rows = lines[lines.index("Streams") + 2 :][: len(first.streams)]
    assert [row.split()[:3] for row in rows] == [["0", "7", "5"], ["0", "9", "1"]]


def test_launches_show_queue_depth_and_short_kernels() -> None:
    text = table_text(rich_report(), width=120)
    launches = rich_report().launches
    assert launches.queue_depth is not None
    assert launches.short_kernels is not None
    depths = line_with(text, "queue depth:")
    assert f"at most {launches.queue_depth.max}, empty" in depths
    assert line_with(text, "1 kernels").split()[2:4] == ["(33.3", "%"]
    assert line_with(text, "all").split() == ["all", f"{launches.calls}"]
    assert duration(launches.api_ns.p90) in line_with(text, "call time")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_queue_over_time_is_a_line_of_marks(width: int) -> None:
    report = rich_report()
    depths = (0, 1, 0, *range(101), *[800] * 15, 0)
    launches = msgspec.structs.replace(report.launches, queue_depth=queue_of(depths))
    text = table_text(msgspec.structs.replace(report, launches=launches), width=width)
    marks = line_with(text, "queue depth  ")[13:].rstrip()
    each = math.ceil(120 / (width - 13))
    expected = [max(depths[at : at + each]) for at in range(0, 120, each)]
    assert [" ▁▂▃▄▅▆▇█".index(mark) for mark in marks.ljust(len(expected))] == [
        math.ceil(depth / 100) for depth in expected
    ]


@pytest.mark.parametrize("depths", [(), (0, 0)])
def test_a_queue_that_was_always_empty_has_no_marks(depths: tuple[int, ...]) -> None:
    report = rich_report()
    launches = msgspec.structs.replace(report.launches, queue_depth=queue_of(depths))
    assert "\nqueue depth  " not in table_text(msgspec.structs.replace(report, launches=launches))


def queue_of(depths: tuple[int, ...]) -> QueueDepth:
    return QueueDepth(0.5, max(depths, default=3), 0.5, depths, 1000)


def test_gaps_are_in_groups() -> None:
    report = rich_report()
    lines = table_text(report, 120, ("gaps",)).splitlines()
    first = lines.index("Gaps") + 1
    assert lines[first].split()[:4] == ["class", "gaps", "total", "mean"]
    assert [line.split()[0].strip(":") for line in lines[first + 1 :]] == [
        group.gap_class for group in report.gap_groups
    ]


def attributed(report: Report, exact: int, partial: int, none: int) -> str:
    return table_text(
        msgspec.structs.replace(report, attribution=Attribution(exact, partial, none))
    )


def test_the_ranges_show_the_confidence_of_the_attribution() -> None:
    said = attributed(rich_report(), 6, 3, 1)
    assert "of 10 GPU ops: 60.0 % exactly, 30.0 % partially, 10.0 % not attributed" in said
    assert "100.0 % exactly attributed" in attributed(rich_report(), 10, 0, 0)


def test_a_partial_range_shows_the_matched_share() -> None:
    report = rich_report()
    first = msgspec.structs.replace(report.ranges[0], confidence="partial", matched=0.87)
    changed = msgspec.structs.replace(report, ranges=(first, *report.ranges[1:]))
    assert "partial 87%" in table_text(changed)


def test_a_cpu_report_says_so() -> None:
    text = table_text(analysed_once(DATA / "cpu_two_blocks.json.gz").report)
    assert "device: cpu · test CPU" in text
    assert "Leaf operators" in text
    assert "GPU 0" not in text


def test_an_empty_trace_has_a_table() -> None:
    text = table_text(analyze(trace_of()).report)
    assert "it is empty" in text
    assert "Devices" not in text


def test_ranks_show_the_share_of_communication_where_there_is_any() -> None:
    work, shared = [op(0, 100)], op(100, 400, name="ncclDevKernel_AllReduce", stream=8)
    reports = [analyze(trace_of(*events)).report for events in (work, [*work, shared])]
    for chosen, head in ((reports, True), (reports[:1], False)):
        ranks = tuple(RankReport(rank, report=report) for rank, report in enumerate(chosen))
        text = text_of(ranks_report_table(RanksReport(1, ranks, None, ())))
        assert ("comm %" in text) == head
        assert ("75.0" in text) == head


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_cell_of_the_ranks_is_cut_short(width: int) -> None:
    shared = op(0, 10**9, name="ncclDevKernel_AllReduce", stream=8)
    one = analyze(trace_of(op(0, 10**8), shared, op(10**10, 10**10 + 10**9))).report
    longest = msgspec.structs.replace(
        one,
        source=msgspec.structs.replace(one.source, path="/runs/trace_of_a_rank_with_a_name.json"),
        answer=msgspec.structs.replace(one.answer, bound="communication"),
    )
    ranks = RanksReport(1, (RankReport(0, report=longest), RankReport(1, report=longest)), None, ())
    text = text_of(ranks_report_table(ranks), width)
    assert not CUT_CELL.search(text)
    assert text.count("communication-bound") == 2


@pytest.mark.parametrize(("number", "width"), [(2, 60), (2, 100), (64, 60), (64, 100)])
def test_the_overview_of_ranks_has_at_most_60_lines(number: int, width: int) -> None:
    events = [
        event
        for rank in range(number)
        for at in range(0, 60_000, 1000)
        for event in (
            op(at, at + 800, name=f"kernel_{at}", device=rank),
            op(at + 100 + rank, at + 900, name="ncclDevKernel_AllReduce", stream=8, device=rank),
        )
    ]
    merged = analyze(trace_of(*events)).report
    assert merged.communication is not None
    communication = msgspec.structs.replace(merged.communication, member="rank")
    ranks = tuple(RankReport(rank, report=merged) for rank in range(number))
    report = RanksReport(1, ranks, merged, (), communication)
    lines = text_of(ranks_report_table(report), width).splitlines()
    assert OVERVIEW_LINES - 8 < len(lines) <= OVERVIEW_LINES
    assert ("and 56 more ranks" in lines) == (number == 64)
    apart = text_of(ranks_report_table(RanksReport(1, ranks, None, (), communication)), width)
    assert len(apart.splitlines()) <= OVERVIEW_LINES
    assert apart.count("and 56 more ranks") == 2 * (number == 64)
    assert any("communication, all" in line or line.startswith("communication,") for line in lines)
    shown = text_of(ranks_report_table(report, ["ranks", "communication"]), width)
    assert shown.count("_rank.json") == 0
    assert f"{number} ranks" in shown.splitlines()
    assert "Who waits for whom" in shown
    assert "Kernels" not in shown.splitlines()


def test_communication_has_a_table_where_there_is_any() -> None:
    """100 ns of work, then a collective of 300 ns of which another stream covers 50 ns."""
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    work = [op(0, 100, stream=7), op(100, 150, stream=9)]
    alone = table_text(analyze(trace_of(*work)).report)
    assert "Communication" not in alone
    shared = analyze(trace_of(*work, op(100, 400, name=name, stream=8))).report
    text = table_text(shared, width=60)
    assert line_with(text, "NCCL/RCCL").split() == ["NCCL/RCCL", "300", "ns", "75.0", "75.0"]
    assert line_with(text, "exposed").split()[-4:] == ["250", "ns", "62.5", "62.5"]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_overlapping_kernels_show_attributed_times_and_say_so(width: int) -> None:
    report = analyze(trace_of(op(0, 100, name="works"), op(1, 110, name="waits"))).report
    text = table_text(report, width)
    lines = text.splitlines()
    at = lines.index("Kernels")
    caption = " ".join(" ".join(lines[at + 1 : at + 4]).split())
    assert caption.startswith("ops overlap: their durations add up to 209 ns")
    assert "attributed times to 110 ns" in caption
    head = line_with(text, "kernel").split()
    assert head[:3] == ["kernel", "calls", "attributed"]
    rows = [line_with(text, name).split() for name in ("works", "waits")]
    assert [row[2:4] for row in rows] == [["100", "ns"], ["10", "ns"]]
    shares = [[word for word in row if "█" not in word][-1] for row in rows]
    assert shares == ["90.9", "9.1"]
    assert text.index("works") < text.index("waits")


def test_kernels_that_do_not_overlap_show_durations() -> None:
    text = table_text(analyze(trace_of(op(0, 100, name="a"), op(100, 200, name="b"))).report)
    assert "ops overlap" not in text
    assert line_with(text, "kernel").split() == ["kernel", "calls", "total", "mean", "share", "%"]


def test_ranges_of_overlapping_ops_show_attributed_times() -> None:
    early = [call(1, 2, 1), op(10, 110, 1), call(3, 4, 2), op(20, 120, 2)]
    text = table_text(analyze(trace_of(span(0, 9, "decode_step"), *early)).report)
    assert line_with(text, "range").split()[:2] == ["range", "attributed"]
    assert line_with(text, "decode_step  ").split()[1:3] == ["110", "ns"]
    report = analyze(trace_of(span(0, 9, "decode_step"), *early[:2])).report
    assert "GPU time" in line_with(table_text(report), "range")
