"""The HTML page in a real browser: it asks for nothing, fits, sorts, folds and prints."""

import base64
import re
from collections.abc import Callable

import pytest

from decodescope.analyzer.html.report_page import VariantView, html_report
from decodescope.analyzer.tracks.build import step_tracks
from tests.helpers.chromium import Tab
from tests.helpers.html_samples import (
    HOSTILE,
    full_report,
    sample_analysis,
    sample_comparison,
    sample_view,
)

pytestmark = pytest.mark.browser

Open = Callable[[str], Tab]
KERNELS = "document.querySelector('#view-0 table.sortable.long:has(.bar)')"
FOLDED = "[...document.querySelectorAll('.tree tbody tr')].filter(row => row.hidden).length"


def sample_page() -> str:
    one, two = sample_view("eager", ops_per_step=40), sample_view("compiled", ops_per_step=300)
    views = [VariantView("eager", full_report(one.report), one.tracks), two]
    return html_report("eager against compiled", views, sample_comparison(one.report))


def test_it_makes_no_requests_and_logs_no_errors(open_page: Open) -> None:
    tab = open_page(sample_page())
    tab.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    tab.evaluate("new Promise(done => setTimeout(done, 300))")
    assert [url for url in tab.requested() if not url.startswith("file:")] == []
    assert len(tab.requested()) == 1
    assert tab.complaints() == []


@pytest.mark.parametrize("width", [1280, 900, 420])
def test_it_is_never_wider_than_the_window(open_page: Open, width: int) -> None:
    tab = open_page(sample_page())
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    assert tab.evaluate("innerWidth") == width
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_charts_and_tables_are_visible(open_page: Open) -> None:
    tab = open_page(sample_page())
    small = """[...document.querySelectorAll("svg.chart, table")]
      .map(shape => shape.getBoundingClientRect())
      .filter(box => box.width < 100 || box.height < 20)"""
    assert tab.evaluate("document.querySelectorAll('svg.chart').length") > 8
    assert tab.evaluate("document.querySelectorAll('table').length") > 10
    assert tab.evaluate(f"{small}.length") == 0
    # A pattern that is not found paints nothing; a shape without a style paints black.
    unpainted = """[...document.querySelectorAll("svg.chart rect, svg.chart path")].filter(
      shape => ["none", "rgb(0, 0, 0)"].includes(getComputedStyle(shape).fill)).length"""
    assert tab.evaluate(unpainted) == 0


def test_a_click_on_a_head_sorts_and_a_third_one_restores(open_page: Open) -> None:
    tab = open_page(sample_page())

    def column(index: int) -> list[str]:
        cell = f"row.cells[{index}]"
        values: list[str] = tab.evaluate(
            f"[...{KERNELS}.tBodies[0].rows].map(row => {cell}.dataset.v ?? {cell}.textContent)"
        )
        return values

    def click(index: int) -> str:
        head = f"{KERNELS}.rows[0].cells[{index}]"
        tab.evaluate(f"{head}.querySelector('button').click()")
        state: str = tab.evaluate(f"{head}.getAttribute('aria-sort')")
        return state

    original = column(0)
    totals = [float(value) for value in column(2)]
    assert len(set(original)) == len(original) > 2
    assert click(2) == "descending"
    assert [float(value) for value in column(2)] == sorted(totals, reverse=True)
    assert click(2) == "ascending"
    assert [float(value) for value in column(2)] == sorted(totals)
    assert click(0) == "ascending"
    assert column(0) == sorted(original)
    assert (click(0), click(0)) == ("descending", "none")
    assert column(0) == original


def test_sorting_works_with_the_keyboard(open_page: Open) -> None:
    tab = open_page(sample_page())
    head = f"{KERNELS}.rows[0].cells[1]"
    tab.evaluate(f"{head}.querySelector('button').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            text="\r",
            windowsVirtualKeyCode=13,
        )
    assert tab.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"


def test_ranges_fold_and_unfold(open_page: Open) -> None:
    tab = open_page(sample_page())
    assert tab.evaluate(FOLDED) == 0
    button = "document.querySelector('.tree .fold')"
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(FOLDED) > 0
    assert tab.evaluate(f"{button}.getAttribute('aria-expanded')") == "false"
    tab.evaluate(f"{button}.click()")
    assert tab.evaluate(FOLDED) == 0


def test_without_its_script_every_row_is_there(open_page: Open) -> None:
    page = sample_page()
    plain = open_page(re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL))
    rows = "document.querySelectorAll('tbody tr').length"
    # Each head is one row.
    assert plain.evaluate(rows) == page.count("<tr") - page.count("<thead>")
    assert plain.evaluate("document.querySelectorAll('button').length") == 0


def test_hostile_names_run_nothing(open_page: Open) -> None:
    analysis = sample_analysis(names=(HOSTILE, "kernel"), model=HOSTILE, device_name=HOSTILE)
    report = full_report(analysis.report, HOSTILE)
    view = VariantView(HOSTILE, report, step_tracks(analysis, 0))
    tab = open_page(html_report(HOSTILE, [view], sample_comparison(report, HOSTILE)))
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.images.length") == 0
    assert tab.evaluate("document.scripts.length") == 1
    assert tab.evaluate("document.title").startswith("</script></style></title><img")
    assert tab.complaints() == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1280


def test_the_policy_stops_a_script_that_got_in(open_page: Open) -> None:
    intruder = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    tab = open_page(sample_page().replace("<main>", f"<main>{intruder}"))
    assert tab.evaluate("window.hacked") is None
    assert tab.complaints()


def test_dark_and_light_differ_and_stay_readable(open_page: Open) -> None:
    tab = open_page(sample_page())
    seen = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        tab.call("Emulation.setEmulatedMedia", features=[feature])
        colors = "[getComputedStyle(document.body).{}].join()"
        ink, page = (tab.evaluate(colors.format(name)) for name in ("color", "backgroundColor"))
        assert contrast(ink, page) > 10
        seen.append(page)
    assert seen[0] != seen[1]


def contrast(one: str, two: str) -> float:
    """The contrast ratio of two CSS colours (WCAG 2.2, relative luminance)."""
    lights = sorted((luminance(one), luminance(two)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(color: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_it_prints_on_a4(open_page: Open) -> None:
    tab = open_page(sample_page())
    tab.call("Emulation.setEmulatedMedia", media="print")
    width = "Math.max(...[...document.querySelectorAll('table')].map(t => t.scrollWidth))"
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=1039,
        height=720,
        deviceScaleFactor=1,
        mobile=False,
    )
    assert tab.evaluate(width) <= 1039
    printed = tab.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
    pdf = base64.b64decode(printed["data"])
    assert pdf.startswith(b"%PDF")
    assert re.search(rb"/MediaBox \[0 0 84[12][.\d]* 59[45]", pdf)
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40
