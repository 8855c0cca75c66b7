"""Attention over a float8 cache, against float64 on the numbers that the cache stores."""

import zlib
from dataclasses import dataclass, replace

import pytest
import torch

from decodescope.kernels.device.attention_splits import attention_workspace
from decodescope.kernels.host.kv_cache import KvScales, dense_rows
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.workspace import Workspace, new_workspace
from decodescope.kernels.ops.decode_attention import DecodeAttention, decode_attention_reference
from tests.helpers.refusals import refuses

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = [E4M3, E5M2]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
NAN_CODE = 0x7F
# Half a unit of float16, to which q and the softmax's weights are rounded.
HALF_ULP = 2.0**-11
# Of the result; the interpreter truncates to bfloat16.
ROUNDING = {
    torch.float32: 2.0**-22,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8 if torch.cuda.is_available() else 2.0**-7,
}


@dataclass
class Case:
    """Rows of the cache that attention must not use hold NaN, and so does the output."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scales: KvScales | None
    position: int
    window: int | None
    tile: Tile
    out: torch.Tensor
    workspace: Workspace

    @property
    def scale(self) -> float:
        return float(self.q.shape[-1]) ** -0.5

    def operation(self) -> DecodeAttention:
        position = torch.tensor([self.position], dtype=torch.int32, device=self.q.device)
        return DecodeAttention(
            self.q,
            self.k,
            self.v,
            position,
            self.scale,
            self.out,
            self.tile,
            self.workspace,
            self.window,
            scales=self.scales,
        )

    def run(self) -> torch.Tensor:
        self.operation().launch()
        assert not self.workspace.counters.any()
        return self.out

    def reference(self) -> torch.Tensor:
        return self.operation().reference(self.position)[0]

    def most_error(self) -> torch.Tensor:
        """How far each output may be from the reference.

        Rounding q moves a score by HALF_ULP sum |q k| at most, so a weight of the softmax by twice
        that, relatively; rounding it adds HALF_ULP. The rest is the rounding of the result.
        """
        first = 0 if self.window is None else max(0, self.position - self.window + 1)
        rows = slice(first, self.position + 1)
        pairs = (self.k, self.v), (self.scales.k, self.scales.v) if self.scales else (None, None)
        k, v = (dense_rows(one[:, :, rows], scale) for one, scale in zip(*pairs, strict=True))
        group = self.q.shape[1] // k.shape[1]
        sizes = torch.einsum(
            "bhd,bhtd->bht", self.q.double().abs(), k.abs().repeat_interleave(group, 1)
        )
        moved = (HALF_ULP * self.scale * sizes).amax(dim=2, keepdim=True)
        magnitude = decode_attention_reference(
            self.q, k, v.abs(), rows.stop - 1 - first, self.scale
        )
        return (torch.expm1(2 * moved) + 2 * HALF_ULP + ROUNDING[self.out.dtype]) * magnitude


def case(
    device: str,
    stored: torch.dtype = E4M3,
    dtype: torch.dtype = torch.float32,
    batch: int = 1,
    kv_heads: int = 1,
    group: int = 2,
    head_dim: int = 32,
    capacity: int = 80,
    position: int = 70,
    window: int | None = None,
    splits: int = 1,
    block: int = 16,
    scaled: bool = True,
) -> Case:
    shape = (batch, kv_heads, capacity, head_dim)
    seed = zlib.crc32(repr((shape, group, position, splits)).encode())
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=generator)

    def of_heads() -> torch.Tensor:
        return (0.25 + torch.rand(batch, kv_heads, generator=generator)).to(device)

    k, v = (normal(*shape).to(stored).to(device) for _ in range(2))
    first = 0 if window is None else max(0, position - window + 1)
    for cache in (k, v):
        codes = cache.view(torch.uint8)
        codes[:, :, :first] = NAN_CODE
        codes[:, :, position + 1 :] = NAN_CODE
    heads = kv_heads * group
    q = normal(batch, heads, head_dim).to(dtype).to(device)
    workspace = new_workspace(*attention_workspace(batch, heads, head_dim, splits), device)
    workspace.partials.fill_(float("nan"))
    scales = KvScales(of_heads(), of_heads()) if scaled else None
    out, tile = torch.full_like(q, float("nan")), Tile(1, block, splits=splits)
    return Case(q, k, v, scales, position, window, tile, out, workspace)


def assert_right(one: Case) -> None:
    error = (one.run().double() - one.reference()).abs()
    assert (error <= one.most_error()).all()


@pytest.mark.parametrize(
    ("stored", "dtype"), [*((E4M3, dtype) for dtype in DTYPES), (E5M2, torch.bfloat16)]
)
@pytest.mark.parametrize("group", [1, 3, 8, 17])
def test_every_ratio_of_query_to_kv_heads(
    group: int, stored: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    assert_right(case(device, stored, dtype, group=group, splits=2, block=32))


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("head_dim", [32, 34, 80, 96, 128, 254, 256])
def test_every_head_dim(head_dim: int, stored: torch.dtype, device: str) -> None:
    assert_right(case(device, stored, head_dim=head_dim, position=41, capacity=42))


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 63, 64, 65, 98])
def test_every_position_ignores_later_rows(position: int, splits: int, device: str) -> None:
    assert_right(case(device, capacity=99, position=position, splits=splits, block=32))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 16, 17, 33, 71, 2**40])
def test_every_window_ignores_earlier_rows(window: int, splits: int, device: str) -> None:
    assert_right(case(device, window=window, splits=splits))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("behind", [0, 1, 32, 33])
def test_rows_after_the_first_blocks(
    behind: int, splits: int, dtype: torch.dtype, device: str
) -> None:
    rows = 32 * splits + behind + 1
    assert_right(
        case(device, E4M3, dtype, capacity=rows, position=rows - 1, splits=splits, block=32)
    )


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("batch", [1, 5])
def test_every_sequence_and_head_has_its_own_scales(
    batch: int, scaled: bool, stored: torch.dtype, device: str
) -> None:
    assert_right(
        case(device, stored, batch=batch, kv_heads=2, group=3, splits=2, block=64, scaled=scaled)
    )


@pytest.mark.parametrize("splits", [1, 3])
def test_scales_of_any_size(splits: int, device: str) -> None:
    one = case(device, batch=2, kv_heads=2, splits=splits)
    assert one.scales is not None
    one.scales.k.copy_(torch.tensor([[2.0**-60, 2.0**-8], [1.0, 0.0]]))
    one.scales.v.copy_(torch.tensor([[2.0**60, 2.0**-126], [3e33, 1e-30]]))
    assert_right(one)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("stored", FORMATS)
def test_every_finite_code_of_v_is_read_exactly(
    stored: torch.dtype, splits: int, device: str
) -> None:
    """One row has all of the softmax's weight, so that its values are the output."""
    every = torch.arange(256, dtype=torch.uint8).view(stored)
    finite = every[every.float().isfinite()]
    values = torch.cat((finite, finite.new_zeros(256 - len(finite)))).to(device)
    for winner in (0, 40, 70):
        one = case(device, stored, head_dim=256, group=1, splits=splits, scaled=False)
        one.q.fill_(200.0)
        one.k[:, :, :71] = torch.full((), -200.0).to(stored)
        one.k[:, :, winner] = torch.full((), 200.0).to(stored)
        one.v[0, 0, winner] = values
        torch.testing.assert_close(one.run()[0, 0], values.float(), rtol=2.0**-22, atol=0.0)


