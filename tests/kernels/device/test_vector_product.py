import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.device.vector_product import blocks_ahead, products
from decodescope.kernels.host.tile import Tile

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
    squares_ptr,
    N,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    AHEAD: tl.constexpr,
    NORM: tl.constexpr,
):
    split = tl.program_id(0)
    lane = tl.arange(0, ROWS)
    rows = tl.minimum(lane, N - 1)
    sums, square_sum = products(
        w_ptr, rows, x_ptr, g_ptr, split, K, BLOCK, SPLITS, AHEAD, NORM, False
    )
    tl.store(sums_ptr + split * ROWS + lane, sums)
    tl.store(squares_ptr + split, square_sum)


def multiply(
    w: torch.Tensor, x: torch.Tensor, g: torch.Tensor | None, block: int, splits: int, ahead: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each split's sums of w's rows, and of x's squares."""
    rows, columns = w.shape
    padded = triton.next_power_of_2(rows)
    sums = torch.full((splits, padded), float("nan"), device=w.device)
    squares = torch.full((splits,), float("nan"), device=w.device)
    _products_kernel[(splits,)](
        w, x, g, sums, squares, rows, columns, padded, block, splits, ahead, g is not None
    )
    return sums[:, :rows], squares


def between_poison(values: torch.Tensor) -> torch.Tensor:
    """A copy with NaN before and behind it in memory: what is read there shows in the result."""
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
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("columns", "block", "splits"), CUTS)
def test_each_split_sums_its_columns(
    columns: int, block: int, splits: int, normed: bool, dtype: torch.dtype, inputs
) -> None:
    w, x, g = operands(inputs, dtype, columns)
    sums, squares = multiply(w, x, g if normed else None, block, splits, 1)
    weighted = x.double() * g.double() if normed else x.double()
    for split, part in enumerate(parts(columns, block, splits)):
        expected = w[:, part].double() @ weighted[part]
        scale = w[:, part].double().abs() @ weighted[part].abs()
        # Nothing is rounded but the float32 sums, whatever the dtype.
        assert ((sums[split].double() - expected).abs() <= 5e-7 * scale).all()
        square_sum = x[part].double().square().sum() if normed else torch.zeros(())
        assert squares[split].item() == pytest.approx(square_sum.item(), rel=1e-6)


@pytest.mark.parametrize(("columns", "block", "splits"), CUTS)
def test_blocks_asked_for_early_are_the_same_blocks(
    columns: int, block: int, splits: int, inputs
) -> None:
    # Sums of small integers are exact in any order.
    w, x, g = (tensor.mul(4).round() for tensor in operands(inputs, torch.float16, columns))
    expected = w.double() @ (x.double() * g.double())
    assert expected.abs().max() > 0
    steps = -(-columns // (block * splits))
    for ahead in range(1, steps + 1):
        sums, squares = multiply(w, x, g, block, splits, ahead)
        assert torch.equal(sums.double().sum(0), expected)
        assert torch.equal(squares.double().sum(), x.double().square().sum())


@pytest.mark.parametrize(
    ("columns", "tile", "blocks"),
    [
        (2048, Tile(4, 2048, num_stages=3), 1),
        (2049, Tile(4, 2048, num_stages=3), 2),
        (8192, Tile(2, 512, num_stages=5), 5),
        (8192, Tile(2, 512, num_stages=5, splits=8), 2),
        (33, Tile(1, 16, num_stages=9, splits=5), 1),
    ],
)
def test_no_more_blocks_are_asked_for_early_than_a_row_has(
    columns: int, tile: Tile, blocks: int
) -> None:
    assert blocks_ahead(columns, tile) == blocks
