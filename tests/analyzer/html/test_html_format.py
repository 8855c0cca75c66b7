"""How the page words figures, and how it makes a tree of ranges."""

import html

from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.html.cells import (
    breakable,
    flops_rate,
    share,
    speed_text,
)
from decodescope.analyzer.schema.comparison_report import Interval, SpeedRatio
from decodescope.analyzer.schema.report import RangeReport
from decodescope.analyzer.views.formatting import UNKNOWN, plain_text, signed_duration
from decodescope.analyzer.views.range_rows import range_rows


def test_figures_as_text() -> None:
    speed = SpeedRatio(1.2431, Interval(1.21234, 1.27, 0.95), "faster")
    assert speed_text(speed) == "x1.243 (95 %: x1.212 to x1.270), faster"
    assert speed_text(SpeedRatio(1.0, None, "unknown")) == "x1.000, unknown"
    assert signed_duration(-1500) == "-1.50 µs"
    assert signed_duration(None) == UNKNOWN
    assert share(None, 5) == share(1, 0) == share(1, None) == UNKNOWN
    assert share(-1, 4) == "-25.0 %"
    assert flops_rate(7.3e13) == "73.0 TFLOP/s"
    assert flops_rate(2e6) == "2.00 MFLOP/s"


def test_names_break_between_their_parts_and_stay_text() -> None:
    assert breakable("aten::mm") == "aten::<wbr>mm"
    assert breakable("a/<b>_c\x1b") == "a/<wbr>&lt;b&gt;_<wbr>c·"


@given(st.text(max_size=30))
def test_a_breakable_name_adds_nothing_but_places_to_break(name: str) -> None:
    assert html.unescape(breakable(name).replace("<wbr>", "")) == plain_text(name)


def range_at(path: str) -> RangeReport:
    return RangeReport(path, 1, 1, 1, "exact")


def test_ranges_become_a_tree() -> None:
    rows = range_rows([range_at(p) for p in ("step", "step/a", "step/a/x/y", "step/b", "st")])
    assert [(row.depth, row.label, row.parent) for row in rows] == [
        (0, "step", True),
        (1, "a", True),
        (2, "x/y", False),
        (1, "b", False),
        (0, "st", False),
    ]


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), max_size=12))
def test_labels_along_a_branch_are_the_path(parts: list[list[str]]) -> None:
    paths = sorted({"/".join(names) for names in parts}, key=lambda path: path.split("/"))
    branch: list[str] = []
    for row, path in zip(range_rows([range_at(p) for p in paths]), paths, strict=True):
        branch[row.depth :] = [row.label]
        assert "/".join(branch) == path
