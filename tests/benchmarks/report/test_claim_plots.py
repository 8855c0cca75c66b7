"""Plots of claims: what was timed, and by the same figures as the rows."""

from xml.etree import ElementTree

from benchmarks.claims.report import Race
from benchmarks.report.claim_plots import claim_plots
from benchmarks.report.claims import sections
from benchmarks.report.drawing import Series, lines_file
from tests.benchmarks.report.claim_reports import (
    BLOG,
    H200,
    LADDER,
    SVG,
    claim,
    entrant,
    page,
    report,
    spread,
)


def test_plots_show_what_was_timed_and_nothing_else(reports):
    drawn = claim_plots(sections(reports))
    files = {plot.file: plot for plots in drawn.values() for plot in plots}
    assert set(files) == {
        "roofline-h200.svg",
        "roofline-h100-80gb-hbm3.svg",
        "tk-gemm-h200.svg",
        "rmsnorm-h200.svg",
        "peers-h200.svg",
    }
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


def test_of_several_models_the_one_that_reads_the_most_is_drawn():
    small = Race("tiny", (entrant("fused", 5),), of="steps")
    large = Race("7B", (entrant("fused", 9_000, bytes_moved=9_000_000),), of="steps")
    found = claim_plots(sections({"x": report(H200, claim("kernl-fp8", BLOG, small, large))}))
    (plot,) = found[BLOG.url, H200]
    assert "7B" in plot.svg
    assert "tiny" not in plot.svg


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
