"""The model's weights as each variant needs them: quantised in place, loaded again, or left."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants import registry
from decodescope.variants.live.session import TorchSession
from decodescope.variants.measuring import preparation
from decodescope.variants.measuring.preparation import Prepared, prepare, require_weights
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import (
    Quantization,
    quantization_of,
    quantized_formats,
)
from decodescope.variants.model.quantizing import is_quantized
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import StepFlops
from decodescope.variants.registry import Variant, build_variant, find_variant
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.eager_step import EagerStep

CONFIG = WorkerConfig(
    variant="eager", batch=1, tokens=3, model="tiny", device="cpu", context=4, dtype="bf16"
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def prepared() -> Prepared:
    return prepare(CONFIG, ignore)


def ignore(stage: str) -> None:
    pass


def test_weights_are_quantised_in_place_with_progress(prepared: Prepared) -> None:
    said: list[str] = []
    ready = require_weights(prepared, "fp8", said.append)
    assert ready is prepared
    layers = prepared.loaded.model.config.num_hidden_layers
    assert said == [
        *(f"quantising to fp8_e4m3: layer {n} of {layers}" for n in range(1, layers + 1)),
        "quantising to fp8_e4m3: embedding and head",
    ]
    assert is_quantized(ready.loaded.model, Quantization("fp8_e4m3"))


@pytest.mark.parametrize("other", ["fused+fp8_e4m3", "fused+graph+fp8_e4m3-rope", "fp8"])
def test_variants_that_store_the_same_share_the_weights(prepared: Prepared, other: str) -> None:
    ready = require_weights(prepared, "fused+graph+fp8_e4m3", ignore)
    said: list[str] = []
    assert require_weights(ready, other, said.append) is ready
    assert said == []


def test_a_model_as_it_was_loaded_serves_every_unquantised_variant(prepared: Prepared) -> None:
    for variant in ("eager", "compiled", "fused+graph", "fused+bf16"):
        assert require_weights(prepared, variant, ignore) is prepared
    assert quantized_formats(prepared.loaded.model) == {}


@pytest.mark.parametrize("variant", ["eager", "fused+int8", "fused+int4", "fused+fp8_e4m3+head16"])
def test_the_weights_come_back(prepared: Prepared, variant: str) -> None:
    old = require_weights(prepared, "fp8", ignore)
    said: list[str] = []
    ready = require_weights(old, variant, said.append)
    # 2 bytes for each parameter of tiny.
    size = sum(parameter.numel() for parameter in fresh().model.parameters()) * 2
    assert prepared.load_ns is not None
    assert said[0] == (
        f"loading the bf16 weights again ({size / 1e6:.2f} MB, {prepared.load_ns / 1e9:.0f} s at "
        "first)"
    )
    assert said[1].startswith("loaded the bf16 weights again in ")
    assert ready.workload == prepared.workload
    assert old.loaded.model.device.type == "meta"
    assert all(tensor.is_meta for tensor in old.loaded.model.parameters())
    expected = fresh()
    quantization = quantization_of(find_variant(variant).spec)
    if quantization is None:
        assert_equal_weights(ready.loaded, expected)
    else:
        assert is_quantized(ready.loaded.model, quantization)


def test_a_failed_load_leaves_the_old_variant_usable(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = require_weights(prepared, "fp8", ignore)
    ids = torch.arange(6)[None]
    before = ready.loaded.model(ids).logits

    def gone(*_: Any, **__: Any) -> LoadedModel:
        raise MissingRequirement("the cache was emptied")

    monkeypatch.setattr(preparation, "load_model", gone)
    with pytest.raises(MissingRequirement, match="the cache was emptied"):
        require_weights(ready, "eager", ignore)
    said: list[str] = []
    assert require_weights(ready, "fp8", said.append) is ready
    assert said == []
    assert torch.equal(ready.loaded.model(ids).logits, before)


def test_without_room_for_both_the_old_weights_go_first(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = require_weights(prepared, "fp8", ignore)
    loads: list[str] = []

    def load(*given: Any, **options: Any) -> LoadedModel:
        loads.append(ready.loaded.model.device.type)
        if len(loads) == 1:
            raise MissingRequirement("the cache was emptied")
        return load_model(*given, **options)

    monkeypatch.setattr(preparation, "load_model", load)
    monkeypatch.setattr(
        preparation, "free_host_bytes", lambda: int(1.2 * ready.loaded.weight_bytes)
    )
    with pytest.raises(MissingRequirement, match="the cache was emptied"):
        require_weights(ready, "eager", ignore)
    again = require_weights(ready, "fp8", ignore)
    assert loads == ["meta", "meta"]
    assert is_quantized(again.loaded.model, Quantization("fp8_e4m3"))


@pytest.mark.parametrize("variant", ["eager", "fp8"])
@torch.no_grad()
def test_a_model_that_was_quantised_half_way_is_loaded_again(
    prepared: Prepared, variant: str
) -> None:
    last = prepared.loaded.model.model.layers[-1].mlp.down_proj
    last.weight[0, 0] = torch.nan
    with pytest.raises(ModelError, match="down_proj: row 0 has NaN"):
        require_weights(prepared, "fp8", ignore)
    assert quantized_formats(prepared.loaded.model)
    with pytest.raises(ModelError, match="quantised for another variant"):
        build_variant("eager", prepared.loaded, prepared.workload, "cpu")
    said: list[str] = []
    ready = require_weights(prepared, variant, said.append)
    assert said[0].startswith("loading the bf16 weights again")
    assert bool(quantized_formats(ready.loaded.model)) == (variant == "fp8")


def test_no_variant_is_built_on_the_weights_of_another(prepared: Prepared) -> None:
    ready = require_weights(prepared, "fp8", ignore)
    with pytest.raises(ModelError, match="variant eager: the weights of tiny were quantised"):
        build_variant("eager", ready.loaded, ready.workload, "cpu")


def test_a_model_that_was_loaded_quantised_counts_as_it_is(prepared: Prepared) -> None:
    quantised = require_weights(prepared, "fused+fp8_e4m3+head16", ignore).loaded
    loaded = replace(quantised, formats=quantized_formats(quantised.model))
    as_is = replace(prepared, loaded=loaded)
    assert require_weights(as_is, "eager", ignore) is as_is
    assert require_weights(as_is, "fused+fp8_e4m3", ignore) is as_is
    assert is_quantized(loaded.model, Quantization("fp8_e4m3"))


def test_flops_do_not_depend_on_how_weights_are_stored(prepared: Prepared) -> None:
    before = StepFlops(prepared.loaded.model, 2).at(10)
    ready = require_weights(prepared, "fused+int8+embedding8", ignore)
    assert StepFlops(ready.loaded.model, 2).at(10) == before


def test_the_live_session_switches_and_survives_a_failed_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> EagerStep:
        return EagerStep(loaded, workload)

    own = Variant("eight", "for a test", False, build, spec=VariantSpec.parse("fused+int8"))
    monkeypatch.setattr(registry, "_installed", lambda: ([own], []))
    profiler: Any = SimpleNamespace(kernel_floor_ns=None)
    session = TorchSession(prepare(CONFIG, ignore), profiler, None)
    prompt, first = session.prompt(0), session.build("eager", ignore)
    expected = first.prefill(prompt)
    said: list[str] = []
    eight = session.build("eight", said.append)
    assert said[0].startswith("quantising to int8: layer 1")
    assert said[-1] == "building"
    assert eight.weight_bytes_read < 0.6 * first.weight_bytes_read

    def gone(*_: Any, **__: Any) -> LoadedModel:
        raise MissingRequirement("the cache was emptied")

    with monkeypatch.context() as patched:
        patched.setattr(preparation, "load_model", gone)
        with pytest.raises(MissingRequirement, match="the cache was emptied"):
            session.build("eager", ignore)
        # What the loop does next: the old variant again.
        session.build("eight", ignore).prefill(prompt)
    said.clear()
    again = session.build("eager", said.append)
    assert said[0].startswith("loading the bf16 weights again")
    assert torch.equal(again.prefill(session.prompt(0)), expected)


def fresh() -> LoadedModel:
    return load_model(resolve_model("tiny"), "cpu", "bf16")


def assert_equal_weights(one: LoadedModel, other: LoadedModel) -> None:
    theirs = dict(other.model.named_parameters())
    assert set(dict(one.model.named_parameters())) == set(theirs)
    for name, parameter in one.model.named_parameters():
        assert torch.equal(parameter, theirs[name])
