"""Charts: what is drawn is as large as what it stands for."""

import re
from collections import defaultdict
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from decodescope.analyzer.html.svg import CHART_WIDTH, Drawing, ticks, time_ticks
from decodescope.analyzer.html.svg_step_time import bars_svg, histogram_svg, queue_svg
from decodescope.analyzer.html.svg_timeline import MAX_STREAMS, step_svg, steps_svg
from decodescope.analyzer.html.svg_variants import rates_svg, standings_svg
from decodescope.analyzer.names.rules import FAMILIES
from decodescope.analyzer.reports.distributions import shared_bounds
from decodescope.analyzer.schema.comparison_report import Standing, VariantRates
from decodescope.analyzer.schema.kernel_report import QueueDepth
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.schema.run_report import Interval
from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.tracks.build import StepTracks
from tests.helpers.answers import answer_of
from tests.helpers.comparison_reports import ACCURACY
from tests.helpers.step_tracks import step_tracks_of

OPS_PX, EARLY_PX, GAPS_PX, PLOT_PX = 26.0, 7.0, 14.0, 962.0
ALL_FAMILIES = {f"f-{name}" for name in FAMILIES}
BOX = re.compile(r"M([-\d.]+) ([-\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z")
NAMES = ("gemm", "flash_attention", "reduce_kernel", "elementwise", "Memcpy", "?")


def timeline(
    lengths: list[tuple[int, int]], names: list[int] | None = None, streams: list[int] | None = None
) -> StepTracks:
    """Ops after one another, each (gap before it, its length); every gap is a host_wait."""
    edges = np.cumsum(np.array(lengths, dtype=np.int64).ravel())
    starts, ends = edges[::2], edges[1::2]
    gap_starts = np.concatenate(([0], ends[:-1])).astype(np.int64)
    gaps = gap_starts < starts
    return step_tracks_of(
        int(ends[-1]),
        list(zip(starts, ends, strict=True)),
        list(zip(gap_starts[gaps], starts[gaps], strict=True)),
        NAMES,
        name=names or [0] * len(starts),
        stream=streams or [7] * len(starts),
        gap_kind=[GAP_CLASSES.index("host_wait")] * int(gaps.sum()),
    )


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def areas(markup: str) -> dict[str, float]:
    """Area in square pixels by class of shape."""
    found: dict[str, float] = defaultdict(float)
    for shape in parsed(markup).iter():
        kind = shape.get("class", "")
        if shape.tag == "rect":
            found[kind] += float(shape.get("width", 0)) * float(shape.get("height", 0))
        elif shape.tag == "path":
            boxes = BOX.findall(shape.get("d", ""))
            assert boxes
            found[kind] += sum(float(width) * float(height) for _, _, width, height in boxes)
    return found


def texts(markup: str) -> list[str]:
    return [shape.text or "" for shape in parsed(markup).iter("text")]


lengths = st.lists(
    st.tuples(st.integers(0, 40_000), st.integers(1, 40_000)), min_size=1, max_size=400
)


@given(lengths, st.data())
def test_areas_are_proportional_to_times(parts: list[tuple[int, int]], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.integers(0, 5), min_size=len(parts), max_size=len(parts)))
    step = timeline(parts, names)
    found = areas(step_svg("it", step))
    px = PLOT_PX / step.length_ns
    for name, family in (("gemm", "matmul"), ("elementwise", "elementwise"), ("?", "other")):
        mine = [length for (_, length), at in zip(parts, names, strict=True) if NAMES[at] == name]
        assert found[f"f-{family}"] == pytest.approx(sum(mine) * px * OPS_PX, rel=0.02, abs=30)
    idle = sum(gap for gap, _ in parts)
    drawn = found["g-host_wait"] + found["s-host_wait"]
    assert drawn == pytest.approx(idle * px * GAPS_PX, rel=0.02, abs=30)


