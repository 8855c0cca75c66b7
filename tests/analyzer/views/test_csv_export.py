"""Rows of CSV: every figure of the report, and sums that hold."""

import csv
import io

import msgspec
import pytest
from hypothesis import given

from decodescope.analyzer.attribution.range_tree import OWN_OPS
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.csv_export import render_csv
from tests.helpers.hostile import HOSTILE, SHOWN, anything
from tests.helpers.html_samples import sample_analysis
from tests.helpers.rich_report import rich_report


def rows_of(by: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(rich_report(), by))))


def test_csv_of_kernels_and_ranges_keeps_names_and_numbers() -> None:
    report = rich_report()
    rows = rows_of("kernel")
    assert [row["name"] for row in rows] == [plain_line(kernel.name) for kernel in report.kernels]
    assert [int(row["total_ns"]) for row in rows] == [k.total_ns for k in report.kernels]
    assert [float(row["share"]) for row in rows] == [k.share for k in report.kernels]
    assert [int(row["short_calls"]) for row in rows] == [k.short_calls for k in report.kernels]
    assert [int(row["attributed_ns"]) for row in rows] == [k.attributed_ns for k in report.kernels]
    assert [float(row["attributed_share"]) for row in rows] == [
        k.attributed_share for k in report.kernels
    ]
    rows = [row for row in rows_of("range") if not row["path"].endswith(f"/{OWN_OPS}")]
    assert [row["path"] for row in rows] == [found.path for found in report.ranges]
    assert [int(row["idle_ns"]) for row in rows] == [found.idle_ns for found in report.ranges]
    assert [int(row["attributed_ns"]) for row in rows] == [r.attributed_ns for r in report.ranges]
    assert {row["kind"] for row in rows} == {"range"}
    assert {row["matched"] for row in rows} == {""}


def test_rooflines_are_columns_of_kernels_and_empty_if_unknown() -> None:
    unknown = rows_of("kernel")
    known = unknown.pop(next(i for i, row in enumerate(unknown) if "MulFunctor" in row["name"]))
    assert (known["roofline_calls"], known["roofline_bytes"]) == ("1", "482400")
    assert known["roofline_limit"] == "memory"
    assert float(known["roofline_share_of_limit"]) == pytest.approx(0.5)
    for row in unknown:
        assert {row[name] for name in row if name.startswith("roofline")} == {""}


@pytest.mark.parametrize("by", ["kernel", "range", "gap"])
def test_every_csv_row_names_its_origin(by: str) -> None:
    report = rich_report()
    assert report.capture is not None
    rows = rows_of(by)
    assert rows
    devices = {str(device.device) for device in report.devices}
    for row in rows:
        assert (row["model"], row["weights"]) == (report.capture.model, report.capture.weights)
        assert set(row["device" if by == "gap" else "devices"].split()) <= devices


def test_csv_of_gaps_adds_up_to_idle_by_device_stream_and_class() -> None:
    rows = rows_of("gap")
    for device in rich_report().devices:
        mine = [row for row in rows if row["device"] == str(device.device)]
        assert sum(int(row["total_ns"]) for row in mine) == device.idle_ns
        for stream in device.streams:
            own = [row for row in mine if row["stream"] == str(stream.stream)]
            for name, total in stream.gaps.items():
                parts = [row for row in own if row["class"] == name]
                assert sum(int(row["total_ns"]) for row in parts) == total.total_ns
                assert sum(int(row["count"]) for row in parts) == total.count
                assert all(bool(row["label"]) == (name == "host_wait") for row in parts)
    assert {row["stream"] for row in rows} == {"7", "9"}


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", " =", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
)
def test_no_text_is_a_formula_and_numbers_stay_numbers(start: str) -> None:
    names = (f"{start}cmd|' /C calc'!A1", "kernel")
    report = sample_analysis(names=names, model=f"{start}1.5").report
    rows = list(csv.DictReader(io.StringIO(render_csv(report))))
    assert {row["name"] for row in rows} == {f"'{names[0]}", "kernel"}
    assert {row["model"] for row in rows} == {f"'{start}1.5"}
    negative = msgspec.structs.replace(report.kernels[0], share=-1.5)
    changed = msgspec.structs.replace(report, kernels=(negative,))
    (row,) = csv.DictReader(io.StringIO(render_csv(changed)))
    assert row["share"] == "-1.5"


@given(anything)
def test_any_name_is_one_cell_of_one_line(name: str) -> None:
    report = rich_report()
    kernel = msgspec.structs.replace(report.kernels[0], name=name)
    text = render_csv(msgspec.structs.replace(report, kernels=(kernel,)))
    assert len(text.splitlines()) == 2
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["name"].removeprefix("'") == plain_line(name).removeprefix("'")
    assert row["name"][:1] not in tuple("=+-@")


def test_a_hostile_name_is_readable() -> None:
    text = render_csv(sample_analysis(names=(HOSTILE,)).report)
    assert SHOWN in text
