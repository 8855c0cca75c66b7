"""Steps with K and V in float8: what they store, and their logits against transformers over a cache
that stores the same."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from decodescope.kernels.host.kv_cache import KvScales, codes
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import KvBytes
from decodescope.variants.steps.fused.kv_cache import KvCache, new_kv_cache
from decodescope.variants.steps.fused.model_parts import fused_model
from tests.helpers import families
from tests.helpers.fused_steps import decoded, fused, ids_of, load_family, prompt_of

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CONTEXT = families.ORIGINAL_MAX + 3
# Attention multiplies in float16, which moves logits by about 2^-11. After it, an element of a
# later layer that is near a tie may be stored as its neighbour, an eighth or a quarter of itself
# away.
LOGIT_ERROR = {E4M3: 2.0**-8, E5M2: 2.0**-7}


def as_stored(rows: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor | None) -> torch.Tensor:
    """`rows` [batch, KV heads, tokens, D] as the numbers that a float8 cache gives back."""
    numbers = codes(rows, dtype, scale).to(dtype).to(rows.dtype)
    return numbers if scale is None else numbers * scale[:, :, None, None]


class Float8Cache(DynamicCache):
    """transformers' cache, but every row goes through float8 once `quantise` was called."""

    def __init__(self, config: Any, like: KvCache) -> None:
        super().__init__(config=config)
        self._like = like
        self._quantising = False

    def _pair(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        scales = self._like.scales(layer) or KvScales(None, None)  # type: ignore[arg-type]
        dtype = self._like.k[0].dtype
        return [as_stored(*one) for one in ((k, dtype, scales.k), (v, dtype, scales.v))]

    def quantise(self) -> None:
        for index, layer in enumerate(self.layers):
            # None of one that reads those of another.
            if layer.keys is not None:
                layer.keys, layer.values = self._pair(index, layer.keys, layer.values)
        self._quantising = True

    def update(self, keys: Any, values: Any, index: int, *rest: Any, **more: Any) -> Any:
        if self._quantising:
            keys, values = self._pair(index, keys, values)
        return super().update(keys, values, index, *rest, **more)


@torch.no_grad()
def assert_like_transformers(spec: str, family: str, batch: int, device: str) -> None:
    loaded = load_family(family, device)
    workload = DecodeWorkload(batch, CONTEXT, 3, "fp32")
    step, prompt = fused(loaded, workload, spec), prompt_of(loaded, workload)
    step.prefill(prompt)
    past = Float8Cache(loaded.model.config, step.plan.cache)
    loaded.model(prompt.to(device), past_key_values=past, use_cache=True)
    past.quantise()
    for seed in range(2):
        ids = ids_of(loaded, batch, seed)
        expected = loaded.model(ids[:, None], past_key_values=past, use_cache=True).logits[:, -1]
        logits = step.forced_step(ids)
        error = (logits - expected).norm(dim=-1) / expected.norm(dim=-1)
        assert error.max() < LOGIT_ERROR[step.plan.cache.k[0].dtype]
    # Later layers read what float16 has rounded: an element near a tie may become its neighbour.
    scales, first = step.plan.cache.scales(0), past.layers[0]
    pairs = zip(step.plan.cache.layer(0), (first.keys, first.values), strict=True)
    for (stored, seen), scale in zip(
        pairs, (scales.k, scales.v) if scales else (None, None), strict=True
    ):
        row = codes(seen[:, :, -1], stored.dtype, scale).to(stored.dtype).float()
        assert torch.equal(stored[:, :, step.position - 1].float(), row)


@pytest.mark.parametrize("family", families.BLOCKS)
def test_logits_are_those_of_transformers_over_such_a_cache(family: str, device: str) -> None:
    assert_like_transformers("fused+kv_fp8_e4m3", family, 1, device)


@pytest.mark.parametrize("family", ["llama-tied", "mistral", "qwen3"])
def test_a_batch_and_e5m2(family: str, device: str) -> None:
    assert_like_transformers("fused+kv_fp8_e5m2", family, 3, device)


@pytest.mark.parametrize("left_out", ["qkv", "rope", "norm-residual-gate_up-head"])
def test_with_parts_left_out(left_out: str, device: str) -> None:
    assert_like_transformers(f"fused+kv_fp8_e4m3-{left_out}", "qwen3-biased", 2, device)


def test_with_weights_in_fp8_too(device: str) -> None:
    loaded = load_family("llama-tied", device)
    workload = DecodeWorkload(1, CONTEXT, 3, "fp32")
    step = fused(loaded, workload, "fused+fp8_e4m3+kv_fp8_e4m3")
    step.prefill(prompt_of(loaded, workload))
    assert step.plan.cache.k[0].dtype == E4M3
    plain = fused(loaded, workload, "fused+fp8_e4m3")
    plain.prefill(prompt_of(loaded, workload))
    ids = ids_of(loaded, 1, seed=2)
    expected = plain.forced_step(ids)
    error = (step.forced_step(ids) - expected).norm() / expected.norm()
    assert 1e-4 < error < 0.1


@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
def test_going_back_repeats_the_same_bits(format: str, device: str) -> None:
    loaded = load_family("qwen2", device)
    workload = DecodeWorkload(2, 5, 3, "fp32")
    step = fused(loaded, workload, f"fused+kv_{format}")
    step.prefill(prompt_of(loaded, workload))
    tokens = decoded(step, 3)
    before = [one.view(torch.uint8).clone() for one in step.plan.cache.k]
    step.reset(5)
    assert torch.equal(decoded(step, 3), tokens)
    after = [one.view(torch.uint8) for one in step.plan.cache.k]
    assert all(map(torch.equal, after, before))


def test_another_prompt_has_other_scales(device: str) -> None:
    loaded = load_family("llama2", device)
    workload = DecodeWorkload(1, 6, 2, "fp32")
    step = fused(loaded, workload, "fused+kv_fp8_e4m3")
    cache = step.plan.cache
    first = cache.scales(0)
    assert first is not None
    address = first.k.data_ptr()
    found = []
    for seed in range(8):
        step.prefill(prompt_of(loaded, workload, seed))
        found.append(first.k.clone())
    assert any(not torch.equal(one, found[0]) for one in found)
    # Where a captured graph reads them.
    assert cache.scales(0).k.data_ptr() == address  # type: ignore[union-attr]


@pytest.mark.parametrize(("format", "each"), [("fp8_e4m3", 4), ("fp8_e5m2", 0)])
def test_bytes_are_those_of_float8(format: str, each: int) -> None:
    loaded = load_family("mistral", "cpu", torch.bfloat16)
    step = fused(loaded, DecodeWorkload(3, 5, 3), f"fused+kv_{format}")
    rows = KvBytes(loaded.model.config, 3, 1).at(7)
    layers, kv_heads = 2, 1
    assert step.kv_bytes_read(7) == rows + each * 2 * layers * 3 * kv_heads


def quantised_cache(family: str, batch: int, capacity: int, format: Any, device: str) -> KvCache:
    parts = fused_model(families.build(family, device=device))
    cache = new_kv_cache(parts, batch, capacity, format)
    for one in (*cache.k, *cache.v):
        one.view(torch.uint8).fill_(0x7F)
    return cache


def drawn(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randn(shape, generator=generator).to(dtype).to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("size", [2.0**-20, 1.0, 1000.0])
def test_a_prompt_is_stored_to_half_a_unit(
    size: float, format: str, dtype: torch.dtype, device: str
) -> None:
    cache = quantised_cache("llama-tied", 3, 9, format, device)
    keys = (drawn(3, 2, 6, 32, device=device) * size).to(dtype)
    values = keys.flip(0) * 2
    cache.fill(1, keys, values, 6)
    scales = cache.scales(1)
    for stored, rows, scale in zip(
        cache.layer(1),
        (keys, values),
        (scales.k, scales.v) if scales else (None, None),
        strict=True,
    ):
        expected = codes(rows.double(), stored.dtype, scale)
        digits, least = (3, 2.0**-9) if format == "fp8_e4m3" else (2, 2.0**-16)
        # Not by log2: the GPU's is a little off at powers of two.
        _, exponents = torch.frexp(expected)
        unit = torch.ldexp(torch.ones_like(expected), exponents - 1 - digits)
        half = torch.where(expected == 0, 0.0, unit.clamp(min=least) / 2)
        assert ((stored[:, :, :6].double() - expected).abs() <= half).all()
        assert (stored[:, :, 6:].view(torch.uint8) == 0x7F).all()
    assert (cache.k[0].view(torch.uint8) == 0x7F).all()


def test_scales_bring_each_heads_largest_to_a_quarter_up_to_half_of_the_range(device: str) -> None:
    cache = quantised_cache("llama-tied", 2, 9, "fp8_e4m3", device)
    sizes = torch.tensor([[1e-30, 3.0], [224.0, 1e30]], device=device)[:, :, None, None]
    keys = drawn(2, 2, 9, 32, device=device).clamp(-1, 1)
    keys[:, :, 4, 7] = -1.0
    cache.fill(0, keys * sizes, keys, 9)
    scales = cache.scales(0)
    assert scales is not None
    largest = sizes[:, :, 0, 0] / scales.k
    assert (largest >= 112).all()
    assert (largest <= 224).all()
    fractions, _ = torch.frexp(torch.stack((scales.k, scales.v)))
    assert (fractions == 0.5).all()
    assert (cache.all_scales[1].k == 1).all()


def test_zeros_infinities_and_nan_of_a_prompt(device: str) -> None:
    cache = quantised_cache("llama-tied", 1, 4, "fp8_e4m3", device)
    keys = drawn(1, 2, 4, 32, device=device)
    keys[0, 0] = 0.0
    keys[0, 1, 2, :3] = torch.tensor([float("inf"), -float("inf"), float("nan")])
    values = torch.full_like(keys, float("nan"))
    values[0, 1] = 1e-45
    cache.fill(0, keys, values, 4)
    scales = cache.scales(0)
    assert scales is not None
    k, v = cache.layer(0)
    assert scales.k[0, 0] == scales.v[0, 0] == 1.0
    assert not k[0, 0].float().any()
    assert k[0, 1, 2, :2].float().tolist() == [448.0, -448.0]
    assert k.float().isnan().nonzero().tolist() == [[0, 1, 2, 2]]
    assert 2.0**-7 < scales.k[0, 1] < 2.0**-4
    assert v[0, 0].float().isnan().all()
    # The smallest float32: 1 / scale must be one as well.
    assert (1.0 / scales.v[0, 1]).isfinite()
    assert v[0, 1].float().isfinite().all()


def test_a_window_is_stored_where_it_came_from(device: str) -> None:
    cache = quantised_cache("mistral", 2, 20, "fp8_e4m3", device)
    held = drawn(2, 1, families.WINDOW - 1, 32, device=device)
    cache.fill(0, held, held, 15)
    first = 15 - held.shape[2]
    written = cache.k[0].view(torch.uint8) != 0x7F
    assert written[:, :, first:15].all()
    assert not written[:, :, :first].any()
    assert not written[:, :, 15:].any()


@pytest.mark.parametrize(("format", "dtype"), [("fp8_e4m3", E4M3), ("fp8_e5m2", E5M2)])
def test_a_new_cache_takes_half_the_bytes(format: Any, dtype: torch.dtype, device: str) -> None:
    parts = fused_model(families.build("qwen3", torch.bfloat16, device=device))
    cache = new_kv_cache(parts, 3, 10, format)
    for narrow, wide in zip(cache.k, new_kv_cache(parts, 3, 10).v, strict=True):
        assert (narrow.dtype, 2 * narrow.nbytes) == (dtype, wide.nbytes)
    assert (cache.scales(0) is None) == (format == "fp8_e5m2")
    assert len(cache.all_scales) == (0 if format == "fp8_e5m2" else 2)
    for scales in cache.all_scales:
        assert scales.k.shape == scales.v.shape == (3, 2)
        assert (scales.k == 1).all()


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("batch", [1, 8])
def test_one_graph_serves_prompts_of_other_scales(batch: int, format: str) -> None:
    loaded = load_family("qwen3", "cuda", torch.bfloat16)
    workload = DecodeWorkload(batch, 33, 12)
    steps = [fused(loaded, workload, f"{name}+kv_{format}") for name in ("fused", "fused+graph")]
    for seed in range(3):
        prompt = prompt_of(loaded, workload, seed)
        for step in steps:
            step.prefill(prompt)
        launched, replayed = (decoded(step, 6) for step in steps)
        assert torch.equal(launched, replayed)
        ids = ids_of(loaded, batch, seed)
        logits = [step.forced_step(ids) for step in steps]
        assert torch.equal(*logits)
        caches = [step.plan.cache for step in steps]
        for one, other in zip(*(cache.k for cache in caches), strict=True):
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # from the sync debug mode
def test_a_step_does_not_synchronise() -> None:
    loaded = load_family("qwen3", "cuda", torch.bfloat16)
    workload = DecodeWorkload(2, 5, 20)
    step = fused(loaded, workload, "fused+graph+kv_fp8_e4m3")
    step.prefill(prompt_of(loaded, workload))
    step.step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        decoded(step, 10)
    finally:
        torch.cuda.set_sync_debug_mode("default")
