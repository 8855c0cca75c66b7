"""The HTML page: complete, self-contained, and safe whatever a trace or a model calls things."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.html.report_page import VariantView, html_report
from decodescope.analyzer.schema.answer import Answer, AnswerPart
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.kernel_report import ShortKernels
from decodescope.analyzer.schema.report import GAP_CLASSES, Report
from decodescope.analyzer.schema.step_report import StructureReport
from decodescope.analyzer.tables.gaps_table import group_cause
from decodescope.analyzer.text.formatting import UNKNOWN, count, duration
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.tracks.build import step_tracks
from tests.helpers.html_samples import (
    HOSTILE,
    full_report,
    sample_analysis,
    sample_comparison,
    sample_diff,
    sample_view,
)
from tests.helpers.kineto_events import event, op, prelaunched, trace_of
from tests.helpers.read_once import analysed_once

RECORDINGS = Path(__file__).resolve().parents[3] / "analyzer" / "recordings"


class Page(HTMLParser):
    """What a page consists of: its tags with their attributes, its text, its script."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.script = ""
        self.style = ""
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.script += data
        elif self._inside == "style":
            self.style += data
        else:
            self.text += data

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)

    def words(self) -> str:
        return " ".join(self.text.split())


def full_views() -> list[VariantView]:
    one, two = sample_view("eager"), sample_view("compiled", ops_per_step=300)
    return [VariantView("eager", full_report(one.report), one.tracks), two]


def a_page(comparison: Comparison | Diff | None = None) -> Page:
    return Page(html_report("eager against compiled", full_views(), comparison))


def test_the_page_makes_no_requests() -> None:
    page = a_page(sample_comparison(sample_analysis().report))
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "use", "image"} & {
        tag for tag, _ in page.tags
    }
    assert not page.values("src")
    assert page.values("href")
    assert all(link.startswith("#") for link in page.values("href"))
    assert set(re.findall(r"url\((.)", page.style)) == {"#"}
    assert "@import" not in page.style


def test_every_link_and_pattern_has_its_target() -> None:
    page = a_page(sample_comparison(sample_analysis().report))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = {link[1:] for link in page.values("href")}
    used |= set(re.findall(r"url\(#([\w-]+)\)", page.style))
    assert used <= set(ids)


def test_only_the_pages_own_script_may_run() -> None:
    page = a_page()
    (policy,) = (
        attributes["content"]
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert page.count("script") == 1


def hostile_page() -> str:
    analysis = sample_analysis(
        names=(HOSTILE, "kernel"), model=HOSTILE, variant=HOSTILE, device_name=HOSTILE
    )
    report = full_report(analysis.report, HOSTILE)
    view = VariantView(HOSTILE, report, step_tracks(analysis, 0))
    return html_report(HOSTILE, [view, view], sample_comparison(report, HOSTILE))


def test_hostile_names_stay_text() -> None:
    text = hostile_page()
    page, harmless = Page(text), a_page(sample_comparison(sample_analysis().report))
    assert page.count("script") == page.count("style") == 1
    assert page.count("img") == 0
    assert page.script == harmless.script
    assert not [name for _, attributes in page.tags for name in attributes if name[:2] == "on"]
    visible = plain_line(HOSTILE)
    assert visible in page.text
    assert visible in page.values("title")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)


def test_a_report_is_shown_completely() -> None:
    (view, _) = views = full_views()
    page = Page(html_report("a title", views, None))
    words, report = page.words(), view.report
    assert words.count("random weights") >= 2
    for reason in report.answer.because:
        assert reason in words
    for finding in report.health.findings:
        assert f"{finding.code} {finding.message.strip()}" in words
    for part in report.answer.parts:
        assert not part.ns or duration(abs(part.ns)) in words
    for kernel in report.kernels:
        assert kernel.name in page.values("title")
    for found in report.ranges:
        assert found.path in page.values("title")
    for device in report.devices:
        assert duration(device.busy_ns) in words
        for total in device.gaps.values():
            assert not total.count or f"{count(total.count)}" in words
    assert report.gap_groups
    for group in report.gap_groups:
        assert f"{group_cause(group)}{group.count}{duration(group.total_ns)}" in words
    assert "of limit %" in words
    assert "83.0memory" in words
    assert "70.0 TFLOP/s" in words
    assert "partial 88%" in words
    assert report.source.path in words
    for name in GAP_CLASSES:
        assert f"{name}:" in words


