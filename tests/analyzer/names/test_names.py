"""Names cut to a width; ranges become a tree."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from decodescope.analyzer.names.fitted_names import cut_middle, cut_start, short_kernel
from tests.helpers.hostile import anything
from tests.helpers.rich_report import ELEMENTWISE

names = st.text(max_size=60) | st.text("ab<漢字👩\u0301", max_size=60) | anything


@given(names, st.integers(0, 50))
def test_names_are_never_wider_than_asked(name: str, cells: int) -> None:
    assert cell_len(short_kernel(name, cells)) <= cells
    assert cell_len(cut_middle(name, cells)) <= cells
    assert cell_len(cut_start(name, cells)) <= cells


def test_wide_names_keep_as_much_as_fits() -> None:
    assert cut_middle("漢字" * 10, 12) == "漢字漢字…字"
    assert cut_middle("abcdefghijklmnop", 12) == "abcdefgh…nop"
    assert cut_start("abcdefghijklmnop", 12) == "…fghijklmnop"
    assert cut_start("abcdefghijkl", 12) == "abcdefghijkl"


def test_short_names_stay_and_long_ones_lose_their_middle() -> None:
    assert short_kernel("nvjet_tst_64x8", 14) == "nvjet tst 64x8"
    assert short_kernel(ELEMENTWISE, 60) == "elementwise mul f32"
    assert short_kernel(ELEMENTWISE, 12) == "elementw…f32"
    copy = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::X&)>"
    )
    assert "direct_copy" in short_kernel(copy, 64)
    assert short_kernel("void k(int, float const*, float const*)", 10) == "k"


def test_an_unnamed_namespace_is_not_the_name() -> None:
    for namespace in ("(anonymous namespace)", "<unnamed>"):
        name = f"void {namespace}::softmax_warp_forward<float, (int)6>(T2 *, const T1 *, int)"
        assert short_kernel(name, 40) == "softmax_warp_forward"