@given(lengths)
def test_nothing_is_drawn_outside_the_chart(parts: list[tuple[int, int]]) -> None:
    for shape in parsed(step_svg("it", timeline(parts))).iter("rect"):
        x, width = float(shape.get("x", 0)), float(shape.get("width", 0))
        assert x >= 0
        assert width >= 0
        assert x + width <= CHART_WIDTH + 0.02


@given(
    st.lists(
        st.tuples(st.integers(0, 90_000), st.integers(1, 40_000), st.integers(0, 5)),
        min_size=1,
        max_size=60,
    )
)
def test_overlapping_ops_never_cover_each_other(rows: list[tuple[int, int, int]]) -> None:
    """Full height where an op is the first to run, so the areas of a row add up to busy time; low
    for the time in which an op before it still ran."""
    ops = sorted((start, start + length, name) for start, length, name in rows)
    step = step_tracks_of(
        130_000, [(start, end) for start, end, _ in ops], (), NAMES, name=[name for *_, name in ops]
    )
    found = areas(step_svg("it", step))
    starts, ends = np.array([op[:2] for op in ops]).T
    busy = union(starts, ends).busy_ns
    px = PLOT_PX / step.length_ns
    full = sum(area for kind, area in found.items() if kind in ALL_FAMILIES)
    assert full == pytest.approx(busy * px * OPS_PX, rel=0.02, abs=30)
    early_ns = sum(end - start for start, end, _ in ops) - busy
    low = sum(area for kind, area in found.items() if kind.endswith(" early"))
    assert low <= early_ns * px * EARLY_PX + 1
    if all(end - start > 1_000 for start, end, _ in ops):
        assert low == pytest.approx(early_ns * px * EARLY_PX, rel=0.02, abs=30)


def test_the_tip_of_an_op_says_how_long_it_ran_beside_another() -> None:
    markup = step_svg("it", step_tracks_of(100, [(0, 60), (20, 100)]))
    tips = [(shape, shape.findtext("title", "")) for shape in parsed(markup).iter("rect")]
    (low, tip), (full, same) = (one for one in tips if "at 20 ns" in one[1])
    assert tip == same
    assert tip.endswith("80 ns, at 20 ns, for 40 ns beside an op before it")
    assert float(low.get("width", 0)) == pytest.approx(PLOT_PX * 0.4, abs=0.01)
    assert float(full.get("width", 0)) == pytest.approx(PLOT_PX * 0.4, abs=0.01)
    assert float(low.get("height", 0)) < float(full.get("height", 0)) / 3


def test_one_scale_keeps_proportions() -> None:
    short, long = timeline([(0, 50_000)]), timeline([(0, 1_000_000)])
    widths = [
        float(shape.get("width", 0))
        for shape in parsed(steps_svg([("short", short), ("long", long)])).iter("rect")
        if shape.get("class") == "f-matmul"
    ]
    assert widths == [pytest.approx(PLOT_PX / 20, abs=0.01), pytest.approx(PLOT_PX, abs=0.01)]


def test_many_streams_are_drawn_in_few_rows() -> None:
    parts = [(0, 1000)] * 40
    step = timeline(parts, streams=[place % 10 for place in range(40)])
    markup = step_svg("it", step)
    assert f"{10 - MAX_STREAMS} more streams" in texts(markup)
    assert areas(markup)["f-matmul"] == pytest.approx(PLOT_PX * OPS_PX, rel=0.01)


def test_a_chart_has_a_title_and_escapes_names() -> None:
    drawing = Drawing(10, "<b>", "a & b")
    drawing.text(0, 0, "</svg><script>")
    drawing.rect(0, 0, 1, 1, "f-other", 'x" onload="y')
    root = parsed(drawing.markup())
    assert (root.get("role"), root.findtext("title"), root.findtext("desc")) == (
        "img",
        "<b>",
        "a & b",
    )
    assert root.findtext("text") == "</svg><script>"
    assert root.findtext("rect/title") == 'x" onload="y'