@pytest.mark.parametrize("stored", FORMATS)
def test_every_finite_code_of_k_is_read_exactly(stored: torch.dtype, device: str) -> None:
    """q picks one element of each row, and the sum of the values tells the rows' scores apart."""
    every = torch.arange(256, dtype=torch.uint8).view(stored)
    finite = every[every.float().isfinite()].to(device)
    rows = len(finite)
    one = case(device, stored, group=1, capacity=rows, position=rows - 1, block=64, scaled=False)
    codes = one.k.view(torch.uint8)
    codes.zero_()
    codes[0, 0, :, 5] = finite.view(torch.uint8)
    one.q.zero_()
    one.q[0, 0, 5] = 2.0**-6
    # Powers of two as q, and so exact scores: what is left is the rounding of the weights.
    error = (one.run().double() - one.reference()).abs()
    magnitude = replace(one, v=one.v.float().abs().to(stored), out=one.out.clone()).reference()
    assert (error <= 4 * HALF_ULP * magnitude).all()


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("stored", "row"), [(E4M3, 0), (E4M3, 33), (E5M2, 33), (E4M3, 70)])
def test_nan_in_the_cache_is_nan_in_the_result(
    row: int, stored: torch.dtype, splits: int, device: str
) -> None:
    one = case(device, stored, kv_heads=2, splits=splits)
    one.v.view(torch.uint8)[0, 1, row, 7] = NAN_CODE
    missing = one.run().isnan()
    assert missing[0, 2:, 7].all()
    assert missing.sum() == 2
    one.k.view(torch.uint8)[0, 0, row, 3] = NAN_CODE
    assert one.run()[0, :2].isnan().all()