def test_the_parts_of_a_step_are_shown() -> None:
    (view, _) = views = full_views()
    parts = (
        AnswerPart(
            "experts",
            "kernels",
            7_170_000,
            3_650_000,
            3_520_000,
            0.75,
            72,
            "moe_kernel",
            "memory",
            12_345_678_901,
            None,
            "exact",
        ),
        AnswerPart("qkv", "kernels", 2_270_000, None, None, 0.24, 24, "gemm", confidence="partial"),
        AnswerPart("elementwise", "kernels", 120_000, None, None, 0.01, 2, "triton"),
    )
    answer = msgspec.structs.replace(
        view.report.answer, parts=parts, whole_ns=9_560_000, limit_ns=3_650_000
    )
    own = VariantView("it", msgspec.structs.replace(view.report, answer=answer), None)
    words = Page(html_report("a title", [own], None)).words()
    for words_of in (
        "24 layers (12 of 17 ops, 12 of 18 ops), 11 ops before and 4 after them, found by "
        "repetition of kernel names, some unlike the others.",
        "llama@random: 1 request; a step reads 480 kB, 4,800 GB/s at most.",
        "over the limittimelimitoverof step %of limit %GB/sopsknown by",
        "experts7.17 ms3.65 ms3.52 ms36.8moe50.91,72272name",
        f"qkv2.27 ms{UNKNOWN}{UNKNOWN}23.7gemm{UNKNOWN}{UNKNOWN}24place",
        f"elementwise120 µs{UNKNOWN}{UNKNOWN}1.3triton{UNKNOWN}{UNKNOWN}2{UNKNOWN}",
    ):
        assert words_of in words
    words = Page(html_report("a title", views, None)).words()
    assert "Kinds of steps" not in words, "the title of a capture of ours says them"
    foreign = VariantView("it", msgspec.structs.replace(view.report, capture=None), None)
    words = Page(html_report("a title", [foreign], None)).words()
    assert "decode2323255,0867.99 µs" in words


def test_without_layers_and_bytes_there_are_no_columns_for_them() -> None:
    report = full_views()[0].report
    none = StructureReport("none", 0, 0, (), 0, "none")
    report = msgspec.structs.replace(report, structure=none, step_cost=None)
    words = Page(html_report("a title", [VariantView("it", report, None)], None)).words()
    assert "Parts of a step" in words
    assert "known by" in words
    assert "a step reads" not in words
    assert "layers (" not in words
    report = msgspec.structs.replace(report, answer=Answer())
    words = Page(html_report("a title", [VariantView("it", report, None)], None)).words()
    assert "Parts of" not in words


def test_overlapping_kernels_show_attributed_times_before_durations() -> None:
    analysis = analyze(trace_of(*prelaunched(2)))
    view = VariantView("fused", analysis.report, step_tracks(analysis, 0))
    words = Page(html_report("a title", [view], None)).words()
    assert "ops overlap: their durations add up to 1.21 µs, attributed times to 620 ns" in words
    assert "kernelcallsattributed µstotal µsmean µsshare %" in words
    assert "gemv20.550.590.2988.7" in words
    alone = sample_analysis().report
    words = Page(html_report("a title", [VariantView("eager", alone, None)], None)).words()
    assert "ops overlap:" not in words
    assert "kernelcallstotal µsmean µsshare %" in words


def test_launch_shapes_are_columns_and_alike_kernels_are_told_apart() -> None:
    name = "void k<{}, " + "at::native::MulFunctor<float>, " * 6 + "int>(int)"
    shape = {"block": [128, 1, 1], "registers per thread": 4321}
    report = analyze(
        trace_of(
            op(0, 10, name=name.format(4), grid=[7, 64, 1], **shape),
            op(20, 30, name=name.format(4), grid=[8, 64, 1], **shape),
            op(40, 50, name=name.format(8)),
        )
    ).report
    words = Page(html_report("a title", [VariantView("eager", report, None)], None)).words()
    assert "share %gridregs" in words
    assert "7x64x1 +14,321" in words
    assert "·4" in words
    assert "·8" in words


def test_a_part_names_its_kernel_as_the_table_of_kernels_does() -> None:
    name = "void gemm<{}, " + "at::native::MulFunctor<float>, " * 6 + "int>(int)"
    made = trace_of(op(0, 10, name=name.format(4)), op(20, 25, name=name.format(8)))
    view = VariantView("eager", analyze(made).report, None)
    words = Page(html_report("a title", [view], None)).words()
    assert "other products15 ns60.0gemm·4" in words
    assert "share % gemm·4110 ns" in words


KL = "3.2e-05 (2.9e-05 to 3.5e-05)"


def test_a_comparison_is_shown_whole() -> None:
    report = sample_analysis().report
    words = a_page(sample_comparison(report)).words()
    assert "x6.136 (95 %: x6.080 to x6.190), faster" in words
    assert "x0.980, no interval" in words
    assert "b over a: too few rounds" in words
    assert "(was norm, q_proj)" in words
    assert "rounds few rounds" in words
    few = "1.0004 (too few positions)"
    for figure in ("0.0041", KL, "99.2", few, "106 to 108", "95 % interval"):
        assert figure in words
    assert f"driver{UNKNOWN}" in words.replace(" ", "")
    table = words.partition("Every variant")[2]
    assert f"eager107106 to 108{UNKNOWN * 3}0.0041{KL}" in table
    assert f"compiled656{UNKNOWN}x6.136x6.080 to x6.190faster{UNKNOWN * 5}nothing" in table


