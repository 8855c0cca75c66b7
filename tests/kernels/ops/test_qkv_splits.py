"""Programs that share rows of Q, K and V in a batch, each with a part of the inner dimension."""

import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import Workspace
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope, qkv_workspace
from decodescope.kernels.ops.rope import RopeTable
from tests.helpers.kernel_fixtures import Inputs, assert_near

HEADS, KV_HEADS, SIZE, CAPACITY = 2, 1, 32, 3


def projection(
    make: Inputs,
    x: torch.Tensor,
    qkv: WeightMatrix,
    tile: Tile,
    qk: bool = False,
    workspace: Workspace | None = None,
    size: int = SIZE,
) -> NormQkvRope:
    batch, rows = len(x), qkv.rows // size
    kv_heads = rows // (HEADS + 2)
    angles = make.random(CAPACITY, size // 2, dtype=torch.float32) * 3
    needed = qkv_workspace(rows, rows - kv_heads if qk else 0, size, tile, batch)
    return NormQkvRope(
        x,
        None,
        qkv,
        RopeTable(angles.cos(), angles.sin()),
        make.position(1),
        make.poisoned(batch, rows - 2 * kv_heads, size),
        make.poisoned(batch, kv_heads, CAPACITY, size),
        make.poisoned(batch, kv_heads, CAPACITY, size),
        tile,
        make.workspace(*needed) if workspace is None else workspace,
        make.qk_norm(size) if qk else None,
    )


def launched(operation: NormQkvRope) -> list[torch.Tensor]:
    operation.launch()
    assert not operation.workspace.counters.any()
    return [out.clone() for out in operation.outputs(1)]


def drawn(make: Inputs, batch: int, columns: int) -> tuple[torch.Tensor, WeightMatrix]:
    rows = (HEADS + 2 * KV_HEADS) * SIZE
    return make.random(batch, columns, seed=11), make.weight(rows, columns)


@pytest.mark.parametrize(("columns", "splits"), [(77, 3), (160, 4), (30, 3)])
def test_parts_are_added_in_their_order(columns: int, splits: int, inputs) -> None:
    """V, which nothing changes after the sum, has the bits of the parts' own products added up."""
    make = inputs(torch.float32)
    x, qkv = drawn(make, 3, columns)
    whole = launched(projection(make, x, qkv, Tile(16, 16, splits=splits)))[2]
    part = -(-columns // (16 * splits)) * 16
    expected = torch.zeros_like(whole)
    for first in range(0, columns, part):
        cut = slice(first, first + part)
        matrix = WeightMatrix(qkv.data[:, cut].contiguous())
        operation = projection(make, x[:, cut].contiguous(), matrix, Tile(16, 16))
        expected += launched(operation)[2]
    assert torch.equal(whole, expected)


@pytest.mark.parametrize("qk", [False, True])
def test_the_order_in_which_programs_end_changes_no_bit(qk: bool, inputs, monkeypatch) -> None:
    make, splits = inputs(torch.float32), 3
    if make.device != "cpu":
        pytest.skip("only the interpreter's programs run in a known order")
    from triton.runtime.interpreter import interpreter_builder

    x, qkv = drawn(make, 2, 90)
    operation = projection(make, x, qkv, Tile(16, 16, splits=splits), qk)
    forwards, place = launched(operation), interpreter_builder.set_grid_idx
    operation.workspace.partials.fill_(torch.nan)
    ended = []

    def backwards(block: int, split: int, z: int) -> None:
        ended.append(split)
        place(block, splits - 1 - split, z)

    monkeypatch.setattr(interpreter_builder, "set_grid_idx", backwards)
    assert all(map(torch.equal, launched(operation), forwards))
    assert ended[:splits] == [*range(splits)]


@pytest.mark.parametrize(("qk", "format"), [(True, "int4"), (False, "mxfp4"), (True, "nvfp4")])
def test_rows_of_four_bits(qk: bool, format: str, inputs) -> None:
    make = inputs(torch.float16)
    qkv = make.narrow((HEADS + 2 * KV_HEADS) * SIZE, 300, format, biased=True)
    operation = projection(make, make.random(5, 300), qkv, Tile(32, 64, splits=3), qk)
    for out, expected in zip(launched(operation), operation.reference(1), strict=True):
        assert_near(out, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("format", ["", "fp8_e4m3", "int4"])
@pytest.mark.parametrize(
    ("batch", "tile"),
    [
        (16, Tile(64, 256, 4, 3, splits=4)),
        (2, Tile(128, 128, 8, 4, splits=8)),
        (33, Tile(32, 128, 4, 2, splits=3)),
    ],
)
def test_many_programs_repeat_bit_for_bit(batch: int, tile: Tile, format, qk: bool) -> None:
    make = Inputs(torch.bfloat16, "cuda")
    x, rows = make.random(batch, 4096), 12 * (HEADS + 2) * 128
    qkv = make.narrow(rows, 4096, format) if format else make.weight(rows, 4096)
    operation = projection(make, x, qkv, tile, qk, size=128)
    first = launched(operation)
    for out, expected in zip(first, operation.reference(1), strict=True):
        assert_near(out, expected)
    for _ in range(20):
        operation.workspace.partials.fill_(torch.nan)
        assert all(map(torch.equal, launched(operation), first))
