"""New rows of K and V in a float8 cache: which codes are stored, and what attention reads back."""

from dataclasses import replace

import pytest
import torch

from decodescope.kernels.device.attention_splits import attention_workspace
from decodescope.kernels.host.kv_cache import KvScales, codes
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.kernels.ops.kv_write import KvWrite, kv_write_reference
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope, qkv_workspace
from decodescope.kernels.ops.rope import RopeTable
from tests.helpers.kernel_inputs import at, random

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = [E4M3, E5M2]
# The rounding of float32 sums may differ by this.
NEARLY_ONE = (1 - 2.0**-20, 1 + 2.0**-20)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def untouched(*shape: int, stored: torch.dtype, device: str) -> torch.Tensor:
    """A cache in which every byte is a NaN."""
    return torch.full(shape, 0x7F, dtype=torch.uint8, device=device).view(stored)


def bits(cache: torch.Tensor) -> torch.Tensor:
    return cache.contiguous().view(torch.uint8)


def powers_of_two(batch: int, kv_heads: int, device: str) -> KvScales:
    exponents = torch.arange(batch * kv_heads, device=device).view(batch, kv_heads)
    return KvScales(2.0 ** (exponents % 5 - 3), 2.0 ** (2 - exponents % 7))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_written_codes_are_those_of_torch(
    dtype: torch.dtype, stored: torch.dtype, scaled: bool, device: str
) -> None:
    batch, kv_heads, head_dim = 3, 2, 80
    k, v = 20.0 * random(2, batch, kv_heads, head_dim, device=device)
    special = torch.tensor([0.0, -0.0, 1e-30, 60_000.0, -60_000.0, float("inf"), -float("inf")])
    k[1, 1, :7], v[2, 0, :7] = special, special
    k, v = k.to(dtype), v.to(dtype)
    scales = powers_of_two(batch, kv_heads, device) if scaled else None
    caches = [untouched(batch, kv_heads, 5, head_dim, stored=stored, device=device) for _ in "kv"]
    pairs = zip((k, v), (scales.k, scales.v) if scales else (None, None), strict=True)
    expected = [
        kv_write_reference(rows, cache, 3, scale)
        for cache, (rows, scale) in zip(caches, pairs, strict=True)
    ]
    operation = KvWrite(k, v, *caches, at(3, device), scales)
    operation.launch()
    for cache, right, reference in zip(caches, expected, operation.reference(3), strict=True):
        assert torch.equal(bits(cache), bits(right))
        assert torch.equal(bits(cache[:, :, 3]), bits(reference))
    largest = torch.finfo(stored).max
    assert caches[0][1, 1, 3, 5:7].float().tolist() == [largest, -largest]
    assert caches[0][1, 1, 3, :2].float().signbit().tolist() == [False, True]


@pytest.mark.parametrize("stored", FORMATS)
def test_nan_stays_nan(stored: torch.dtype, device: str) -> None:
    k, v = random(2, 1, 1, 32, device=device)
    k[0, 0, 4], v[0, 0, 9] = float("nan"), -float("nan")
    caches = torch.zeros(2, 1, 1, 2, 32, device=device).to(stored)
    KvWrite(k, v, *caches, at(1, device)).launch()
    missing = caches.float().isnan().nonzero().tolist()
    assert missing == [[0, 0, 0, 1, 4], [1, 0, 0, 1, 9]]


@pytest.mark.parametrize("position", [2, -1])
def test_past_the_capacity_nothing_is_written(position: int, device: str) -> None:
    caches = [untouched(1, 2, 2, 32, stored=E4M3, device=device) for _ in "kv"]
    k, v = random(2, 1, 2, 32, device=device)
    KvWrite(k, v, *caches, at(position, device), powers_of_two(1, 2, device)).launch()
    assert all((bits(cache) == 0x7F).all() for cache in caches)


def test_bytes_moved_are_those_of_each_type() -> None:
    k = torch.zeros(2, 3, 32, dtype=torch.bfloat16)
    cache = torch.zeros(2, 3, 4, 32, dtype=E4M3)
    operation = KvWrite(k, k, cache, cache, at(0, "cpu"), powers_of_two(2, 3, "cpu"))
    assert operation.bytes_moved(0) == 2 * (2 * 3 * 32 * (2 + 1) + 2 * 3 * 4)