def test_a_diff_begins_with_its_steps() -> None:
    report = sample_analysis().report
    words = a_page(sample_diff(report, report)).words()
    assert "decode step from A to B: 8.00 µs → 8.00 µs, x1.000" in words
    assert "unprofiled: 9.00 µs → 9.00 µs, x1.000" in words
    assert "steps of one window depend on each other" in words
    assert "waiting for the host" in words
    assert "Nothing was timed" not in words
    assert "eager → compiled" in words


def test_a_trace_without_gpu_activity_has_an_explanation() -> None:
    report = analyze(trace_of(event("cpu_op", "aten::mm", 10, 20, 1, 1))).report
    assert not report.devices
    words = Page(html_report("cpu", [VariantView("cpu", report, None)], None)).words()
    assert "no GPU activity" in words
    assert "No step is marked in this trace" in words
    assert "There are no gaps to count" in words
    assert "not captured by decodescope" in words


def test_communication_has_a_table_where_there_is_any() -> None:
    work = [op(0, 100, stream=7), op(100, 150, stream=9)]
    shared = op(100, 400, name="ncclDevKernel_AllReduce", stream=8)
    for events, expected in ((work, False), ([*work, shared], True)):
        view = VariantView("ranks", analyze(trace_of(*events)).report, None)
        words = " ".join(re.sub(r"<[^>]*>", " ", html_report("ranks", [view], None)).split())
        assert ("NCCL/RCCL 300 ns 75.0 75.0" in words) == expected
        assert ("exposed: no other op ran 250 ns 62.5 62.5" in words) == expected


def test_optional_fields_may_be_missing() -> None:
    bare = sample_analysis().report
    nothing: dict[str, object] = {
        "capture": None,
        "largest_gaps": (),
        "attribution": None,
        "answer": Answer(),
        "steps": (),
        "kernels": (),
        "ranges": (),
        "devices": (),
        "launches": msgspec.structs.replace(
            bare.launches,
            api_ns=None,
            queue_ns=None,
            launch_latency_ns=None,
            median_queue_depth=None,
            queue_depth=None,
            short_kernels=None,
        ),
    }
    for name, value in nothing.items():
        report: Report = msgspec.structs.replace(bare, **{name: value})
        page = Page(html_report("bare", [VariantView("bare", report, None)], None))
        assert "None" not in page.text
        assert page.count("section") == (7 if report.answer.parts else 6)


def test_a_chart_is_captioned_if_others_are_missing() -> None:
    view = sample_view("it")
    times = msgspec.structs.replace(view.report.launches, queue_ns=None)
    (first,) = view.report.devices
    quiet = msgspec.structs.replace(first, device=4, gaps={})
    busy = msgspec.structs.replace(first, device=5)
    report = msgspec.structs.replace(view.report, launches=times, devices=(quiet, busy))
    page = html_report("t", [VariantView("it", report, view.tracks)], None)
    captions = re.findall(r"<figcaption>([^<]*)", page)
    assert captions == ["it, device 5", "queue depth over time ", "call time", "call to start"]
    assert "<h4>it, device 0</h4>" in page


def test_without_short_kernels_there_is_no_sentence_about_them() -> None:
    view = sample_view("it")
    for short, said in ((2, True), (0, False)):
        launches = msgspec.structs.replace(
            view.report.launches, short_kernels=ShortKernels(short, short / 8, 10 * short, 20)
        )
        report = msgspec.structs.replace(view.report, launches=launches)
        words = Page(html_report("t", [VariantView("it", report, None)], None)).words()
        assert ("ran for less time than their launch call took" in words) == said


def test_many_ranks_are_many_sections() -> None:
    views = [sample_view(f"rank {rank}") for rank in range(9)]
    page = Page(html_report("ranks", views, None))
    assert [link for link in page.values("href") if link == "#view-8"]
    assert page.words().count("Idle gaps") == 9


def test_thousands_of_ops_stay_a_small_file() -> None:
    view = sample_view(ops_per_step=6000)
    assert view.tracks is not None
    assert len(view.tracks.ops) == 6000
    assert len(html_report("large", [view, view], None)) < 1_000_000


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.dsrec")), ids=lambda path: path.stem)
def test_the_bundled_recordings_make_a_page(path: Path) -> None:
    analysis = analysed_once(path)
    text = html_report(
        path.name, [VariantView("it", analysis.report, step_tracks(analysis, 1))], None
    )
    assert len(text) < 1_000_000
    words = Page(text).words()
    assert analysis.report.answer.because[0] in words
    assert "None" not in words


def test_the_same_report_makes_the_same_page() -> None:
    comparison = sample_comparison(sample_analysis().report)
    assert html_report("t", full_views(), comparison) == html_report("t", full_views(), comparison)
