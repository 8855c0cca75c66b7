"""Reports of `bench claims` become sections and plots: nothing is lost, nothing counted twice."""

import re
from xml.etree import ElementTree

import msgspec
import pytest

from decodescope.analyzer.formatting import UNKNOWN
from decodescope.variants.bench.report import RoundSpread
from decodescope.variants.claims.report import (
    SCHEMA_VERSION,
    ClaimResult,
    ClaimsReport,
    Clocks,
    EntrantFigures,
    Race,
    Row,
    Source,
)
from decodescope.variants.claims.table import row_name
from tools.make_results import documents
from tools.results.claim_plots import claim_plots
from tools.results.claims import reached, read_reports, sections
from tools.results.drawing import Series, lines_file
from tools.results.glance import common_words
from tools.results.records import read_records

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
BLOG = Source("A blog | of kernels", "https://blog.example/kernels", "A100", "A | blog")
LADDER = Source("A ladder", "https://ladder.example", "H100")
SVG = "{http://www.w3.org/2000/svg}"


def spread(value: float) -> RoundSpread:
    return RoundSpread.of([value * 0.99, value, value * 1.02])


def entrant(name: str, ns: float, ours: bool = True, **changes: object) -> EntrantFigures:
    figures = EntrantFigures(
        name,
        f"{name} in words",
        ours,
        bytes_moved=8_000_000,
        flops=16_000_000,
        bound_ns=2000.0,
        device_ns=spread(ns),
        launched_ns=spread(ns * 2),
        share_of_bound=2000.0 / ns,
        relative_error=1e-4,
        tolerance=1e-3,
    )
    return msgspec.structs.replace(figures, **changes)


def wrong(name: str) -> EntrantFigures:
    return EntrantFigures(name, name, False, error="relative error 0.5 (allowed: 0.001)")


def claim(name: str, source: Source, *races: Race, rows: tuple[Row, ...] = ()) -> ClaimResult:
    clocks = Clocks(1755, 1980, 512.0, ("sw_power_cap",))
    return ClaimResult(name, f"what {name} says", source, "ratios compare", rows, races, (), clocks)


def report(gpu: str, *claims: ClaimResult, date: str = "2026-11-22T22:30:00+00:00") -> ClaimsReport:
    environment = {"gpu": gpu, "driver": "580.1", "torch": "2.11.0", "commit": "abcdef0123456"}
    return ClaimsReport(
        SCHEMA_VERSION, 4.6e12, None, 4.8e12, 1200.0, 60 << 20, 9, claims,
        {**environment, "date": date},
    )  # fmt: skip


ROWS = (
    Row("RMSNorm | fused", "ratio", 8.1, spread(9.5), 10.0, 0.585, 0.93, explanation="36 x bytes"),
    Row("SwiGLU", "ratio", 1.6, spread(1.25), 1.667, 0.79, 0.75, explanation="5 for 3 elements"),
    Row("first launch", "ns", 2.4e6, spread(1.2e6), higher_is_better=False, explanation="compiles"),
    Row("beside a peer", "ratio", None, spread(1.01)),
    Row("an INT8 product", "share", 0.5, error="int8: relative error 0.5"),
    Row("eager's share", "share", 0.11, spread(0.09), baseline=True),
)
RACE = Race(
    "2,048 tokens", (entrant("pytorch", 20_000, False, traffic_bytes=72_000_000),
                     entrant("ours", 2_500), entrant("same_bytes", 2_400, False), wrong("liger"))
)  # fmt: skip


def products(m: int) -> Race:
    size = f"M = {m}, N = 8192, K = 8192"
    return Race(size, (entrant("split_k", 18_000 + m), entrant("cublas", 34_000, False)))


def steps(model: str) -> Race:
    variants = (entrant("fused+graph", 700_000, kl=2e-4), entrant("compiled", 1_500_000, False))
    return Race(model, variants, "steps")


@pytest.fixture
def reports() -> dict[str, ClaimsReport]:
    return {
        "h200-a": report(H200, claim("prefill-norms", BLOG, RACE, rows=ROWS)),
        "h200-b": report(
            H200,
            claim("tk-gemm", LADDER, *(products(m) for m in (1, 16, 64))),
            claim("rmsnorm", LADDER, Race("2^18 x 2^12", (entrant("looped", 4000),
                                                          entrant("device copy", 2100, False))),
                  Race("2^18 x 2^12: looped", (entrant("1024 columns", 4000),))),
            claim("peers", BLOG, steps("llama-3.2-1b@random"), steps("llama-3.1-8b@random")),
        ),
        "h100": report(H100, claim("prefill-norms", BLOG, RACE, rows=ROWS[:1])),
    }  # fmt: skip


