"""Layers from kernel names, compared with the ranges of recorded steps, which it never sees."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.structure.layers import Layer
from tests.helpers.recorded.decode_ops import RecordedStep, layers_of, recorded_steps

STEPS = recorded_steps()
WITHOUT_LAYERS = ("vision", "diffusion", "random ops")
TRANSFORMERS = [case for case in STEPS if case not in WITHOUT_LAYERS]
# What these models were made with (tools/foreign_models.py, the presets).
EXPECTED = {"gemma3": 12, "llama-3.2-1b": 16, "llama-3.1-8b": 32}


def _expected(case: str) -> int:
    return next((layers for start, layers in EXPECTED.items() if case.startswith(start)), 6)


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_boundaries_are_those_of_the_ranges(case: str) -> None:
    step = STEPS[case]
    found = layers_of(step.names, step.ns)
    assert found is not None
    assert len(found.layers) == _expected(case)
    truth = step.layers
    for number, layer in enumerate(found.layers):
        named = {truth[i] for i in range(layer.start, layer.end)} - {-1}
        assert named <= {number}
    if max(truth) >= 0:
        for number, layer in enumerate(found.layers[1:], 1):
            assert truth.index(number) == layer.start


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_layers_follow_each_other(case: str) -> None:
    found = layers_of(STEPS[case].names)
    assert found is not None
    for one, following in zip(found.layers, found.layers[1:], strict=False):
        assert one.end == following.start
    for one in found.layers:
        assert one.start <= one.attention < one.after_attention <= one.end
    assert {layer.motif for layer in found.layers} == set(range(len(found.motif_ops)))


def test_alternating_layers_are_motifs_of_their_own() -> None:
    found = layers_of(STEPS["gemma3 eager"].names)
    assert found is not None
    motifs = "".join(str(layer.motif) for layer in found.layers)
    assert motifs == "000001000001"
    deepseek = layers_of(STEPS["deepseek-v3 eager"].names)
    assert deepseek is not None
    assert [layer.motif for layer in deepseek.layers] == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("case", WITHOUT_LAYERS)
def test_no_layers_are_invented(case: str) -> None:
    assert layers_of(STEPS[case].names, STEPS[case].ns) is None


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(list(STEPS)), seed=st.integers(0, 2**32 - 1))
def test_shuffled_names_have_no_layers(case: str, seed: int) -> None:
    names = list(STEPS[case].names)
    random.Random(seed).shuffle(names)
    assert layers_of(names) is None


@pytest.mark.parametrize("names", [[], ["gemm"], ["flash_fwd"] * 40, ["gemm"] * 1000])
def test_sequences_without_a_motif_have_none(names: list[str]) -> None:
    assert layers_of(names) is None


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from(["llama eager", "qwen3-moe eager", "llama-3.1-8b fused+graph"]),
    share=st.floats(0.2, 0.8),
    names=st.lists(st.sampled_from(["Memcpy DtoD (Device -> Device)", "odd_one"]), max_size=3),
)
def test_more_ops_in_one_layer_make_only_that_layer_unlike_the_others(
    case: str, share: float, names: list[str]
) -> None:
    step = STEPS[case]
    whole = layers_of(step.names)
    assert whole is not None
    chosen = whole.layers[int(share * len(whole.layers))]
    place = chosen.start + 1 + int(share * (chosen.end - chosen.start - 1))
    found = layers_of([*step.names[:place], *names, *step.names[place:]])
    assert found is not None
    assert len(found.layers) == len(whole.layers)
    unlike = [number for number, layer in enumerate(found.layers) if not layer.exact]
    assert unlike == ([whole.layers.index(chosen)] if names else [])


def test_an_unknown_kernel_in_the_place_of_attention_is_taken_for_it() -> None:
    step = STEPS["llama-3.1-8b fused+graph"]
    names = [name.replace("_decode_attention_kernel", "zz9") for name in step.names]
    known, found = layers_of(step.names), layers_of(names, step.ns)
    assert known is not None
    assert found is not None
    assert _places(known.layers) == _places(found.layers)


def _places(layers: tuple[Layer, ...]) -> list[tuple[int, int]]:
    return [(layer.start, layer.end) for layer in layers]


def test_a_step_that_was_cut_keeps_its_whole_layers() -> None:
    step = STEPS["llama-3.1-8b eager"]
    cut = replace(step, names=step.names[200:], ns=step.ns[200:], paths=step.paths[200:])
    found = layers_of(cut.names, cut.ns)
    assert found is not None
    truth = RecordedStep.layers.fget(cut)  # type: ignore[attr-defined]
    for layer in found.layers[1:]:
        named = {truth[i] for i in range(layer.start, layer.end)}
        assert len(named) == 1