def test_a_query_beyond_float16_is_its_largest_value(device: str) -> None:
    one = case(device, group=1, splits=2)
    one.q[0, 0, :3] = torch.tensor([1e9, float("inf"), -1e30])
    expected = replace(one, q=one.q.clamp(-65504, 65504), out=one.out.clone())
    one.k[0, 0, 70, :3] = 0.0
    assert torch.equal(one.run(), expected.run())
    assert one.out.isfinite().all()


# numpy warns in the interpreter.
@pytest.mark.filterwarnings("ignore:All-NaN slice", "ignore:invalid value")
@pytest.mark.parametrize("splits", [1, 2])
def test_nan_in_a_query_is_nan_in_its_result(splits: int, device: str) -> None:
    one = case(device, splits=splits)
    one.q[0, 1, 4] = float("nan")
    missing = one.run().isnan()
    assert missing[0, 1].all()
    assert not missing[0, 0].any()


@pytest.mark.parametrize("stored", FORMATS)
def test_a_second_run_gives_the_same_bits(stored: torch.dtype, device: str) -> None:
    one = case(device, stored, torch.bfloat16, kv_heads=2, splits=4)
    first = one.run().clone()
    one.out.fill_(float("nan"))
    assert torch.equal(one.run(), first)


def test_zeros_everywhere_are_zeros(device: str) -> None:
    one = case(device, batch=2, splits=3)
    one.k.view(torch.uint8).zero_()
    one.v.view(torch.uint8).zero_()
    assert not one.run().any()


@pytest.mark.parametrize("position", [-1, 80])
def test_outside_the_cache_nothing_is_written(position: int, device: str) -> None:
    assert replace(case(device, splits=2), position=position).run().isnan().all()


def test_bytes_are_those_of_the_narrow_rows_and_their_scales() -> None:
    one = case("cpu", dtype=torch.bfloat16, batch=2, kv_heads=3, group=2, head_dim=32)
    rows, q_and_out, scales = 2 * 2 * 3 * 71 * 32, 2 * 2 * 6 * 32 * 2, 2 * 2 * 3 * 4
    assert one.operation().bytes_moved(70) == rows + q_and_out + scales
    unscaled = replace(one, scales=None).operation()
    assert unscaled.bytes_moved(70) == rows + q_and_out


ONES = torch.ones(1, 2)


test_refuses = refuses(
    (replace(case("cpu", kv_heads=2, group=1), **change).run, complaint)
    for change, complaint in [
        ({"v": torch.zeros(1, 2, 80, 32, dtype=E5M2)}, "v_cache is torch.float8_e5m2"),
        ({"k": torch.zeros(1, 2, 80, 32), "v": torch.zeros(1, 2, 80, 32)}, "only float8"),
        ({"k": torch.zeros(1, 2, 80, 32, dtype=torch.int8)}, "k_cache is torch.int8"),
        ({"scales": KvScales(ONES[:, :1], ONES)}, r"k scale .*\[1, 1\].*\[1, 2\]"),
        ({"scales": KvScales(ONES, ONES.double())}, "v scale is torch.float64"),
        ({"scales": KvScales(ONES, ONES.to("meta"))}, "v scale .* on meta"),
        ({"scales": KvScales(torch.ones(2, 1).T, torch.ones(1, 4)[:, ::2])}, "v scale has strides"),
    ]
)


@pytest.mark.gpu
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_long_caches_continue_after_the_block_loaded_ahead(
    head_dim: int, stored: torch.dtype
) -> None:
    sizes = {"capacity": 5000, "position": 4321, "splits": 7, "block": 128}
    assert_right(case("cuda", stored, torch.bfloat16, 2, 4, 4, head_dim, **sizes))


@pytest.mark.gpu
def test_float8_caches_beyond_32_bits_are_read() -> None:
    capacity = 2**31 // (16 * 8 * 128) + 100
    zeros = torch.zeros(16, 8, capacity, 128, dtype=E4M3, device="cuda")
    one = case("cuda", E4M3, torch.bfloat16, 16, 8, 1, 128, 1100, position=999, splits=2)
    wide = replace(one, k=zeros, v=zeros.clone())
    wide.k[:, :, :1100], wide.v[:, :, :1100] = one.k, one.v
    assert wide.k.numel() > 2**31
    assert_right(wide)