def page(reports: dict[str, ClaimsReport]) -> str:
    found = documents(read_records(), reports)
    return next(text for path, text in found.items() if path.name == "results.md")


def tables(text: str) -> list[list[str]]:
    return [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)


def test_each_source_has_its_rows_for_every_gpu(reports):
    text = page(reports)
    summaries = re.findall(r"<summary>(.*) on (.*): (\d) of (\d) reached</summary>", text)
    assert summaries == [
        ("A ladder", H200, "0", "0"), ("A | blog", H200, "1", "3"), ("A | blog", H100, "1", "1"),
    ]  # fmt: skip
    assert text.count("<details>") == text.count("</details>")
    blog = text.partition("<summary>A | blog")[2].partition("## The fused kernels")[0]
    for row in ROWS:
        first_cell = "\n| " + row_name(row).replace("|", "\\|") + " |"
        assert blog.count(first_cell) == (2 if row is ROWS[0] else 1)
    assert "| x8.10 | x9.50 (x9.40 to x9.69) | x10.0 | 58.5 % | 93.0 % | 36 x bytes |" in blog
    assert "| not measured: int8: relative error 0.5 |" in blog


@pytest.mark.parametrize(("without", "apart"), [(8, False), (9, True)])
def test_many_rows_without_a_published_figure_are_below_the_others(reports, without, apart):
    more = tuple(Row(f"M = {m}", "ratio", None, spread(1.0 + m)) for m in range(without))
    many = claim("many", Source("many", "https://many.example", ""), RACE, rows=ROWS[:2] + more)
    section = page({"x": report(H200, many)}).partition("<summary>many")[2].partition("</details>")
    table, _, details = section[0].partition("<details>")
    shown = details if apart else table
    assert all(f"| M = {m} |" in shown for m in range(without))
    assert ("M = 0" in table) != apart
    assert "| SwiGLU | x1.60 |" in table


def test_every_row_of_every_table_has_the_cells_of_its_header(reports):
    found = tables(page(reports))
    assert len(found) > 20
    for table in found:
        assert {len(cells(line)) for line in table} == {len(cells(table[0]))}, table[0]


def test_only_published_figures_count_as_reached_or_missed(reports):
    blog = next(one for one in sections(reports) if one.source == BLOG)
    # RMSNorm is reached, SwiGLU is not, INT8 failed; the A100's time of a launch does not count.
    assert reached(blog.measured[H200]) == (1, 3)
    assert reached(blog.measured[H100]) == (1, 1)


def glance(reports: dict[str, ClaimsReport]) -> list[list[str]]:
    """The cells of the table at a glance, its header first."""
    table = tables(page(reports).partition("## The claims of the field")[2])[0]
    return [[one.strip() for one in cells(line)[1:-1]] for line in table if "---" not in line]


def test_at_a_glance_each_published_figure_is_beside_every_gpu(reports):
    header, *lines = glance(reports)
    assert header == [
        "source, its GPU", "figure", "theirs", "H200", "reached", "H100 80GB HBM3", "reached",
        "not reached because",
    ]  # fmt: skip
    blog, name = f"[A \\| blog]({BLOG.url}), A100", "`prefill-norms`: "
    assert lines == [
        [blog, name + "RMSNorm \\| fused", "x8.10", "x9.50", "1 of 1", "x9.50", "1 of 1",
         ""],
        ["", name + "SwiGLU", "x1.60", "x1.25", "**0 of 1**", UNKNOWN, UNKNOWN,
         "H200: 5 for 3 elements"],
        ["", name + "first launch", "2.40 ms", "1.20 ms", UNKNOWN, UNKNOWN, UNKNOWN, ""],
        ["", name + "an INT8 product", "50.0 %", UNKNOWN, "**0 of 1**", UNKNOWN, UNKNOWN,
         "H200: not measured: int8: relative error 0.5"],
    ]  # fmt: skip


