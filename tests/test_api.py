"""The examples of docs/api.md run unchanged and print the output on the page.

With --snapshot-update the page gets what they print."""

import contextlib
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import decodescope
import decodescope.analyzer
from decodescope.analyzer.errors import InputError, MissingRequirement, TraceError
from decodescope.analyzer.opened import OpenedTrace, Records
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.tables.report_tables import REPORT_TABLES
from decodescope.analyzer.views.csv_export import render_csv
from tests.helpers.hostile import FILE, FILE_SHOWN, HOSTILE, unsafe
from tests.helpers.kineto_events import document, op, prelaunched

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
# An example, and what it prints.
EXAMPLE = re.compile(
    r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
PLACES = range(5)


@pytest.mark.parametrize("place", PLACES)
def test_an_example_prints_the_output_on_the_page(
    place: int, pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(EXAMPLE.finditer(text := PAGE.read_text()))
    assert len(found) == len(PLACES)
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(found[place][1], f"{PAGE.name}, example {place + 1}", "exec"), {})
    if pytestconfig.option.update_snapshots and found[place][2] is not None:
        start, end = found[place].span(2)
        PAGE.write_text(text[:start] + out.getvalue() + text[end:])
        return
    assert out.getvalue() == (found[place][2] or "")
    if place == 4:
        assert {path.name for path in tmp_path.iterdir()} == {"fused.html", "fused.json.gz"}


def test_every_public_name_is_on_the_page() -> None:
    page = PAGE.read_text()
    for name in decodescope.analyzer.__all__:
        assert re.search(rf"\b{name}\b", page), name
        assert getattr(decodescope.analyzer, name) is not None


@pytest.fixture(scope="module")
def opened() -> OpenedTrace:
    return decodescope.open(bundled_recordings()[0])


def test_an_opened_trace_has_the_figures_of_the_command(opened: OpenedTrace) -> None:
    analysis = decodescope.analyzer.analyze(decodescope.analyzer.load(bundled_recordings()[0]))
    assert opened.report == analysis.report
    assert opened.answer == analysis.report.answer
    facts = Given(batch=7)
    assert decodescope.open(bundled_recordings()[0], facts).analysis.given.batch == 7


def test_tables_are_records_of_the_same_figures(opened: OpenedTrace) -> None:
    assert opened.tables == tuple(REPORT_TABLES)
    for name in opened.tables:
        records = opened.table(name)
        assert list(records) == [records[place] for place in range(len(records))]
        assert records[:2] == list(records)[:2]
        assert all(tuple(row) == tuple(records.columns) for row in records)
    kernels, report = opened.table("kernels"), opened.report
    assert [row["total_ns"] for row in kernels] == [row.total_ns for row in report.kernels]
    assert [row["grid"] for row in kernels] == [
        row.shape and row.shape.grid for row in report.kernels
    ]
    assert render_csv(report).splitlines()[0].startswith(",".join(kernels.columns))
    assert sum(row["ns"] for row in opened.table("parts")) == opened.answer.whole_ns


def test_a_table_that_is_none_is_one_clear_line(opened: OpenedTrace) -> None:
    with pytest.raises(InputError, match="no table kernel: did you mean kernels"):
        opened.table("kernel")
    with pytest.raises(InputError, match="no table x: one of: parts, kinds"):
        opened.table("x")
    with pytest.raises(TraceError, match="no such file"):
        decodescope.open("nowhere.json")


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_without_a_package_there_are_no_frames_of_it(
    opened: OpenedTrace, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingRequirement, match=f"pip install {package}"):
        getattr(opened.table("kernels"), f"to_{package}")()


def test_frames_have_the_columns_of_the_records(
    opened: OpenedTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers, some of them unknown, are no floating-point numbers in pandas."""
    fake = SimpleNamespace(DataFrame=dict, array=lambda figures, dtype: (dtype, figures))
    monkeypatch.setitem(sys.modules, "pandas", fake)
    monkeypatch.setitem(sys.modules, "polars", fake)
    for name in opened.tables:
        columns = opened.table(name).columns
        assert opened.table(name).to_polars() == columns
        for key, column in opened.table(name).to_pandas().items():
            assert column in (columns[key], ("Int64", columns[key])), key
    kernels = opened.table("kernels").to_pandas()
    parts = opened.table("parts").to_pandas()
    assert parts["limit_ns"][0] == "Int64"
    assert all(isinstance(share, float) for share in kernels["share"])


def frame_figure(value: Any) -> Any:
    """A figure of a frame as in a record: pandas has NaN or NA for None, polars lists."""
    if isinstance(value, list | tuple):
        return tuple(value)
    return None if value is None or str(value) in ("<NA>", "nan") else value


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_real_frames_have_the_figures_of_the_records(opened: OpenedTrace, package: str) -> None:
    pytest.importorskip(package)
    for name in opened.tables:
        records = opened.table(name)
        frame = getattr(records, f"to_{package}")()
        assert list(frame.columns) == list(records.columns)
        for key, figures in records.columns.items():
            assert [frame_figure(value) for value in frame[key].to_list()] == figures, (name, key)


def test_a_notebook_shows_names_as_text(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(document([*prelaunched(), op(800, 900, name=f"<script>{HOSTILE}")]))
    opened = decodescope.open(path)
    assert repr(opened).startswith(f"<{FILE_SHOWN}: ")
    shown = [opened._repr_html_(), *(opened.table(name)._repr_html_() for name in opened.tables)]
    for html in shown:
        assert unsafe(html) == ""
        assert not re.search("<script|<b>`|<a ", html)
    assert "&lt;script&gt;" in "".join(shown)


def test_a_long_table_shows_its_first_rows(opened: OpenedTrace) -> None:
    table = REPORT_TABLES["kernels"](opened.report)
    longer = Records(type(table)(table.noun, table.columns, [*table.rows] * 100))
    assert longer._repr_html_().count("<tr") == 61
    assert f"and {len(longer) - 60:,}".replace(",", "") in longer._repr_html_()
    assert repr(longer).startswith(f"<{len(longer)} kernels: name, short_name, ")