def projection(
    inputs, dtype: torch.dtype, batch: int, qk: bool, stored: torch.dtype, head_dim: int = 32
) -> NormQkvRope:
    make, heads, kv_heads, capacity = inputs(dtype), 3, 2, 4
    rows = heads + 2 * kv_heads
    angles = make.random(capacity, head_dim // 2, dtype=torch.float32) * 3
    shape = (batch, kv_heads, capacity, head_dim)
    tile = Tile(16, 32, splits=2 if batch == 3 else 1)
    return NormQkvRope(
        make.random(batch, 70),
        make.norm(70) if batch == 1 else None,
        make.weight(rows * head_dim, 70, biased=True),
        RopeTable(angles.cos(), angles.sin()),
        make.position(2),
        make.poisoned(batch, heads, head_dim),
        untouched(*shape, stored=stored, device=make.device),
        untouched(*shape, stored=stored, device=make.device),
        tile,
        make.workspace(*qkv_workspace(7, 5, head_dim, tile, batch)),
        make.qk_norm(head_dim) if qk else None,
        powers_of_two(batch, kv_heads, make.device) if stored == E4M3 else None,
    )


def unquantised(operation: NormQkvRope) -> NormQkvRope:
    """The same projection into caches of the activations' dtype."""
    caches = [torch.zeros_like(operation.k_cache, dtype=operation.x.dtype) for _ in "kv"]
    q = torch.full_like(operation.q, float("nan"))
    return replace(operation, q=q, k_cache=caches[0], v_cache=caches[1], scales=None)


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 16, 33])
def test_the_projections_rows_are_rounded_once(
    batch: int, qk: bool, stored: torch.dtype, inputs, assert_reset
) -> None:
    operation = projection(inputs, torch.float32, batch, qk, stored)
    plain = unquantised(operation)
    operation.launch()
    plain.launch()
    if operation.q.is_cuda:
        # Two kernels: for 33 tokens, Triton 3.6 adds the blocks' sums in different instructions.
        torch.testing.assert_close(operation.q, plain.q, rtol=2.0**-20, atol=2.0**-20)
    else:
        assert torch.equal(operation.q, plain.q)
    scales = (operation.scales.k, operation.scales.v) if operation.scales else (None, None)
    caches = (operation.k_cache, plain.k_cache), (operation.v_cache, plain.v_cache)
    for (narrow, wide), scale in zip(caches, scales, strict=True):
        given, row = narrow[:, :, 2].float(), wide[:, :, 2]
        if not row.is_cuda:
            right = codes(row, stored, scale).to(stored)
            assert torch.equal(bits(narrow[:, :, 2]), bits(right))
        near = [codes(row * factor, stored, scale).to(stored).float() for factor in NEARLY_ONE]
        assert (torch.minimum(*near) <= given).all()
        assert (given <= torch.maximum(*near)).all()
        assert (near[0] != near[1]).float().mean() < 1e-3
        assert (bits(narrow[:, :, [0, 1, 3]]) == 0x7F).all()
    assert_reset(operation.workspace)


@pytest.mark.parametrize("qk", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("stored", FORMATS)
def test_rows_of_narrow_models(
    stored: torch.dtype, dtype: torch.dtype, batch: int, qk: bool, inputs
) -> None:
    """Each element is the nearest code, but for what rounding in the product may move."""
    operation = projection(inputs, dtype, batch, qk, stored, head_dim=34)
    operation.launch()
    digits, least = (3, 2.0**-9) if stored == E4M3 else (2, 2.0**-16)
    moved = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10
    for cache, expected in zip(
        (operation.k_cache, operation.v_cache), operation.reference(2)[1:], strict=True
    ):
        error = (cache[:, :, 2].double() - expected).abs()
        spacing = (expected.abs() * 2.0**-digits).clamp(min=least)
        size = expected.norm(dim=-1, keepdim=True)
        assert (error <= spacing / 2 + moved * size).all()


@pytest.mark.parametrize("batch", [1, 2])
def test_values_that_do_not_fit_saturate(batch: int, inputs) -> None:
    operation = projection(inputs, torch.float32, batch, False, E4M3)
    assert operation.qkv.bias is not None
    operation.qkv.bias[5 * 32 : 5 * 32 + 3] = torch.tensor([1e30, -1e30, float("inf")])
    operation.launch()
    stored = operation.v_cache[:, 0, 2, :3].float()
    assert stored.tolist() == [[448.0, -448.0, 448.0]] * batch


@pytest.mark.parametrize("splits", [1, 2])
def test_attention_sees_the_row_that_later_steps_see(splits: int, inputs) -> None:
    """The new row as it is stored, not as it was computed."""
    operation = projection(inputs, torch.float32, 2, False, E4M3)
    operation.launch()
    v = operation.v_cache.view(torch.uint8)
    v[:, :, :2] = 0
    operation.k_cache.view(torch.uint8)[:, :, :2] = 0
    heads = (2, 4, 32)
    q, out = torch.zeros(2, *heads, device=operation.x.device)
    workspace = new_workspace(*attention_workspace(2, 4, 32, splits), q.device)
    tile = Tile(1, 16, splits=splits)
    caches = operation.k_cache, operation.v_cache
    DecodeAttention(
        q, *caches, operation.position, 1.0, out, tile, workspace, scales=operation.scales
    ).launch()
    # Three equal weights, and two rows of zeros.
    assert operation.scales is not None
    row = operation.v_cache[:, :, 2].float() * operation.scales.v[:, :, None]
    torch.testing.assert_close(out, row.repeat_interleave(2, dim=1) / 3, rtol=1e-6, atol=0.0)


def test_a_scale_for_each_sequence_and_head(inputs) -> None:
    operation = projection(inputs, torch.float32, 1, False, E4M3)
    ones = torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"k scale .*\[2, 2\].*\[1, 2\]"):
        replace(operation, scales=KvScales(ones, ones)).launch()