def test_rows_of_one_published_figure_are_one_line(reports):
    rows = (
        Row("block after 64 tokens (M = 1), graph", "ratio", 5.4, spread(91.5), explanation="a"),
        Row("block after 128 tokens (M = 2), graph", "ratio", 5.4, spread(4.0), explanation="long"),
        Row("block after 256 tokens (M = 2), graph", "ratio", 5.4, spread(5.0), explanation="why"),
        Row("the same number", "share", 5.4, spread(6.0)),
    )
    two, one = claim("two", BLOG, rows=rows), claim("one", LADDER, rows=rows[:3])
    _, *lines = glance({"x": report(H200, two, one)})
    together = ["x4.00 to x91.5 in 3 conditions", "**1 of 3**", "why"]
    assert lines[0][1:] == ["`two`: block after … tokens, graph", "x5.40", *together]
    assert lines[1][1:] == ["`two`: the same number", "540.0 %", "600.0 %", "1 of 1", ""]
    # All figures of a claim are what its title says.
    assert lines[2][1:] == ["`one`: what one says", "x5.40", *together]


def test_the_reason_is_of_the_sources_gpu_where_it_was_measured():
    def missed(gpu: str, why: str) -> ClaimsReport:
        row = Row("a rung", "share", 0.9, spread(0.8), explanation=why)
        return report(gpu, claim("rmsnorm", LADDER, rows=(row,)))

    _, line = glance({"a": missed(H200, "short"), "b": missed(H100, "a longer reason")})
    assert line[-1] == "H100 80GB HBM3: a longer reason"


def test_what_a_source_improves_on_is_found_here_too_and_counts_nowhere(reports):
    text = page(reports)
    found = text.partition("Found here too")[2].partition("<details>")[0]
    assert "- `prefill-norms`: eager's share: theirs 11.0 % (A100); here 9.0 % on H200\n" in found
    assert "Found here too" not in page({"x": report(H200, claim("x", BLOG, rows=ROWS[:4]))})


def test_names_have_in_common_their_beginnings_and_ends_only():
    assert common_words(["a b c"]) == "a b c"
    assert common_words(["up to (M = 1)", "up to (M = 1)"]) == "up to (M = 1)"
    assert common_words(["up to (M = 1)", "up to (M = 2)"]) == "up to"
    assert common_words(["a a", "a a a"]) == "a a …"
    assert common_words(["x one by one", "y z one by one"]) == "… one by one"


def test_times_and_rates_count_on_the_gpu_of_the_source_alone(reports):
    rows = (
        Row("a", "tokens_per_s", 1000.0, spread(1200.0)),
        Row("b", "ns", 1000.0, spread(1200.0), higher_is_better=False),
        Row("c", "launches", 72.0, spread(24.0), higher_is_better=False),
        Row("d", "tokens_per_s", 1000.0, spread(1200.0), comparable=False),
    )
    source = Source("two", "https://two.example", "H100, H200")
    other = Source("other", "https://other.example", "A100")
    found = sections({"x": report(H200, claim("x", source, rows=rows)),
                      "y": report(H200, claim("y", other, rows=rows))})  # fmt: skip
    assert [reached(section.measured[H200]) for section in found] == [(2, 3), (1, 1)]


def test_the_readme_counts_the_figures_that_are_reached_on_each_gpu(reports):
    def readme(reports: dict[str, ClaimsReport]) -> str:
        found = documents(read_records(), reports)
        return " ".join(
            next(text for path, text in found.items() if path.name == "README.md").split()
        )

    assert "1 of 3 are reached on an H200, 1 of 1 on an H100 80GB HBM3" in readme(reports)
    assert "are reached on" not in readme({})


def test_every_entrant_is_shown_a_wrong_one_with_its_error_alone(reports):
    text = page(reports)
    assert "| liger | relative error 0.5 (allowed: 0.001) |" in text
    assert text.count("| **ours** | ") == 2
    assert "| pytorch | 20.0 µs (19.8 µs to 20.4 µs) |" in text
    assert "| **fused+graph** | 700 µs | 1.40 ms (1.39 ms to 1.43 ms) | 714 |" in text


def test_a_section_names_the_run_its_clocks_and_its_noise(reports):
    line = next(one for one in page(reports).splitlines() if one.startswith("- `claims/h100.json`"))
    for part in (
        H100,
        "driver 580.1",
        "commit abcdef012",
        "2026-11-22 22:30",
        "4,600 GB/s",
        "1,755 to 1,980 MHz",
        "up to 512 W",
        "throttled: sw_power_cap",
        "within 3.0 %",
    ):
        assert part in line  # fmt: skip