def test_the_parts_of_a_step_fill_its_bar() -> None:
    answer = answer_of({"gate_up": 300, "attention": 500, "host_wait": 200})
    found = areas(bars_svg({"a": answer, "b": answer_of({"norm": 500})}))
    bar = found["p-gate_up"] + found["p-attention"] + found["p-host_wait"]
    assert found["p-gate_up"] == pytest.approx(bar * 0.3, rel=0.001)
    assert found["p-norm"] == pytest.approx(bar * 0.5, rel=0.001)


@pytest.mark.parametrize("is_lower_bound", [False, True])
def test_a_mark_stands_at_the_limit(is_lower_bound: bool) -> None:
    answer = answer_of(
        {"gate_up": 300, "host_wait": 700}, limit_ns=500, limit_is_lower_bound=is_lower_bound
    )
    markup = bars_svg({"a": answer})
    shapes = {shape.get("class"): shape for shape in parsed(markup)}
    left, width = (float(shapes["p-gate_up"].get(name, 0)) for name in ("x", "width"))
    mark = float(shapes["mark"].get("x1", 0))
    assert (mark - left) / width == pytest.approx(500 / 300, rel=0.001)
    assert ("limit ≥ 500 ns" if is_lower_bound else "limit 500 ns") in texts(markup)
    without = bars_svg({"a": answer_of({"gate_up": 300})})
    assert "mark" not in {shape.get("class") for shape in parsed(without)}


def test_a_histogram_stacks_its_classes() -> None:
    series = {"g-host_wait": ((1024, 30), (4096, 5)), "g-kernel_floor": ((1024, 10),)}
    markup = histogram_svg("gaps", series, shared_bounds(list(series.values())))
    found = areas(markup)
    assert found["g-host_wait"] / found["g-kernel_floor"] == pytest.approx(3.5, rel=0.01)
    assert {"40", "5", "≤ 1.02 µs", "≤ 4.10 µs"} <= set(texts(markup))
    assert shared_bounds([((2, 1),), ((16, 1),)]) == [2, 4, 8, 16]
    assert shared_bounds([]) == []


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=120), st.integers(1, 10**9))
def test_the_area_of_a_queue_is_its_depths(depths: list[int], bucket_ns: int) -> None:
    depth = QueueDepth(1.0, max(depths), 0.5, tuple(depths), bucket_ns)
    markup = queue_svg("<it>", depth)
    assert (markup is None) == (not any(depths))
    if markup is None:
        return
    root = parsed(markup)
    assert root.findtext("title") == "Queue depth of <it> over time"
    assert f"at most {max(depths):,} launched ops" in (root.findtext("desc") or "")
    (outline,) = root.iter("polygon")
    points = [tuple(map(float, point.split(","))) for point in outline.get("points", "").split(" ")]
    floor, (left, right) = points[0][1], (points[0][0], points[-1][0])
    assert points[-1][1] == floor
    assert 0 <= left < right <= CHART_WIDTH
    highest = floor - min(y for _, y in points)
    heights = [(floor - y) / highest for _, y in points[1:-1]]
    slots = [x for x, _ in points[1:-1]]
    for place, value in enumerate(depths):
        begin, end = 2 * place, 2 * place + 1
        assert heights[begin] == heights[end] == pytest.approx(value / max(depths), abs=0.001)
        assert slots[end] - slots[begin] == pytest.approx((right - left) / len(depths), abs=0.02)


def test_a_queue_without_depths_over_time_is_not_drawn() -> None:
    assert queue_svg("it", QueueDepth(1.0, 3, 0.5)) is None


def test_every_round_is_a_dot() -> None:
    variants = [
        VariantRates("a", (100.0, 101.0, 99.0), 100.0, Interval(99.0, 101.0, 0.95), None),
        VariantRates("b", (400.0,), 400.0, None, None),
    ]
    root = parsed(rates_svg(variants) or "")
    assert len(list(root.iter("circle"))) == 2 * 4
    bars = [float(s.get("width", 0)) for s in root.iter("rect") if s.get("class") == "bar"]
    assert bars[1] / bars[0] == pytest.approx(4.0, rel=0.001)


