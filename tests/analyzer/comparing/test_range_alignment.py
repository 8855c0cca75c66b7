"""Ranges of two reports side by side: layers together, fusion, and nothing lost."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.comparing.range_alignment import align_ranges
from decodescope.analyzer.schema.comparison_report import Change, RangeChange
from decodescope.analyzer.schema.report import RangeReport
from tests.helpers.comparison_reports import range_of

FIGURES = ("gpu_ns", "idle_ns", "gpu_ops", "launch_calls")


def rows_of(
    base: Sequence[RangeReport], other: Sequence[RangeReport], steps: tuple[int, int] = (1, 1)
) -> dict[str, RangeChange]:
    rows = align_ranges(base, other, *steps)
    assert len({row.path for row in rows}) == len(rows)
    return {row.path: row for row in rows}


def layers(parts: dict[str, int], count: int = 2) -> list[RangeReport]:
    """`step` with `count` equal layers of these parts."""
    whole = sum(parts.values())
    reports = [range_of("step", whole * count)]
    for number in range(count):
        reports.append(range_of(f"step/layer.{number}", whole))
        reports += [range_of(f"step/layer.{number}/{name}", ns) for name, ns in parts.items()]
    return reports


def test_layers_are_summed_and_divided_by_the_steps() -> None:
    base = layers({"attention": 30, "mlp": 60}, count=4)
    other = layers({"attention": 10, "mlp": 50}, count=2)
    rows = rows_of(base, other, steps=(2, 1))
    assert list(rows) == ["step", "step/layer.*", "step/layer.*/mlp", "step/layer.*/attention"]
    assert rows["step/layer.*/mlp"].gpu_ns == Change(4 * 60 / 2, 2 * 50)
    assert rows["step/layer.*"].gpu_ops == Change(2.0, 2.0)
    assert all(row.replaced == () for row in rows.values())


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("layer.3", "layer.*"),
        ("LlamaDecoderLayer_12", "LlamaDecoderLayer_*"),
        ("h2", "h2"),
        ("layer.3+layer.4", "layer.*+layer.*"),
        ("v1.5x", "v1.5x"),
    ],
)
def test_which_numbers_are_layers(name: str, together: str) -> None:
    assert list(rows_of([range_of(name, 5)], [range_of(name, 5)])) == [together]


def test_a_fused_range_is_compared_with_the_siblings_it_names() -> None:
    base = layers({"norm": 10, "qkv": 40, "rope": 7, "mlp": 60})
    other = layers({"norm+qkv+rope": 30, "mlp": 60})
    row = rows_of(base, other)["step/layer.*/norm+qkv+rope"]
    assert row.replaced == ("step/layer.*/norm", "step/layer.*/qkv", "step/layer.*/rope")
    assert row.gpu_ns == Change(2 * 57, 2 * 30)
    assert row.gpu_ops == Change(6, 2)
    assert rows_of(base, other)["step/layer.*/mlp"].replaced == ()


def test_a_part_that_keeps_its_own_name_joins_the_comparison() -> None:
    base = layers({"attention": 30, "post_norm": 5, "mlp": 60, "input_norm": 5})
    other = layers({"attention": 28, "attention+post_norm": 3, "mlp": 55, "mlp+input_norm": 4})
    other.append(range_of("step/layer.0/input_norm", 5))
    rows = rows_of(base, other)
    assert rows["step/layer.*/attention+post_norm"].gpu_ns == Change(70, 62)
    assert rows["step/layer.*/mlp+input_norm"].gpu_ns == Change(130, 123)
    assert len(rows) == 4


def test_undone_fusion_is_one_row_too() -> None:
    base, other = layers({"norm+mlp": 50}), layers({"norm": 10, "mlp": 70})
    row = rows_of(base, other)["step/layer.*/norm+mlp"]
    assert row.gpu_ns == Change(100, 160)
    assert row.replaced == ("step/layer.*/norm+mlp",)


def test_one_fusion_against_another() -> None:
    base = layers({"a+b": 10, "c": 20, "d": 3})
    other = layers({"a": 10, "b+c": 15, "d": 3})
    rows = rows_of(base, other)
    assert rows["step/layer.*/a+b+c"].gpu_ns == Change(60, 50)
    assert rows["step/layer.*/d"].gpu_ns == Change(6, 6)


def test_equal_fusion_on_both_sides_is_compared_range_by_range() -> None:
    parts = {"mlp": 50, "mlp+norm": 4, "norm": 2}
    rows = rows_of(layers(parts), layers(parts))
    assert {path for path in rows if path.count("/") == 2} == {
        f"step/layer.*/{name}" for name in parts
    }
    assert all(row.gpu_ns.base == row.gpu_ns.other for row in rows.values())


def test_a_fused_range_without_one_of_its_parts_has_no_partner() -> None:
    base = [*layers({"norm": 10, "mlp": 60}), range_of("step/final_norm", 8)]
    other = layers({"norm": 9, "mlp": 50, "mlp+final_norm": 6})
    rows = rows_of(base, other)
    assert rows["step/layer.*/mlp+final_norm"].gpu_ns == Change(None, 12)
    assert rows["step/layer.*/mlp"].gpu_ns == Change(120, 100)
    assert rows["step/final_norm"].gpu_ns == Change(8, None)


def test_ranges_of_one_side_are_listed_without_their_children() -> None:
    base = layers({"q_proj": 10})
    other = [range_of("step", 50), range_of("step/(graph replay)", 50)]
    rows = rows_of(base, other)
    assert rows["step"].gpu_ns == Change(20, 50)
    assert rows["step/layer.*"].gpu_ns == Change(20, None)
    assert rows["step/(graph replay)"].launch_calls == Change(None, 1)
    assert "step/layer.*/q_proj" not in rows


def test_children_of_a_part_that_keeps_its_name_are_still_compared() -> None:
    base = [range_of("mlp", 60), range_of("mlp/up", 40), range_of("norm", 5)]
    other = [range_of("mlp", 50), range_of("mlp/up", 38), range_of("mlp+norm", 4)]
    rows = rows_of(base, other)
    assert list(rows) == ["mlp+norm", "mlp/up"]
    assert rows["mlp/up"].gpu_ns == Change(40, 38)


def test_a_name_may_contain_a_slash() -> None:
    base = [range_of("model/forward", 9), range_of("model/forward/a", 4)]
    rows = rows_of(base, [range_of("model/forward", 7)])
    assert rows["model/forward"].gpu_ns == Change(9, 7)
    assert rows["model/forward/a"].gpu_ns == Change(4, None)


def test_names_with_a_stray_plus_are_names() -> None:
    rows = rows_of([range_of("a+", 1), range_of("operator++", 2), range_of("a", 3)], [])
    assert set(rows) == {"a+", "operator++", "a"}
    assert align_ranges([], [], 1, 1) == ()


def test_very_deep_ranges_are_aligned() -> None:
    deep = [range_of("/".join("d" * depth), 1) for depth in range(1, 1500)]
    assert len(align_ranges(deep, deep, 1, 1)) == len(deep)


NAMES = st.lists(
    st.sampled_from(["a", "b", "c", "a+b", "b+c", "a+b+c", "layer.0", "layer.1", "c+x", "x"]),
    unique=True,
    max_size=5,
)


@st.composite
def trees(draw: st.DrawFn, prefix: str = "", depth: int = 3) -> list[RangeReport]:
    """Ranges with children, the figures of each drawn on their own."""
    reports = []
    for name in draw(NAMES):
        figures = draw(st.tuples(*[st.integers(0, 1000)] * 4))
        path = prefix + name
        reports.append(range_of(path, *figures))
        if depth > 1 and draw(st.booleans()):
            reports += draw(trees(f"{path}/", depth - 1))
    return reports


@given(base=trees(), other=trees(), steps=st.tuples(st.integers(1, 4), st.integers(1, 4)))
@settings(max_examples=65, deadline=None)
def test_sums_of_the_outermost_rows_are_the_sums_of_the_ranges(
    base: list[RangeReport], other: list[RangeReport], steps: tuple[int, int]
) -> None:
    top = [row for row in align_ranges(base, other, *steps) if "/" not in row.path]
    for figure in FIGURES:
        for side, reports, count in (("base", base, steps[0]), ("other", other, steps[1])):
            total = sum(getattr(one, figure) for one in reports if "/" not in one.path) / count
            found = sum(getattr(getattr(row, figure), side) or 0.0 for row in top)
            assert found == pytest.approx(total)


@given(base=trees(), other=trees())
@settings(max_examples=65, deadline=None)
def test_swapping_the_sides_swaps_the_rows(
    base: list[RangeReport], other: list[RangeReport]
) -> None:
    there, back = align_ranges(base, other, 1, 1), align_ranges(other, base, 1, 1)
    assert {(row.path, row.gpu_ns.base, row.gpu_ns.other) for row in there} == {
        (row.path, row.gpu_ns.other, row.gpu_ns.base) for row in back
    }
    for row in align_ranges(base, base, 1, 1):
        assert row.replaced == ()
        assert all(getattr(row, name).base == getattr(row, name).other for name in FIGURES)


@given(base=trees(), other=trees())
@settings(max_examples=100, deadline=None)
def test_the_rows_below_a_shared_range_are_its_children(
    base: list[RangeReport], other: list[RangeReport]
) -> None:
    rows = align_ranges(base, other, 1, 1)
    for row in rows:
        if row.replaced or row.gpu_ns.base is None or row.gpu_ns.other is None:
            continue
        below = [one for one in rows if one.path.rpartition("/")[0] == row.path]
        for side, reports in (("base", base), ("other", other)):
            inside = [one for one in reports if _together(one.path.rpartition("/")[0]) == row.path]
            found = sum(getattr(one.gpu_ns, side) or 0.0 for one in below)
            assert found == sum(one.gpu_ns for one in inside)


def _together(path: str) -> str:
    return path.replace("layer.0", "layer.*").replace("layer.1", "layer.*")
