import weakref
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from decodescope.variants.steps.fused.kv_cache import KvCache, new_kv_cache, prefill
from decodescope.variants.steps.fused.model_parts import fused_model
from tests.helpers.families import WINDOW, build, prompt_ids


@torch.no_grad()
def prefilled(name: str, batch: int, length: int, device: str) -> DynamicCache:
    model = build(name, device=device)
    past = DynamicCache(config=model.config)
    model(prompt_ids(name, batch, length).to(device), past_key_values=past, use_cache=True)
    return past


def fill(cache: KvCache, past: DynamicCache, length: int) -> None:
    for index, layer in enumerate(past.layers):
        cache.fill(index, layer.keys, layer.values, length)


def nan_cache(name: str, batch: int, capacity: int, device: str) -> KvCache:
    cache = new_kv_cache(fused_model(build(name, device=device)), batch, capacity)
    for one in (*cache.k, *cache.v):
        one.fill_(torch.nan)
    return cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_new_cache_is_laid_out_and_counted(dtype: torch.dtype, device: str) -> None:
    parts = fused_model(build("qwen3", dtype, device=device))
    cache = new_kv_cache(parts, 3, 10)
    assert len(cache.k) == len(cache.v) == 2
    for one in (*cache.k, *cache.v):
        assert (one.shape, one.dtype) == ((3, 2, 10, 48), dtype)
    k, v = cache.layer(1)
    assert k.data_ptr() == cache.k[1].data_ptr()
    assert v.data_ptr() == cache.v[1].data_ptr()
    assert k.is_contiguous()


@pytest.mark.parametrize("format", [None, "fp8_e4m3"])
def test_layers_have_heads_of_their_own_or_rows_of_another(format: Any, device: str) -> None:
    parts = fused_model(build("gemma4-inputs", device=device))
    cache = new_kv_cache(parts, 3, 10, format)
    assert [layer.kv_from for layer in parts.layers] == [None, None, 0, 1]
    for index, size in enumerate((32, 48, 32, 48)):
        for one in cache.layer(index):
            assert one.shape == (3, 2, 10, size)
            assert one.is_contiguous()
    addresses = [one.data_ptr() for one in (*cache.k, *cache.v)]
    assert addresses[:2] + addresses[4:6] == addresses[2:4] + addresses[6:]
    assert len(set(addresses)) == 4
    assert all(cache.scales(index) is cache.scales(index + 2) for index in range(2))


@pytest.mark.parametrize("length", [1, 9])
def test_a_prompt_goes_to_its_positions_and_nowhere_else(length: int, device: str) -> None:
    past = prefilled("llama-tied", 2, length, device)
    cache = nan_cache("llama-tied", 2, 9, device)
    fill(cache, past, length)
    for index, layer in enumerate(past.layers):
        k, v = cache.layer(index)
        assert torch.equal(k[:, :, :length], layer.keys)
        assert torch.equal(v[:, :, :length], layer.values)
        assert k[:, :, length:].isnan().all()
        assert v[:, :, length:].isnan().all()


@pytest.mark.parametrize("length", [3, WINDOW - 1, WINDOW, 15])
def test_a_window_goes_to_the_positions_it_came_from(length: int, device: str) -> None:
    past = prefilled("mistral", 2, length, device)
    cache = nan_cache("mistral", 2, 20, device)
    fill(cache, past, length)
    held = min(length, WINDOW - 1)
    k, _ = cache.layer(1)
    assert torch.equal(k[:, :, length - held : length], past.layers[1].keys)
    assert k[:, :, : length - held].isnan().all()
    assert k[:, :, length:].isnan().all()


def test_prefill_gives_the_models_logits_and_fills_the_cache(device: str) -> None:
    model = build("qwen3", torch.bfloat16, device=device)
    ids = prompt_ids("qwen3", 3, 8).to(device)
    cache = new_kv_cache(fused_model(model), 3, 12)
    logits = prefill(model, ids, cache)
    with torch.no_grad():
        output = model(ids, use_cache=True, logits_to_keep=1)
    assert torch.equal(logits, output.logits[:, -1])
    assert not logits.requires_grad
    assert torch.equal(cache.k[1][:, :, :8], output.past_key_values.layers[1].keys)
    assert not any(one[:, :, 8:].any() for one in cache.k)


def test_a_second_prompt_overwrites_the_first(device: str) -> None:
    model = build("llama2", device=device)
    parts = fused_model(model)
    cache, other = (new_kv_cache(parts, 1, 9) for _ in range(2))
    first, second = prompt_ids("llama2", 1, 9, seed=1), prompt_ids("llama2", 1, 9, seed=2)
    prefill(model, first.to(device), cache)
    prefill(model, second.to(device), cache)
    prefill(model, second.to(device), other)
    assert all(map(torch.equal, (*cache.k, *cache.v), (*other.k, *other.v)))


@pytest.mark.parametrize(
    ("batch", "length", "message"),
    [
        (2, 10, r"K or V of shape \[2, 3, 10, 32\]: must be \[2, 3, 9, 32\]"),
        (1, 5, r"K or V of shape \[1, 3, 5, 32\]: must be \[2, 3, 5, 32\]"),
    ],
)
def test_what_does_not_fit_is_refused(batch: int, length: int, message: str, device: str) -> None:
    layer = prefilled("llama2", batch, length, device).layers[0]
    with pytest.raises(ValueError, match=message):
        nan_cache("llama2", 2, 9, device).fill(0, layer.keys, layer.values, length)


def test_a_layer_of_fewer_tokens_than_the_prompt_is_refused(device: str) -> None:
    layer = prefilled("llama2", 2, 6, device).layers[0]
    with pytest.raises(ValueError, match=r"\[2, 3, 6, 32\]: must be \[2, 3, 5, 32\]"):
        nan_cache("llama2", 2, 9, device).fill(0, layer.keys, layer.values, 5)


def test_a_cache_of_more_layers_is_refused(device: str) -> None:
    model = build("llama2", device=device)
    cache = nan_cache("llama2", 2, 9, device)
    other = KvCache(*((*one, one[0].clone()) for one in (cache.k, cache.v)))
    with pytest.raises(ValueError, match="2 layers: this cache has 3"):
        prefill(model, prompt_ids("llama2", 2, 5).to(device), other)


def test_a_prefill_holds_one_layer_at_a_time(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("llama2", device=device)
    cache = new_kv_cache(fused_model(model), 2, 9)
    held: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []
    fill_layer = KvCache.fill

    def watched(self: KvCache, index: int, *layer: Any) -> None:
        alive.append(sum(one() is not None for one in held))
        held.extend(weakref.ref(one) for one in layer[:2])
        fill_layer(self, index, *layer)

    monkeypatch.setattr(KvCache, "fill", watched)
    prefill(model, prompt_ids("llama2", 2, 5).to(device), cache)
    assert alive == [0, 0]
    assert len(held) == 4
