import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.vector_product import first_blocks, vector_products

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

# Columns, block, splits: one block, even and uneven blocks, parts without a column.
CUTS = [
    (33, 64, 1),
    (64, 64, 1),
    (96, 32, 1),
    (100, 32, 1),
    (577, 128, 1),
    (64, 16, 2),
    (100, 16, 3),
    (33, 16, 5),
    (97, 32, 2),
    (16, 16, 3),
]


@triton.jit
def _products_kernel(
    w_ptr,
    x_ptr,
    g_ptr,
    sums_ptr,
    N,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    split = tl.program_id(0)
    lane = tl.arange(0, ROWS)
    rows = tl.minimum(lane, N - 1)
    first = first_blocks(w_ptr, rows, g_ptr, split, K, BLOCK, SPLITS, AHEAD, LAYOUT)
    sums = vector_products(
        first, w_ptr, rows, x_ptr, None, g_ptr, 1e-5, split, K, BLOCK, SPLITS, AHEAD, LAYOUT
    )
    tl.store(sums_ptr + split * ROWS + lane, sums)


def multiply(
    w: torch.Tensor, x: torch.Tensor, g: torch.Tensor | None, block: int, splits: int, ahead: int
) -> torch.Tensor:
    """Each split's sums of w's rows [splits, rows]."""
    rows, columns = w.shape
    padded = triton.next_power_of_2(rows)
    sums = torch.full((splits, padded), float("nan"), device=w.device)
    layout = (columns, None, 0)
    _products_kernel[(splits,)](w, x, g, sums, rows, columns, padded, block, splits, ahead, layout)
    return sums[:, :rows]


def between_poison(values: torch.Tensor) -> torch.Tensor:
    """A copy with NaN before and after it in memory, which would show in the result."""
    storage = values.new_full((values.numel() + 2048,), float("nan"))
    inner = storage[1024 : 1024 + values.numel()]
    return inner.copy_(values.flatten()).view(values.shape)


def operands(inputs, dtype: torch.dtype, columns: int) -> list[torch.Tensor]:
    make = inputs(dtype)
    tensors = (make.random(3, columns), make.random(columns, seed=1), make.random(columns, seed=2))
    return [between_poison(tensor) for tensor in tensors]


def parts(columns: int, block: int, splits: int) -> list[slice]:
    """Columns of each split: whole blocks, as many for each as the last one needs."""
    part = -(-columns // (block * splits)) * block
    return [slice(split * part, (split + 1) * part) for split in range(splits)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "block", "splits"), CUTS)
def test_each_split_sums_its_columns(
    columns: int, block: int, splits: int, dtype: torch.dtype, inputs
) -> None:
    w, x, _ = operands(inputs, dtype, columns)
    sums = multiply(w, x, None, block, splits, 1)
    for split, part in enumerate(parts(columns, block, splits)):
        expected = w[:, part].double() @ x[part].double()
        scale = w[:, part].double().abs() @ x[part].double().abs()
        # Nothing is rounded but the float32 sums, whatever the dtype.
        assert ((sums[split].double() - expected).abs() <= 5e-7 * scale).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "block"), [cut[:2] for cut in CUTS if cut[2] == 1])
def test_a_norm_scales_the_sums(columns: int, block: int, dtype: torch.dtype, inputs) -> None:
    w, x, g = operands(inputs, dtype, columns)
    for ahead in range(1, -(-columns // block) + 1):
        sums = multiply(w, x, g, block, 1, ahead)[0].double()
        normed = x.double() * (x.double().square().mean() + 1e-5).rsqrt() * g.double()
        scale = w.double().abs() @ normed.abs()
        assert ((sums - w.double() @ normed).abs() <= 1e-6 * scale).all()


@pytest.mark.parametrize(("columns", "block", "splits"), CUTS)
def test_blocks_loaded_early_are_the_same_blocks(
    columns: int, block: int, splits: int, inputs
) -> None:
    # Sums of small integers are exact in any order.
    w, x, _ = (tensor.mul(4).round() for tensor in operands(inputs, torch.float16, columns))
    expected = w.double() @ x.double()
    assert expected.abs().max() > 0
    steps = -(-columns // (block * splits))
    for ahead in range(1, steps + 1):
        sums = multiply(w, x, None, block, splits, ahead)
        assert torch.equal(sums.double().sum(0), expected)
