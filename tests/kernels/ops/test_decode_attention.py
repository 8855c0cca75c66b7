from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.kernels.device.attention_splits import attention_workspace, combination
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.workspace import Workspace, new_workspace
from decodescope.kernels.ops.decode_attention import DecodeAttention, decode_attention_reference
from tests.helpers.refusals import refuses

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: 1e-6,
    torch.float16: 5e-4,
    # The interpreter truncates to bfloat16, where a GPU rounds.
    torch.bfloat16: 4e-3 if torch.cuda.is_available() else 8e-3,
}


@dataclass
class Attention:
    """Inputs of one call. Rows of the cache that it must not use are NaN, and so is the output."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    position: int
    window: int | None
    tile: Tile
    out: torch.Tensor
    workspace: Workspace
    cap: float | None = None
    sinks: torch.Tensor | None = None

    @property
    def scale(self) -> float:
        return float(self.q.shape[-1]) ** -0.5

    def run(self, pdl: bool = False) -> torch.Tensor:
        position = torch.tensor([self.position], dtype=torch.int32, device=self.q.device)
        DecodeAttention(
            self.q,
            self.k,
            self.v,
            position,
            self.scale,
            self.out,
            self.tile,
            self.workspace,
            self.window,
            cap=self.cap,
            sinks=self.sinks,
        ).launch(pdl)
        return self.out

    def reference(self) -> torch.Tensor:
        return decode_attention_reference(
            self.q,
            self.k,
            self.v,
            self.position,
            self.scale,
            self.window,
            cap=self.cap,
            sinks=self.sinks,
        )


def attention(
    device: str,
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
) -> Attention:
    heads = kv_heads * group
    seed = hash((batch, kv_heads, group, head_dim, capacity, position, splits))
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).to(device)

    q = normal(batch, heads, head_dim)
    k = normal(batch, kv_heads, capacity, head_dim)
    v = normal(batch, kv_heads, capacity, head_dim)
    first = 0 if window is None else max(0, position - window + 1)
    for cache in (k, v):
        cache[:, :, :first] = float("nan")
        cache[:, :, position + 1 :] = float("nan")
    workspace = new_workspace(*attention_workspace(batch, heads, head_dim, splits), device)
    workspace.partials.fill_(float("nan"))
    tile = Tile(1, block, splits=splits)
    return Attention(q, k, v, position, window, tile, torch.full_like(q, float("nan")), workspace)


def error(out: torch.Tensor, reference: torch.Tensor) -> float:
    return float((out.double() - reference).norm() / reference.norm())


def assert_right(case: Attention) -> None:
    out = case.run()
    assert error(out, case.reference()) < TOLERANCE[out.dtype]
    assert not case.workspace.counters.any()


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("cap", [0.5, 40.0])
def test_scores_have_a_soft_cap(cap: float, splits: int, device: str) -> None:
    case = replace(attention(device, batch=2, kv_heads=2, splits=splits), cap=cap)
    case.q *= 5
    assert_right(case)
    scores = torch.einsum("bhd,bhtd->bht", case.q, case.k[:, :, :71].repeat_interleave(2, dim=1))
    weights = (torch.tanh(scores * case.scale / cap) * cap).softmax(-1)
    expected = torch.einsum("bht,bhtd->bhd", weights, case.v[:, :, :71].repeat_interleave(2, dim=1))
    torch.testing.assert_close(case.out, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 1, 3, 9, 10, 40])
def test_reference_is_masked_attention(window: int | None) -> None:
    case = attention("cpu", batch=2, kv_heads=2, group=3, capacity=10, position=9, window=window)
    age = 9 - torch.arange(10)
    mask = age < (10 if window is None else window)
    k, v = (torch.nan_to_num(cache).repeat_interleave(3, dim=1) for cache in (case.k, case.v))
    expected = torch.nn.functional.scaled_dot_product_attention(
        case.q[:, :, None].double(), k.double(), v.double(), attn_mask=mask[None, :]
    )
    torch.testing.assert_close(case.reference(), expected[:, :, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [1, 3, 7, 8, 16, 17, 32])
def test_every_ratio_of_query_to_kv_heads(group: int, dtype: torch.dtype, device: str) -> None:
    assert_right(attention(device, dtype, group=group, splits=2, block=32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [32, 34, 64, 80, 96, 128, 254, 256, 512])
def test_every_head_dim(head_dim: int, dtype: torch.dtype, device: str) -> None:
    assert_right(attention(device, dtype, head_dim=head_dim, position=41, capacity=42))


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 63, 64, 65, 98])
def test_every_position_ignores_later_rows(position: int, splits: int, device: str) -> None:
    assert_right(attention(device, capacity=99, position=position, splits=splits, block=32))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 16, 17, 33, 70, 71, 72, 2**40])
def test_every_window_ignores_earlier_rows(window: int, splits: int, device: str) -> None:
    assert_right(attention(device, window=window, splits=splits, block=16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("behind", [0, 1, 16, 17, 40])
def test_rows_after_the_first_blocks(
    behind: int, splits: int, dtype: torch.dtype, device: str
) -> None:
    rows = 32 * splits + behind + 1
    for window in (None, rows):
        capacity = rows if window is None else rows + 50
        case = attention(
            device, dtype, 1, 1, 2, 32, capacity, capacity - 1, window, splits, block=32
        )
        assert_right(case)


@pytest.mark.parametrize("behind", [0, 17])
def test_more_programs_than_multiprocessors(behind: int, device: str) -> None:
    rows = 32 + behind + 1
    assert_right(attention(device, kv_heads=140, capacity=rows, position=rows - 1, block=32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sequences_and_heads_are_independent(dtype: torch.dtype, device: str) -> None:
    assert_right(attention(device, dtype, batch=3, kv_heads=2, group=3, splits=2, block=64))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("position", [0, 70])
def test_sinks_add_to_the_sum_of_the_softmax(position: int, splits: int, device: str) -> None:
    case = attention(device, batch=2, kv_heads=2, group=3, splits=splits, position=position)
    without = case.reference()
    sinks = torch.tensor([0.4, -30.0, 3.0, 7.0, float("-inf"), 40.0], device=device)
    assert_right(replace(case, sinks=sinks))
    assert error(case.out[:, [1, 4]], without[:, [1, 4]]) < TOLERANCE[torch.float32]
    assert error(case.out[:, [0, 2, 3]], without[:, [0, 2, 3]]) > 0.3
    assert case.out[:, 5].abs().max() < 1e-12
    assert case.out.isfinite().all()


def test_splits_change_rounding_only(device: str) -> None:
    whole = attention(device, group=5, head_dim=48)
    expected = whole.run().double()
    for splits in (2, 5, 9):
        case = attention(device, group=5, head_dim=48, splits=splits)
        case = replace(case, q=whole.q, k=whole.k, v=whole.v)
        assert error(case.run(), expected) < 5e-7


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_second_run_gives_the_same_bits(dtype: torch.dtype, device: str) -> None:
    case = attention(device, dtype, kv_heads=2, splits=4, block=16)
    first = case.run().clone()
    case.out.fill_(float("nan"))
    assert torch.equal(case.run(), first)
    assert not case.workspace.counters.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("winner", [0, 40, 70])
def test_very_large_scores_select_the_largest(
    winner: int, splits: int, dtype: torch.dtype, device: str
) -> None:
    case = attention(device, dtype, group=1, splits=splits, block=16)
    case.q.fill_(180.0)
    case.k.fill_(-180.0)
    case.k[:, :, winner] = 180.0
    out, expected = case.run()[:, 0], case.v[:, 0, winner]
    if splits == 1:
        assert torch.equal(out, expected)
    else:
        # A split scales its values in float32; the interpreter truncates what that rounds down.
        ulp = 2**-7 if dtype == torch.bfloat16 and device == "cpu" else 0.0
        ulp = 2**-22 if dtype == torch.float32 else ulp
        torch.testing.assert_close(out, expected, rtol=ulp, atol=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_splits_store_sums_relative_to_powers_of_two(dtype: torch.dtype, device: str) -> None:
    case = attention(device, dtype, position=25, splits=4, block=16)
    case.run()
    batch, heads, head_dim = case.q.shape
    rows = batch * heads * 4
    anchors, sums = case.workspace.partials[rows * head_dim :][: 2 * rows].view(2, rows).cpu()
    empty = anchors == float("-inf")
    assert empty.any()
    assert torch.equal(anchors[~empty], anchors[~empty].round())
    assert (sums[empty] == 0).all()
    assert (sums[~empty] > 0.5).all()


@settings(max_examples=12, deadline=None)
@given(
    position=st.integers(0, 49),
    window=st.integers(1, 60),
    splits=st.integers(1, 4),
    constant=st.floats(-100, 100, width=16),
)
def test_equal_values_are_their_own_average(
    position: int, window: int, splits: int, constant: float
) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    case = attention(device, capacity=50, position=position, window=window, splits=splits, block=32)
    case.v[~case.v.isnan()] = constant
    expected = torch.full_like(case.out, constant)
    torch.testing.assert_close(case.run(), expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("position", [-1, 80, 81, 2**31 - 1])
def test_at_a_position_outside_the_cache_nothing_is_written(
    position: int, splits: int, device: str
) -> None:
    case = replace(attention(device, splits=splits), position=position)
    assert case.run().isnan().all()
    assert not case.workspace.counters.any()


@pytest.mark.parametrize(
    ("batch", "kv_heads", "heads_at_once", "width", "programs"),
    [(2, 2, 1, 16, 24), (1, 12, 1, 32, 36), (8, 4, 2, 32, 64), (16, 5, 4, 32, 64)],
)
def test_every_way_to_share_the_combination(
    batch: int, kv_heads: int, heads_at_once: int, width: int, programs: int, device: str
) -> None:
    """Of a group of 3: half a head, one, two, all with room for a fourth and pieces in turn."""
    case = attention(device, batch=batch, kv_heads=kv_heads, group=3, position=40, splits=3)
    parts = combination(batch, kv_heads, 3, 32, 3, case.tile.num_warps, multiprocessors=132)
    assert (parts.heads, parts.width, parts.programs) == (heads_at_once, width, programs)
    assert_right(case)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"q": torch.zeros(2, 32)}, r"\[batch, heads, D\]"),
    ({"q": torch.zeros(1, 2, 32).int()}, "q is torch.int32"),
    ({"q": torch.zeros(1, 2, 32).half()}, "out is torch.float32 .*must be torch.float16"),
    ({"q": torch.zeros(1, 2, 64)[:, :, ::2]}, "q has strides"),
    ({"q": torch.zeros(1, 3, 32), "out": torch.zeros(1, 3, 32)}, "multiple of 2 KV heads"),
    ({"k": torch.zeros(1, 2, 80, 30)}, r"k_cache .*\[1, 2, 80, 32\]"),
    ({"v": torch.zeros(1, 2, 81, 32)}, r"v_cache .*\[1, 2, 80, 32\]"),
    ({"v": torch.zeros(1, 2, 80, 32, device="meta")}, "v_cache .* on meta"),
    ({"out": torch.zeros(1, 2, 30)}, r"out .*\[1, 2, 30\].*\[1, 2, 32\]"),
    ({"window": 0}, "window 0"),
    ({"tile": Tile(1, 8)}, "at least 16"),
    ({"tile": Tile(1, 16, num_stages=2)}, "tile of 2 stages"),
    ({"tile": Tile(1, 16, splits=2)}, "workspace"),
    ({"tile": Tile(1, 16, splits=65)}, "65 splits: at most 64"),
]


test_refuses_what_it_cannot_do = refuses(
    [
        *(
            (replace(attention("cpu", kv_heads=2, group=1), **change).run, complaint)
            for change, complaint in REFUSED
        ),
        *((attention("cpu", head_dim=size).run, "head_dim") for size in (30, 33, 514)),
        (attention("cpu", batch=65).run, "1 to 64"),
    ]
)


def test_refuses_a_position_that_kernels_cannot_read() -> None:
    case = attention("cpu")
    for position in (torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int32)):
        with pytest.raises(ValueError, match=r"position is torch\.int.*: must be torch\.int32"):
            DecodeAttention(
                case.q, case.k, case.v, position, 1.0, case.out, case.tile, case.workspace
            ).launch()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_long_caches_continue_after_the_block_loaded_ahead(
    head_dim: int, dtype: torch.dtype
) -> None:
    assert_right(
        attention(
            "cuda", dtype, 2, 4, 4, head_dim, capacity=5000, position=4321, splits=7, block=32
        )
    )


@pytest.mark.gpu
@pytest.mark.parametrize("splits", [1, 8])
def test_overlap_changes_no_bit(splits: int) -> None:
    if not can_overlap(torch.device("cuda")):
        pytest.skip("needs compute capability 9.0")
    case = attention(
        "cuda", torch.bfloat16, 1, 8, 4, 64, capacity=3000, position=2900, splits=splits, block=64
    )
    expected = case.run().clone()
    for _ in range(20):
        case.out.fill_(float("nan"))
        assert torch.equal(case.run(pdl=True), expected)
    assert not case.workspace.counters.any()


@pytest.mark.gpu
def test_one_graph_serves_every_position() -> None:
    case = attention("cuda", torch.bfloat16, kv_heads=2, capacity=600, position=599, splits=3)
    position = torch.zeros(1, dtype=torch.int32, device="cuda")

    def launch() -> None:
        DecodeAttention(
            case.q, case.k, case.v, position, case.scale, case.out, case.tile, case.workspace
        ).launch()

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for case.position in (0, 1, 17, 300, 599):
        position.fill_(case.position)
        case.out.fill_(float("nan"))
        graph.replay()
        assert error(case.out, case.reference()) < TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
def test_caches_beyond_32_bits_are_read() -> None:
    capacity = 2**31 // (16 * 8 * 128) + 100
    case = attention("cuda", torch.bfloat16, 16, 8, 1, 128, capacity, position=999, splits=2)
    assert case.k.numel() > 2**31
    assert_right(case)