standing_lists = st.lists(
    st.tuples(st.floats(1e-3, 1e6), st.floats(-1e-15, 50), st.booleans()), min_size=2, max_size=40
)


@given(standing_lists)
def test_a_faster_variant_is_higher_and_a_closer_one_further_left(
    drawn: list[tuple[float, float, bool]],
) -> None:
    drawn.sort(key=lambda point: -point[0])
    standings = [
        Standing(f"v{number}", rate, kl, () if free else ("w",))
        for number, (rate, kl, free) in enumerate(drawn)
    ]
    markup = standings_svg(standings, [])
    assert markup is not None
    root = parsed(markup)
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    dots = [
        (float(dot.get("cx", 0)), float(dot.get("cy", 0)), dot.get("class", ""))
        for dot in root.iter("circle")
    ]
    assert [kind for _, _, kind in dots] == ["dot" if free else "hollow" for *_, free in drawn]
    for (x, y, _), (rate, kl, _) in zip(dots, drawn, strict=True):
        assert 0 <= x <= width
        assert 0 <= y <= height
        for (other_x, other_y, _), (other_rate, other_kl, _) in zip(dots, drawn, strict=True):
            assert rate <= other_rate or y <= other_y
            assert kl <= other_kl or x >= other_x
    labels = [
        float(text.get("y", 0)) for text in root.iter("text") if (text.text or "").startswith("v")
    ]
    assert len(labels) == len(drawn)
    assert all(below - above >= 14.9 for above, below in pairwise(labels))
    assert labels[-1] <= height


def test_the_frontiers_line_joins_the_unbeaten_and_the_text_says_what_is_drawn() -> None:
    standings = [
        Standing("fp8", 2000.0, 1e-2, ()),
        Standing("w8a8", 1900.0, 5e-2, ("fp8",)),
        Standing("bf16", 1000.0, 1e-4, ()),
    ]
    known = replace(ACCURACY, kl=0.01, kl_interval=Interval(0.008, 0.0125, 0.95))
    rates = [VariantRates("fp8", (), 2000.0, Interval(1900.0, 2100.0, 0.95), known)]
    root = parsed(standings_svg(standings, rates) or "")
    (fast, _, slow) = ((dot.get("cx"), dot.get("cy")) for dot in root.iter("circle"))
    axes = [line for line in root.iter("line") if line.get("class") == "axis"]
    down, left = ([line.get(name) for name in ("x1", "y1", "x2", "y2")] for line in axes[-2:])
    assert down == [*fast, fast[0], slow[1]]
    assert left == [fast[0], slow[1], *slow]
    (band,) = root.iter("rect")
    top = float(band.get("y", 0))
    assert top < float(fast[1] or 0) < top + float(band.get("height", 0))
    said = root.get("aria-label") or ""
    assert "fp8: 2,000 tokens/s, KL 0.01 (0.008 to 0.0125) nats, beaten by nothing" in said
    assert "w8a8: 1,900 tokens/s, KL 0.05 nats, beaten by fp8" in said
    assert standings_svg([], rates) is None


@given(st.floats(1e-6, 1e15), st.integers(2, 12))
def test_ticks_are_round_and_few(limit: float, most: int) -> None:
    found = ticks(limit, most)
    assert found[0] == 0
    assert found[-1] <= limit * (1 + 1e-9)
    assert len(found) <= most + 1
    assert len(found) >= 2 or most < 3
    for value in found[1:2]:
        assert f"{value:e}"[0] in "125"


def test_ticks_of_time_share_a_unit() -> None:
    assert time_ticks(15_800_000)[1] == (2e6, "2 ms")
    assert time_ticks(1_560_000)[1] == (2e5, "200 µs")
    assert ticks(0) == [0.0]
