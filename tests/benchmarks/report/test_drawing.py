"""Plots as files: round marks of logarithmic axes, and a file with its size and style."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.report.drawing import Plot, log_ticks


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9))
def test_marks_of_a_logarithmic_axis_are_round_rising_and_inside(low, factor):
    high = low * factor
    marks = log_ticks(low, high)
    assert marks == sorted(set(marks))
    assert all(low <= mark <= high for mark in marks)
    assert all(float(f"{mark:.0e}") == pytest.approx(mark) for mark in marks)
    assert len(marks) <= 20
    assert len(marks) >= 2 or factor < 4


def test_a_drawing_as_a_file_has_its_size_and_its_style():
    drawing = Plot(40, "title", "about", 200)
    drawing.through([(0, 1), (2, 3.456)], "polyline", "line")
    root = ElementTree.fromstring(drawing.file(".line { stroke: red; }"))
    space = "{http://www.w3.org/2000/svg}"
    assert (root.tag, root.get("width"), root.get("height")) == (f"{space}svg", "200", "40")
    assert [part.tag for part in root] == [
        f"{space}{tag}" for tag in ("style", "title", "desc", "polyline")
    ]
    assert root[0].text == ".line { stroke: red; }"
    assert root[3].get("points") == "0,1 2,3.46"
