"""The cells of tracks, the axis and the legend, against their definitions."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.cells import cell_len

from decodescope.analyzer import analyze
from decodescope.analyzer.tracks.build import find_tracks
from decodescope.analyzer.tracks.track import NONE, Slices, Track, TrackKey, track_of
from decodescope.tui.model.look import Look, look_at
from decodescope.tui.panels.sheet import Row
from decodescope.tui.panels.timeline.axis import axis, exact_time, legend, scale_step_ns
from decodescope.tui.panels.timeline.cells import bar_cells, gap_cells, gap_levels, part_cells
from decodescope.tui.panels.timeline.drawing import Canvas, shown_tracks, track_heights
from decodescope.tui.style.palette import ASCII, UNICODE, Inks
from tests.helpers.kineto_events import call, op, span, trace_of

US, MS, S = 10**3, 10**6, 10**9
glyph_sets = st.sampled_from([UNICODE, ASCII])


def track(*slices: tuple[int, int], kind: str = "stream") -> Track:
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    rows = np.arange(len(start))
    return track_of(
        TrackKey(kind, 0), "it", Slices(start, end, rows, rows, rows.astype(np.int8) % 3)
    )


@st.composite
def disjoint(draw):
    at, found = 0, []
    for _ in range(draw(st.integers(0, 10))):
        at += draw(st.integers(0, 40))
        found.append((at, at := at + draw(st.integers(1, 90))))
    return found


edges = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(
    lambda one: np.arange(0, one[0] * one[1] + 1, one[1], dtype=np.int64)
)


@given(disjoint(), edges, st.integers(1, 3), glyph_sets)
def test_a_bar_is_empty_full_or_between(found, cut, rows, glyphs):
    one = track(*found)
    columns = one.columns(cut)
    cells = bar_cells(one, columns, cut, rows, glyphs)
    assert len(cells.text) == rows
    full, empty = {glyphs.ramp[-1], glyphs.shade}, glyphs.ramp[0]
    steps = {char: step for step, char in enumerate(glyphs.ramp)}
    steps[glyphs.shade] = steps[glyphs.ramp[-1]]
    for place, busy in enumerate(columns.busy.tolist()):
        begin, after = cut[place : place + 2].tolist()
        covered = sum(max(min(end, after) - max(start, begin), 0) for start, end in found)
        assert busy == covered / (after - begin)
        shown = [line[place] for line in cells.text]
        if set(shown) <= set(steps):
            most = rows * (len(glyphs.ramp) - 1)
            assert abs(sum(steps[char] for char in shown) / most - busy) <= 1 / most
        else:
            eighths = " ▏▎▍▌▋▊▉".index(shown[0]) / 8
            assert abs((1 - eighths if cells.swapped[place] else eighths) - busy) <= 1 / 8
        assert all(cell_len(char) == 1 for char in shown)
        assert (shown == [empty] * rows) == (busy == 0)
        assert (set(shown) <= full) == (busy == 1)
        assert (cells.kind[place] == NONE) == (busy == 0)
        if cells.swapped[place]:
            assert 0 < busy < 1
            assert glyphs.unicode


@given(disjoint(), edges)
def test_the_edges_of_a_bar_are_exact_to_an_eighth_of_a_cell(found, cut):
    one = track(*found)
    columns = one.columns(cut)
    cells = bar_cells(one, columns, cut, 1, UNICODE)
    blocks = " ▏▎▍▌▋▊▉"
    for place, (begin, end) in enumerate(itertools.pairwise(cut.tolist())):
        inside = [(s, e) for s, e in found if s < end and e > begin]
        if len(inside) != 1:
            continue
        start, stop = inside[0]
        char = cells.text[0][place]
        before, after = max(2 * begin - end, cut[0]), min(2 * end - begin, cut[-1])
        if start <= before and begin < stop < end:
            assert not cells.swapped[place]
            assert abs(blocks.index(char) / 8 - (stop - begin) / (end - begin)) <= 1 / 8
        elif stop >= after and begin < start < end:
            assert cells.swapped[place]
            assert abs(blocks.index(char) / 8 - (start - begin) / (end - begin)) <= 1 / 8


@given(disjoint(), edges)
def test_labels_are_inside_what_they_name(found, cut):
    one = track(*found)
    for row, start, room, number in bar_cells(one, one.columns(cut), cut, 1, UNICODE).labels:
        begin, end = found[number]
        assert row == 0
        assert room >= 2
        assert begin <= cut[start]
        assert cut[start + room] <= end


def test_a_gap_of_26_ms_does_not_look_like_one_of_1_ms():
    """The ramp used to end at 1 ms."""
    lengths = (1 * US, 5 * US, 50 * US, 500 * US, 1 * MS, 26 * MS, 1 * S)
    assert gap_levels(np.array(lengths)).tolist() == [1, 2, 3, 4, 5, 6, 7]
    ends = np.cumsum(np.array(lengths) + 10)
    gaps = track(*zip((ends - lengths).tolist(), ends.tolist(), strict=True), kind="gap")
    cut = np.append((ends - lengths), ends[-1:])
    cells = gap_cells(gaps, gaps.columns(cut), UNICODE)
    assert "".join(cells.text[0]) == "▁▂▃▄▅▆▇"


@given(st.integers(1, 10**11), st.integers(1, 10**11), glyph_sets)
def test_a_longer_gap_is_never_drawn_smaller(short, long, glyphs):
    assume(short <= long)
    low, high = gap_levels(np.array([short, long])).tolist()
    assert 1 <= low <= high <= len(glyphs.ramp) - 2


@given(st.integers(1, 10**12), st.integers(1, 300))
def test_scale_labels_are_round_and_apart(span_ns, columns):
    step = scale_step_ns(span_ns, columns)
    assert str(step).rstrip("0") in ("1", "2", "5")
    assert step * columns >= span_ns * 12 or step == 1


@pytest.mark.parametrize(
    ("ns", "step", "text"),
    [
        (0, 1, "0 ns"),
        (72_345_678, 1_000_000, "72 ms"),
        (72_345_678, 20, "72.34568 ms"),
        (1_500, 100, "1.5 µs"),
        (12_000_000_000, 50_000_000, "12.00 s"),
    ],
)
def test_a_time_has_the_digits_that_tell_neighbours_apart(ns, step, text):
    assert exact_time(ns, step) == text


@given(
    st.lists(st.sampled_from(["stream", "part", "gap", "host", "range"]), max_size=20),
    st.integers(1, 60),
    st.booleans(),
)
def test_tracks_never_take_more_rows_than_there_are(kinds, height, letters):
    kinds = kinds[:height]
    heights = track_heights(kinds, height, letters)
    assert sum(heights) <= height
    if letters and kinds.count("gap") and height >= len(kinds) + kinds.count("gap"):
        assert all(high == 2 for kind, high in zip(kinds, heights, strict=True) if kind == "gap")
    assert all(1 <= high <= 8 for high in heights)
    parts = [high for kind, high in zip(kinds, heights, strict=True) if kind == "part"]
    if parts:
        assert parts == sorted(parts, reverse=True)
        assert height - sum(heights) <= max(kinds.count("stream"), 0) or parts[-1] == 4


def look(*events, columns: int = 40) -> Look:
    return look_at(find_tracks(analyze(trace_of(*events))), columns)


def text(row) -> str:
    return "".join(segment.text for segment in row.segments)


def canvas(one: Look) -> Canvas:
    return Canvas(one, Inks(), UNICODE, 12)


def drawn(one: Look, height: int = 8) -> dict[str, str]:
    """The rows of the tracks by their titles."""
    return {text(row)[:12].strip(): text(row)[12:] for row in rows_of(one, height)}


def rows_of(one: Look, height: int) -> list[Row]:
    places, kinds = zip(*shown_tracks(one, height, True), strict=True)
    heights = track_heights(kinds, height, True)
    return canvas(one).tracks(list(zip(places, heights, strict=True)), False)


def test_600_kernels_before_a_gap_of_26_ms_are_told_apart_when_gaps_are_compressed():
    events = [call(0, 1_000, 1)]
    events += [op(at, at + 3 * US, 1, name=f"k{at}") for at in range(0, 600 * 4 * US, 4 * US)]
    events.append(op(600 * 4 * US + 26 * MS, 600 * 4 * US + 26 * MS + 3 * US, 1))
    one = look(*events, columns=100)
    one = one.fill(*one.tracks.world)
    before = one.column_of(600 * 4 * US)
    squeezed = one.with_compression(True)
    after = squeezed.column_of(600 * 4 * US)
    assert before < 10
    assert after > 60
    cuts = text(axis(canvas(squeezed)))
    assert "~" in cuts
    assert "~" not in text(axis(canvas(one)))


def test_a_row_is_as_wide_as_its_columns_with_wide_and_joined_characters():
    name = "カーネル e\u0301 核"
    one = look(call(0, 5, 1), op(10, 1_000, 1, name=name), op(1_010, 1_020, 1, name="b"))
    for row in rows_of(one, 8):
        assert row.cells == 12 + 40
        assert cell_len(text(row)) == 52


def test_letters_say_without_colours_what_a_bar_and_a_gap_are():
    one = look(call(0, 5, 1), op(10, 400, 1, name="gemm"), op(800, 1_200, 1, name="flash_fwd"))
    rows = drawn(one)
    assert "".join(dict.fromkeys(rows["what"])) == "M─ A"
    assert set(rows["why"].strip()) == {"l", "─"}


def test_a_range_without_room_for_its_name_shows_its_number():
    one = look(
        span(0, 50, "layer.10"),
        span(60, 90, "layer.11"),
        call(10, 20, 1),
        call(70, 80, 2),
        op(1_000, 1_400, 1, name="gemm"),
        op(1_400, 1_800, 2, name="gemm"),
        columns=12,
    )
    assert drawn(one)["range"].replace("▓", "█") == "10████11████"
    assert drawn(replace(one, columns=40))["range"].startswith("layer.10")


@given(st.lists(st.integers(1, 90), min_size=2, max_size=9), st.integers(1, 30), glyph_sets)
def test_slices_of_one_kind_without_a_gap_are_told_apart_at_every_zoom(lengths, width, glyphs):
    ends = list(itertools.accumulate(lengths))
    found = list(zip([0, *ends[:-1]], ends, strict=True))
    one = track(*found)
    cut = np.arange(0, ends[-1] + width, width, dtype=np.int64)
    columns = one.columns(cut)
    cells = bar_cells(one, columns, cut, 1, glyphs)
    owners = [
        [i for i, (start, end) in enumerate(found) if start < after and end > begin]
        for begin, after in itertools.pairwise(cut.tolist())
    ]
    for place in range(1, len(owners)):
        same = owners[place] == owners[place - 1] and len(owners[place]) == 1
        assert cells.begins[place] == (not same)
        if columns.busy[place] == 1:
            assert (cells.text[0][place] == cells.text[0][place - 1]) == same


@given(disjoint(), edges, st.integers(1, 3), glyph_sets)
def test_the_names_of_a_part_cover_no_bar(found, cut, rows, glyphs):
    one = track(*found, kind="part")
    columns = one.columns(cut)
    cells = part_cells(one, columns, cut, rows, glyphs)
    assert len(cells.text) == rows
    taken = np.zeros(len(columns.busy), dtype=int)
    for row, start, room, number in cells.labels:
        assert row == 0
        assert start + room <= len(taken)
        assert cut[start] >= found[number][1] if rows == 1 else cut[start] <= found[number][0]
        taken[start : start + room] += 1
        assert set(cells.text[0][start : start + room].tolist()) == {" "}
    assert (taken <= 1).all()


@pytest.mark.parametrize("height", [5, 12, 30])
def test_parts_have_rows_where_some_are_left_and_something_of_them_is_visible(height):
    names = ("gemm", "flash_fwd", "rmsnorm", "silu_and_mul")
    events = [op(at, at + 90 + 10 * i, 1, name=names[i]) for i, at in enumerate((0, 200, 400, 600))]
    one = look(call(0, 5, 1), *events)
    one = one.fill(150, 700)
    shown = shown_tracks(one, height, False)
    places = [place for place, _ in shown]
    parts = [one.tracks.tracks[place] for place, kind in shown if kind == "part"]
    assert one.cursor in places
    assert len(places) <= max(height, 3)
    fitting = {5: 1, 12: 3, 30: 3}[height]
    assert [track.title for track in parts] == ["V activation", "N norm", "A attention"][:fitting]


def test_ops_that_fit_into_no_sub_row_are_counted():
    events = [op(at, at + 500, 1, name=f"beside_{at}") for at in range(0, 70, 10)]
    one = look(call(0, 5, 1), *events, op(900, 1_000, 1, name="alone"))
    rows = drawn(one, height=20)
    assert [title for title in rows if title.startswith(("str", "+")) or "more" in title] == [
        "str 7",
        "+1",
        "+2",
        "+3",
        "3 more",
    ]
    assert "3 more" not in drawn(one.fill(600, 1_000), height=20)


def test_a_legend_names_what_was_drawn_and_counts_what_has_no_room():
    names = ("gemm", "flash_fwd", "rmsnorm", "silu_and_mul")
    events = [op(at, at + 150, 1, name=names[i]) for i, at in enumerate((0, 200, 400, 600))]
    one = canvas(look(call(0, 5, 1), *events))
    assert [text(row).strip() for row in legend(one, 52, 1)] == [""]
    one.tracks([(place, 1) for place, _ in enumerate(one.look.tracks.tracks)], False)
    wide = "  ".join(text(row).strip() for row in legend(one, 200, 1))
    for entry in (
        "M matmul",
        "A attention",
        "N norm",
        "V activation",
        "l launch_latency",
        "gaps ▁",
    ):
        assert entry in wide
    for width in range(0, 60, 3):
        for most in (1, 2, 3):
            rows = legend(one, width, most)
            assert len(rows) <= most
            assert all(row.cells <= max(width, 12) for row in rows)
    assert text(legend(one, 44, 1)[0]).rstrip().endswith("+4")
