"""Level of detail and small drawing functions, against their definitions."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.cells import cell_len

from decodescope.analyzer.text.plain import plain_line, to_ascii
from decodescope.tui.commands import Command
from decodescope.tui.model.kernel_details import DetailLine
from decodescope.tui.model.notices import Banner
from decodescope.tui.model.view import Choice, SpeedSample, View
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.around import (
    BannerPanel,
    TabsPanel,
    banner_rows,
    fitting_keys,
    headlines,
    hint_has_own_row,
)
from decodescope.tui.panels.details import DetailsData, DetailsPanel
from decodescope.tui.panels.live_run import (
    HOLD_S,
    SPAN_S,
    VariantsData,
    VariantsPanel,
    axis_top,
    first_shown,
    middle_label,
    slice_seconds,
    sliced,
    switches,
)
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Empty, wrapped, wrapped_tail
from decodescope.tui.style.palette import ASCII, UNICODE, Inks, column, horizontal_bar

fractions = st.floats(0, 1)
glyph_sets = st.sampled_from([UNICODE, ASCII])


@given(fractions, st.integers(1, 6), glyph_sets)
def test_a_column_fills_from_below(fraction, rows, glyphs):
    cells = column(fraction, rows, glyphs)
    heights = [glyphs.ramp.index(cell) for cell in cells]
    top = len(glyphs.ramp) - 1
    assert heights == sorted(heights)
    assert sum(0 < height < top for height in heights) <= 1
    if fraction > 0:
        assert abs(sum(heights) - fraction * rows * top) <= 1
    else:
        assert sum(heights) == 0


@given(st.floats(-1, 2), st.integers(-1, 40), glyph_sets)
def test_a_horizontal_bar_has_its_width(fraction, cells, glyphs):
    bar = horizontal_bar(fraction, cells, glyphs)
    assert cell_len(bar) == max(cells, 0)
    if cells > 0:
        assert bar.strip() == "" or fraction > 0
        assert (bar == ("█" if glyphs.unicode else "=") * cells) or fraction < 1


@given(st.text())
def test_ascii_keeps_the_cells(text):
    shown = to_ascii(text)
    assert shown.isascii()
    assert cell_len(shown) == cell_len(text) or not text.isprintable()


def test_every_glyph_of_the_screens_has_an_ascii_equivalent():
    used = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉■▸▲╭╮╰╯─│╵·…\u2013\u00d7÷µ"
    assert "?" not in to_ascii(used)


@given(st.text(), st.integers(0, 60), st.integers(0, 12))
def test_wrapped_text_fits_and_ends_with_the_end(text, width, height):
    lines = wrapped_tail(text, width, height)
    assert len(lines) <= height
    for line in lines:
        assert cell_len(line) <= max(width, 2)
        assert line.isprintable()


def test_a_figure_stays_with_its_unit():
    assert wrapped("median 10.7 µs, 3,141 GB/s, 5 starts", 12) == [
        "median",
        "10.7 µs,",
        "3,141 GB/s,",
        "5 starts",
    ]


def test_wrapping_breaks_between_words_and_keeps_indentation():
    assert wrapped_tail("    one two three", 11, 5) == ["    one two", "three"]
    assert wrapped_tail("a\n\n  b", 10, 5) == ["a", "", "  b"]
    assert wrapped_tail("abcdefgh", 3, 5) == ["abc", "def", "gh"]


@st.composite
def histories(draw):
    at, samples = 100.0, []
    for _ in range(draw(st.integers(1, 60))):
        at += draw(st.floats(0.05, 20))
        samples.append(SpeedSample(at, draw(st.floats(0, 1e4)), draw(st.integers(0, 2))))
    return tuple(samples)


@given(histories(), st.integers(1, 120), st.sampled_from([0.25, 1.0, 5.0]))
def test_each_slice_shows_its_last_sample_and_holes_stay_empty(samples, columns, slice_s):
    shown = sliced(samples, columns, slice_s)
    newest = int(samples[-1].at // slice_s)
    own: dict[int, SpeedSample] = {}
    for sample in samples:
        own[columns - 1 - (newest - int(sample.at // slice_s))] = sample
    assert len(shown) == columns
    assert shown[-1] == samples[-1]
    for place, sample in enumerate(shown):
        if place in own:
            assert sample == own[place]
        elif sample is not None:
            begin = (newest - (columns - 1 - place)) * slice_s
            assert begin - sample.at <= HOLD_S
            following = min(s.at for s in samples if s.at > sample.at)
            assert following - sample.at <= HOLD_S


@given(histories(), st.integers(2, 200))
def test_the_slices_hold_the_whole_history_up_to_the_span(samples, columns):
    slice_s = slice_seconds(samples, columns)
    span = min(samples[-1].at - samples[0].at, SPAN_S)
    assert slice_s * (columns - 1) >= span


@given(st.floats(0.01, 1e6), st.integers(1, 60))
def test_the_axis_is_labelled_between_its_ends_only_at_a_round_value(peak, height):
    top = axis_top(peak)
    row = middle_label(top, height)
    if row is not None:
        assert 2 <= row < height - 2
        digits = f"{top * (1 - row / height):.9e}".partition("e")[0].replace(".", "").rstrip("0")
        assert len(digits) <= 2
    if height >= 6 and height % 2 == 0 and f"{top:.0e}"[0] in "125":
        assert row == height // 2


def test_a_mark_is_where_the_variant_changes():
    first, second = SpeedSample(1.0, 5.0, 0), SpeedSample(2.0, 6.0, 1)
    assert switches([None, first, first, None, second, first]) == [(1, 0), (4, 1), (5, 0)]


@given(st.integers(1, 40), st.integers(-1, 39), st.integers(1, 12))
def test_the_current_choice_is_among_the_shown(total, current, rows):
    assume(current < total)
    first = first_shown(total, current, rows)
    assert 0 <= first <= max(total - rows, 0)
    if current >= 0:
        assert first <= current < first + rows


@given(st.integers(0, 120))
def test_keys_fit_and_the_important_ones_stay(width):
    hints = tuple(Command("quit", "k" * n, label="label", priority=n) for n in range(1, 8))
    kept = fitting_keys(hints, width)
    assert sum(len(hint.shown_key) + len(hint.label) + 3 for hint in kept) <= width
    assert kept == hints[: len(kept)]


WORDS = st.lists(st.text("abcxyz", min_size=1, max_size=30), min_size=1, max_size=40)


@given(WORDS, st.integers(0, 12), st.integers(1, 300), st.integers(1, 100))
def test_a_banner_takes_at_most_a_quarter(words, details, width, height):
    banner = Banner("error", " ".join(words), ("line",) * details, "hint")
    assert 1 <= banner_rows(banner, width, height) <= max(1, height // 4)


@given(WORDS, st.integers(0, 6), st.integers(3, 300), st.integers(1, 12))
def test_a_banner_draws_what_fits_and_loses_no_words_when_all_does(words, details, width, height):
    banner = Banner("error", " ".join(words), tuple("line" * n for n in range(details)), "hint")
    panel = BannerPanel(Brush(Inks(), UNICODE), View("live", "", banner=banner))
    rows = panel.draw(banner, width, height).rows
    assert 1 <= len(rows) <= height
    assert all(row.cells <= width for row in rows)
    wanted = len(headlines(banner, width)) + details + hint_has_own_row(banner, width)
    if height >= wanted:
        shown = "".join(segment.text for row in rows for segment in row.segments)
        assert "".join(words) in "".join(shown.replace("▌", "").split())


@given(st.integers(1, 200), st.sampled_from(["box", "rule"]))
def test_a_panel_without_data_says_all_of_why_in_any_width(width, frame):
    why = "variants are measured in a live run; d compares this recording with another file"

    class Nothing(Panel[None]):
        NAME = "nothing"

        def pick(self, view):
            return Empty("A title", why)

    brush = Brush(Inks(), UNICODE, frame)
    panel = Nothing(brush, View("trace", "a"))
    rows = panel._sheet(width, 99).rows
    assert all(row.cells <= width for row in rows)
    words = "".join(segment.text for row in rows for segment in row.segments)
    assert words.replace(" ", "") == why.replace(" ", "")


@given(st.integers(24, 120), st.integers(0, 9))
def test_variants_keep_their_names_before_what_is_said_of_them(width, current):
    names = ("eager", "fused+graph", "fused+graph+a", "fused+graph+b")
    choices = tuple(Choice(name, "as people run it", "not recorded") for name in names)
    panel = VariantsPanel(Brush(Inks(), UNICODE, "rule"), View("replay", "a"))
    rows = panel.draw(VariantsData("Variants", choices, current % 4), width, 9).rows
    for name, row in zip(names, rows, strict=True):
        text = "".join(segment.text for segment in row.segments)
        assert f" {name} " in text
        assert "\u2013" in text
        assert row.cells == width


@given(
    st.text("aµ語 <,>::\x1b", min_size=1, max_size=300) | st.just("k" * 100_000), st.integers(8, 90)
)
def test_a_long_name_takes_two_lines_and_is_copied_whole(name, width):
    lines = (DetailLine("", name, fold=True),)
    panel = DetailsPanel(Brush(Inks(), UNICODE, "rule"), View("trace", "a"))
    rows = panel.draw(DetailsData(lines, "Op"), width, 999).rows
    texts = ["".join(segment.text for segment in row.segments) for row in rows]
    assert len(texts) <= 2
    assert all(row.cells <= width for row in rows)
    shown = "".join(texts)
    if cell_len(plain_line(name)) < 2 * width:
        assert shown == plain_line(name)
    else:
        begin, _, end = shown.partition("…")
        assert plain_line(name).startswith(begin)
        assert plain_line(name).endswith(end)
        assert cell_len(shown) >= 2 * width - 4
    assert panel.as_text(DetailsData(lines, "Op")) == [f" {name}".rstrip()]


@given(
    st.lists(st.tuples(st.sampled_from(["on", "step", "launch_latency", "x" * 30]), st.just("t"))),
    st.integers(1, 120),
)
def test_texts_of_details_begin_below_each_other(found, width):
    lines = tuple(DetailLine(label, text) for label, text in found)
    panel = DetailsPanel(Brush(Inks(), UNICODE, "rule"), View("trace", "a"))
    rows = panel.draw(DetailsData(lines, "Op"), width, 999).rows
    texts = ["".join(segment.text for segment in row.segments) for row in rows]
    assert all(row.cells <= width for row in rows)
    if width >= 48:
        # A label of over half the width has the line above its text.
        short = [text.rstrip() for text in texts if text[0] not in "xt"]
        assert len({text.rindex("t") for text in short}) <= 1


@pytest.mark.parametrize("width", [120, 91, 90, 89, 80, 73, 72, 71, 60, 30])
def test_the_tabs_have_names_from_73_cells_on(width: int) -> None:
    tabs = [(page.name, page.key, page.label) for page in PAGES]
    for page in PAGES:
        panel = TabsPanel(Brush(Inks(), UNICODE), View("trace", ""), tabs)
        (row,) = panel.draw(page.name, width, 1).rows
        shown = "".join(segment.text for segment in row.segments)
        named = [other.label for other in PAGES if f" {other.key} {other.label}" in shown]
        assert named == ([other.label for other in PAGES] if width >= 73 else [page.label])
        assert row.cells <= max(width, 60)
