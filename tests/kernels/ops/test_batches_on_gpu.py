"""Batches on a GPU: shapes of real models, pipelined tiles, overlapping launches."""

import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import QkNorm, WeightMatrix
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import (
    LinearResidual,
    linear_residual_reference,
    split_workspace,
)
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rope import RopeTable

pytestmark = pytest.mark.gpu

HALF_TILES = [
    Tile(16, 256, 4, 4),
    Tile(32, 128, 4, 6),
    Tile(64, 128, 4, 4),
    Tile(64, 256, 8, 3),
    Tile(128, 64, 4, 4),
]
CASES = [(dtype, tile) for dtype in (torch.bfloat16, torch.float16) for tile in HALF_TILES]
CASES += [(torch.float32, tile) for tile in (Tile(32, 64, 4, 3), Tile(16, 64, 4, 3))]


@pytest.mark.parametrize(("dtype", "tile"), CASES)
@pytest.mark.parametrize(("batch", "columns"), [(2, 4096), (16, 4096), (9, 4104), (5, 4099)])
def test_pipelined_tiles(
    batch: int, columns: int, dtype: torch.dtype, tile: Tile, inputs, assert_close
) -> None:
    make = inputs(dtype)
    x, weight = make.random(batch, columns), make.weight(1000, columns)
    out = make.poisoned(batch, 1000)
    Linear(x, weight, out, tile).launch()
    assert_close(out, linear_reference(x, weight))
    gated = make.poisoned(batch, 500)
    NormGateUp(x, None, weight, gated, tile).launch()
    assert_close(gated, norm_gate_up_reference(x, None, weight))


@pytest.mark.parametrize(("dtype", "tile"), CASES)
@pytest.mark.parametrize("splits", [1, 2, 8, 7])
def test_split_products_repeat_bit_for_bit(
    splits: int, dtype: torch.dtype, tile: Tile, inputs, assert_close
) -> None:
    make = inputs(dtype)
    batch, rows, columns = 11, 1000, 14_336
    tile = Tile(tile.rows, tile.columns, tile.num_warps, tile.num_stages, splits)
    x, weight, residual = make.random(batch, columns), make.weight(rows, columns), None
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    for _ in range(20):
        out = make.random(batch, rows, seed=4)
        expected = linear_residual_reference(x, weight, out)
        LinearResidual(x, weight, out, tile, workspace).launch()
        assert_close(out, expected)
        assert residual is None or torch.equal(out, residual)
        residual = out
    assert not workspace.counters.any()


def test_rows_beyond_32_bit_offsets(inputs, assert_close) -> None:
    make = inputs(torch.bfloat16)
    rows, columns = 2**31 // 16_384 + 70, 16_384
    data = torch.zeros(rows, columns, dtype=torch.bfloat16, device=make.device)
    data[-100:] = make.weight(100, columns).data
    x, out = make.random(3, columns), make.poisoned(3, rows)
    Linear(x, WeightMatrix(data), out, Tile(64, 128, 4, 4)).launch()
    assert_close(out[:, -100:], linear_reference(x, WeightMatrix(data[-100:])))
    assert not out[:, :-100].any()


@pytest.mark.parametrize("batch", [2, 7, 16])
@pytest.mark.parametrize("qk", [False, True])
def test_overlapping_launches_change_no_bit(batch: int, qk: bool, inputs) -> None:
    make = inputs(torch.bfloat16)
    hidden, heads, kv_heads, head_dim, inner, vocabulary, capacity = 1024, 8, 2, 128, 2816, 5003, 40
    qkv = make.weight((heads + 2 * kv_heads) * head_dim, hidden)
    out_proj, gate_up = make.weight(hidden, heads * head_dim), make.weight(2 * inner, hidden)
    down, head, norm = (
        make.weight(hidden, inner),
        make.weight(vocabulary, hidden),
        make.norm(hidden),
    )
    angles = make.random(capacity, head_dim // 2, dtype=torch.float32)
    rope = RopeTable(angles.cos(), angles.sin())
    head_norm = QkNorm(make.norm(head_dim).weight, make.norm(head_dim).weight, 1e-6)
    workspace = make.workspace(8 * hidden * 16, 64)
    wide, split = Tile(64, 128, 4, 4), Tile(32, 128, 4, 6, splits=4)

    def decode(pdl: bool) -> list[torch.Tensor]:
        x, normed = make.random(batch, hidden, seed=6), make.poisoned(batch, hidden)
        q = make.poisoned(batch, heads, head_dim)
        k_cache = torch.zeros(batch, kv_heads, capacity, head_dim, dtype=x.dtype, device=x.device)
        v_cache = torch.zeros_like(k_cache)
        act = make.poisoned(batch, inner)
        logits = make.poisoned(batch, vocabulary, dtype=torch.float32)
        tokens = torch.zeros(batch, capacity + 1, dtype=torch.int64, device=x.device)
        position = torch.zeros(1, dtype=torch.int32, device=x.device)
        for _ in range(8):
            for layer in range(4):
                RmsNorm(x, norm, normed).launch(pdl and layer > 0)
                NormQkvRope(
                    normed,
                    None,
                    qkv,
                    rope,
                    position,
                    q,
                    k_cache,
                    v_cache,
                    split,
                    workspace,
                    head_norm if qk else None,
                ).launch(pdl)
                LinearResidual(q.view(batch, -1), out_proj, x, split, workspace).launch(pdl)
                RmsNorm(x, norm, normed).launch(pdl)
                NormGateUp(normed, None, gate_up, act, wide).launch(pdl)
                LinearResidual(act, down, x, split, workspace).launch(pdl)
            RmsNorm(x, norm, normed).launch(pdl)
            NormHead(normed, None, head, tokens, position, wide, workspace, logits).launch(pdl)
        return [x, q, k_cache, v_cache, logits, tokens, position]

    plain = decode(pdl=False)
    assert plain[-1].item() == 8
    for _ in range(10):
        for one, other in zip(plain, decode(pdl=True), strict=True):
            assert torch.equal(one, other)