def test_reports_are_in_the_list_of_records(reports):
    listed = page(reports).partition("## The records")[2]
    for name in reports:
        assert f"| `claims/{name}.json` | 2026-11-22 22:30 | abcdef012 |" in listed


def test_a_claim_in_two_files_of_one_gpu_is_refused(reports):
    again = reports | {"again": report(H200, claim("tk-gemm", LADDER))}
    with pytest.raises(SystemExit, match=r"tk-gemm on NVIDIA H200 is in .*again\.json"):
        sections(again)
    other_gpu = reports | {"other": report(H100, claim("tk-gemm", LADDER))}
    assert len(sections(other_gpu)) == 2


def test_without_reports_the_page_has_no_section_of_claims(tmp_path):
    assert read_reports(tmp_path) == {}
    assert "claims of the field" not in page({})


def test_a_report_is_read_as_it_was_written(tmp_path, reports):
    for name, one in reports.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(one))
    assert read_reports(tmp_path) == reports


def test_a_claim_that_failed_stays_with_its_error(reports):
    failed = msgspec.structs.replace(claim("broken", BLOG), error="needs 80 GB")
    text = page(reports | {"failed": report(H200, failed)})
    unknown = " | ".join([UNKNOWN] * 5)
    assert f"| `broken`: what broken says | {unknown} | not measured: needs 80 GB |" in text
    assert re.search(r"\*\*broken\*\*: what broken says \|.*\| not measured: needs 80 GB \|", text)


def test_plots_show_what_was_timed_and_nothing_else(reports):
    drawn = claim_plots(sections(reports))
    files = {plot.file: plot for plots in drawn.values() for plot in plots}
    assert set(files) == {
        "roofline-h200.svg", "roofline-h100-80gb-hbm3.svg", "tk-gemm-h200.svg", "rmsnorm-h200.svg",
        "peers-h200.svg",
    }  # fmt: skip
    for plot in files.values():
        assert plot.words in page(reports)
    roofline = ElementTree.fromstring(files["roofline-h200.svg"].svg)
    assert len(roofline.findall(f"{SVG}circle")) == 2
    assert "same_bytes" not in files["roofline-h200.svg"].svg
    assert len(ElementTree.fromstring(files["tk-gemm-h200.svg"].svg).findall(f"{SVG}circle")) == 6
    assert "52.5 % of the copy" in files["rmsnorm-h200.svg"].svg
    assert "1024 columns" not in files["rmsnorm-h200.svg"].svg
    assert "714 of 500,000" in files["peers-h200.svg"].svg


def test_the_copy_of_the_plot_is_that_of_the_rows():
    copy = entrant("device copy", 3000, False, launched_ns=spread(2100))
    race = Race("2^18 x 2^12", (entrant("looped", 2000), copy))
    found = claim_plots(sections({"x": report(H200, claim("rmsnorm", LADDER, race))}))
    svg = found[LADDER.url, H200][0].svg
    # 8 MB in 2.1 µs, launched by the host, and in 2 µs.
    assert "3,810 GB/s, 100.0 % of the copy" in svg
    assert "4,000 GB/s, 105.0 % of the copy" in svg


def test_names_of_points_are_within_the_drawing():
    points = Series("a", ((1.0, 1.0), (1000.0, 10.0)), joined=False, labels=("one", "long " * 8))
    root = ElementTree.fromstring(lines_file("title", "x", "y", (points,)))
    texts = {one.text: one for one in root.findall(f"{SVG}text")}
    label = texts["long " * 8]
    assert float(label.get("x", 0)) + 7.5 * 40 <= float(root.get("viewBox", "").split()[2])


def test_points_of_the_roofline_lie_below_its_lines(reports):
    drawn = claim_plots(sections(reports))[BLOG.url, H200][0].svg
    root = ElementTree.fromstring(drawn)
    measured, datasheet = (
        [tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()]
        for line in root.findall(f"{SVG}polyline")
    )
    assert measured[0][1] > datasheet[0][1]
    (x1, y1), (x2, y2) = measured[:2]
    for circle in root.findall(f"{SVG}circle"):
        x, y = float(circle.get("cx", 0)), float(circle.get("cy", 0))
        assert y > y1 + (x - x1) / (x2 - x1) * (y2 - y1)
