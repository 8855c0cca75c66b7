"""How the page words figures."""

import html

from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.html.page import breakable
from decodescope.analyzer.schema.comparison_report import SpeedRatio
from decodescope.analyzer.schema.run_report import Interval
from decodescope.analyzer.text.formatting import UNKNOWN, flops_rate, signed_duration
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.words import speed_text


def test_figures_as_text() -> None:
    speed = SpeedRatio(1.2431, Interval(1.21234, 1.27, 0.95), "faster")
    assert speed_text(speed) == "x1.243 (95 %: x1.212 to x1.270), faster"
    assert speed_text(SpeedRatio(1.0, None, "unknown")) == "x1.000, no interval"
    assert signed_duration(-1500) == "-1.50 µs"
    assert signed_duration(None) == UNKNOWN
    assert flops_rate(7.3e13) == "73.0 TFLOP/s"
    assert flops_rate(2e6) == "2.00 MFLOP/s"


def test_names_break_between_their_parts_and_stay_text() -> None:
    assert breakable("aten::mm") == "aten::<wbr>mm"
    assert breakable("a/<b>_c\x1b") == r"a/<wbr>&lt;b&gt;_<wbr>c\x1b"


@given(st.text(max_size=30))
def test_a_breakable_name_only_adds_line_breaks(name: str) -> None:
    assert html.unescape(breakable(name).replace("<wbr>", "")) == plain_line(name)
