"""Kernels of one table never share a short name; mangled names become readable."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from decodescope.analyzer import analyze
from decodescope.analyzer.names.fitted_names import MIN_CELLS, short_kernels
from decodescope.analyzer.names.short_names import readable_kernel
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.tables.kernels_table import kernels_table
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.table_parts import rich_table
from tests.helpers.hostile import anything
from tests.helpers.kineto_events import op, trace_of

_MUL = "void at::native::vectorized_elementwise_kernel<{}, at::native::{}<c10::BFloat16, " \
       "c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, " \
       "std::array<char*, 3ul> >(int, at::native::X, std::array<char*, 3ul>)"  # fmt: skip
_TILES = "nvjet_sm90_tst_64x8_64x16_{}_v_bz_{}TNT"
_names = (
    st.text("ab<>:, _", max_size=40)
    | anything
    | st.builds(_MUL.format, st.integers(1, 4), st.sampled_from(["AUnaryFunctor", "BinaryFunctor"]))
    | st.builds(_TILES.format, st.sampled_from(["1x2", "2x1", "4x1"]), st.sampled_from(["", "s_"]))
)


@given(st.lists(_names, unique=True, max_size=40), st.integers(MIN_CELLS, 90))
def test_distinct_kernels_have_distinct_short_names_that_fit(names: list[str], cells: int) -> None:
    shown = short_kernels(names, cells)
    assert list(shown) == names
    assert len(set(shown.values())) == len(names)
    assert all(cell_len(short) <= cells for short in shown.values())


@given(
    st.lists(st.from_regex("[a-z0-9]{1,7}", fullmatch=True), unique=True, min_size=2, max_size=9),
    st.lists(st.sampled_from(["float", "(lambda#1)", "3ul", "Policy<7>", "x::y"]), max_size=60),
    st.integers(0, 60),
    st.integers(24, 90),
)
def test_what_differs_is_shown_wherever_it_stands(
    differing: list[str], others: list[str], at: int, cells: int
) -> None:
    """A number is the last resort: there is one only if what differs does not fit."""
    names = [f"a_kernel<{', '.join([*others[:at], own, *others[at:]])}>" for own in differing]
    shown = short_kernels(names, cells)
    assert [shown[name].partition("·")[2] for name in names] == differing


@given(
    st.lists(st.tuples(st.integers(0, 2), anything), max_size=12, unique=True),
    st.integers(60, 140),
)
@example([(0, "0"), (0, "0 ")], 60)
def test_rows_of_any_tree_can_be_told_apart(nodes: list[tuple[int, str]], width: int) -> None:
    """Labels that differ whole differ in print; equal ones stand under different rows."""
    column: Column[tuple[int, str]] = kinds.RANGE("name", "name", lambda node: node[1])
    wide = "a title of forty cells".ljust(40, "-")
    figure: Column[tuple[int, str]] = kinds.COUNT("depth", wide, lambda node: node[0])
    table = Table("nodes", (column, figure), nodes, depth=lambda node: node[0])
    console = Console(width=width)
    with console.capture() as printed:
        console.print(rich_table(table, width))
    lines = printed.get().splitlines()[1:]
    assert len(set(lines)) == len({(depth, plain_line(name)) for depth, name in nodes})
    assert all(cell_len(line) <= width for line in lines)


@given(st.lists(_names, max_size=10), st.integers(-3, MIN_CELLS))
def test_too_few_cells_are_never_exceeded(names: list[str], cells: int) -> None:
    assert all(cell_len(short) <= max(cells, 0) for short in short_kernels(names, cells).values())


@given(st.lists(_names, unique=True, min_size=1, max_size=10), st.integers(8, 60))
def test_the_order_of_a_table_does_not_change_names(names: list[str], cells: int) -> None:
    assert short_kernels(names[::-1], cells) == short_kernels(names, cells)


def test_what_differs_is_what_is_shown() -> None:
    names = [_MUL.format(4, "BinaryFunctor"), _MUL.format(8, "BinaryFunctor")]
    assert list(short_kernels(names, 50).values()) == [
        "elementwise mul bf16·4",
        "elementwise mul bf16·8",
    ]
    names = [_TILES.format("2x1", ""), _TILES.format("4x1", "")]
    assert list(short_kernels(names, 24).values()) == ["nvjet tst 64x8·2x1", "nvjet tst 64x8·4x1"]
    assert list(short_kernels(names[:1], 60).values()) == ["nvjet tst 64x8"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_kernels_of_a_printed_table_can_be_told_apart(width: int) -> None:
    names = [_MUL.format(n, "BinaryFunctor") for n in range(2, 6)]
    events = [op(10 * row, 10 * row + 5, name=name) for row, name in enumerate(names)]
    console = Console(width=width, record=True, file=None)
    with console.capture() as printed:
        kernels = analyze(trace_of(*events)).report.kernels
        console.print(rich_table(kernels_table(kernels, attributed=False, most=10), width))
    rows = [re.split(" {2,}", line)[0] for line in printed.get().splitlines()[1:] if line.strip()]
    assert len(set(rows)) == len(names)


MANGLED = {
    "_Z13TrivialKernelILi1EEvPf": "TrivialKernel<1>",
    "_ZL13quantize_q8_1PKfPvllllijj": "quantize_q8_1",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_":
        "at::native::reduce_kernel<512, 1, ReduceOp, MeanOps, 4, 4>",
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy"
    "_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_":
        "at::native::elementwise_kernel<128, 2, gpu_kernel_impl_nocast, direct_copy_kernel_cuda, "
        "TensorIteratorBase>",
    "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdIDF16bfLin3EEEEEvDpT1_":
        "ck_tile::kentry<1, Rmsnorm2dFwd, -3>",
    "_ZN46_GLOBAL__N__d8ceb000_18_SoftMax_cu_9e978b63_8320softmax_warp_forwardIfLi6EEEvPT0_":
        "(anonymous namespace)::softmax_warp_forward<6>",
    "_ZN5flash99cut_short": "flash",
    "__amd_rocclr_fillBufferAligned.kd": "__amd_rocclr_fillBufferAligned",
    "gemm<float>(float*) [clone .kd]": "gemm<float>(float*)",
}  # fmt: skip


@pytest.mark.parametrize("name", MANGLED)
def test_mangled_and_hip_names_are_readable(name: str) -> None:
    assert readable_kernel(name) == MANGLED[name]


@pytest.mark.parametrize(
    "name", ["_Z", "_ZN", "_ZN8topk_fn", "_Z9999999999999a", "_ZN0E", "_ZTV3abc"]
)
def test_what_is_no_mangled_name_stays(name: str) -> None:
    assert readable_kernel(name) == name


@given(st.text("_ZNKSTILEDFUl0123456789ab", max_size=60).map("_ZN3abc".__add__))
def test_broken_mangled_names_never_raise(name: str) -> None:
    assert readable_kernel(name)
