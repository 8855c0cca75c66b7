"""Guesses of the model of a trace: the right one, several, or none; never a wrong one alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import bundled_models, read_model_config
from decodescope.analyzer.modelling.guess import candidates, class_families
from decodescope.analyzer.modelling.matrices import layer_weights
from decodescope.analyzer.modelling.shape import ModelShape
from decodescope.analyzer.modelling.trace_facts import TraceFacts, matrix_sizes
from tests.helpers.modelling.products import product

NAMES = sorted(bundled_models())
# What a class of transformers is called by its model_type.
CLASS_WORDS = {"gpt_oss": "GptOss", "qwen3_5_moe_text": "Qwen3_5Moe", "gemma3_text": "Gemma3"}


def splits(shape: ModelShape, degree: int) -> bool:
    try:
        return bool(layer_weights(shape, len(shape.layers) - 1, degree))
    except InputError:
        return False


def class_of(shape: ModelShape) -> str:
    words = shape.model_type.removesuffix("_text").split("_")
    return CLASS_WORDS.get(shape.model_type, "".join(word.title() for word in words))


def planted(shape: ModelShape, degree: int, shows: random.Random) -> TraceFacts:
    """Some of what a trace of this model shows."""
    requests, tokens = shows.randrange(1, 200), shows.randrange(1, 9000)
    sizes = sorted(matrix_sizes(shape, degree))
    chosen = shows.sample(sizes, shows.randrange(len(sizes) + 1)) if shows.random() < 0.5 else []
    logits = -(-shape.vocabulary // 64) * 64 // degree
    roles = {"qkv", "attention", "o", "experts" if shape.experts else "gate_up"}
    has_messages = degree > 1 and shows.random() < 0.5
    return TraceFacts(
        layers=len(shape.layers),
        motif=shape.kinds() if shows.random() < 0.5 else (),
        products=[product(tokens, *size) for size in chosen],
        tokens=tokens if shows.random() < 0.5 else None,
        roles=roles | ({"qk_norm"} if shape.qk_norm != "none" else set()),
        classes={f"{class_of(shape)}DecoderLayer_3"} if shows.random() < 0.5 else (),
        gathered=(requests * logits,) if has_messages else (),
        reduced=(tokens * shape.hidden,) if has_messages else (),
        ranks=(degree,) if has_messages else (),
        communicates=degree > 1,
    )


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_the_planted_model_is_among_the_candidates_and_no_other_is_taken(
    name: str, degree: int
) -> None:
    shape = read_model_config(name)
    if not splits(shape, degree):
        pytest.skip("cannot be divided so")
    taken = 0
    for seed in range(12):
        facts = planted(shape, degree, random.Random(f"{name}{degree}{seed}"))
        fitting = candidates(facts)
        right = [one for one in fitting if (one.shape.name, one.tensor_parallel) == (name, degree)]
        if len(fitting) == 1 and fitting[0].is_enough:
            assert right, (fitting[0].words, facts)
            taken += 1
        elif fitting:
            assert right, [one.words for one in fitting]
    assert taken or degree > 1


@pytest.mark.parametrize("name", NAMES)
def test_all_evidence_together_names_one_model(name: str) -> None:
    shape = read_model_config(name)
    facts = TraceFacts(
        layers=len(shape.layers),
        products=[product(32, *size) for size in matrix_sizes(shape)],
        classes={f"{class_of(shape)}ForCausalLM_0"},
        roles={"experts"} if shape.experts else {"gate_up"},
    )
    (candidate,) = candidates(facts)
    assert (candidate.shape.name, candidate.is_enough) == (name, True)
    assert candidate.names == (name, *bundled_models()[name].aliases)


@pytest.mark.parametrize(
    "facts",
    [
        TraceFacts(),
        TraceFacts(layers=32),
        TraceFacts(layers=32, classes={"VisionTransformer_0", "Linear_3"}),
        TraceFacts(layers=7, classes={"LlamaDecoderLayer_0"}),
        # A family that is not known, and one whose models do not have so many layers.
        TraceFacts(layers=32, classes={"YiForCausalLM_0"}, roles={"qk_norm"}),
        TraceFacts(layers=80, classes={"Qwen3ForCausalLM_0"}),
        # 32 layers of Llama's classes with other widths: Yi-6B.
        TraceFacts(
            layers=32,
            classes={"LlamaForCausalLM_0"},
            products=[
                product(8, *size, count=32)
                for size in ((5120, 4096), (4096, 4096), (22016, 4096), (4096, 11008))
            ],
        ),
        # Llama-2-7b with another vocabulary.
        TraceFacts(
            layers=32,
            products=[
                *(
                    product(8, *size, count=32)
                    for size in ((12288, 4096), (4096, 4096), (22016, 4096), (4096, 11008))
                ),
                product(8, 64_000, 4096),
            ],
        ),
    ],
)
def test_without_evidence_there_is_no_guess(facts: TraceFacts) -> None:
    assert not any(candidate.is_enough for candidate in candidates(facts))


def test_layers_and_a_common_class_list_candidates() -> None:
    facts = TraceFacts(layers=36, classes={"Qwen3DecoderLayer_0"}, roles={"qk_norm"})
    assert {one.shape.name for one in candidates(facts)} == {"Qwen/Qwen3-4B", "Qwen/Qwen3-8B"}
    tall = TraceFacts(layers=64, classes={"Qwen3DecoderLayer_0"}, communicates=True)
    assert [one.words for one in candidates(tall)] == [
        f"Qwen/Qwen3-32B over {degree} devices" for degree in (2, 4, 8, 16)
    ]
    assert [one.tensor_parallel for one in candidates(tall, tensor_parallel=4)] == [4]


def test_the_logits_of_two_vllm_traces() -> None:
    facts = TraceFacts(
        layers=80, gathered=(32_064,), ranks=(4,), classes={"LlamaForCausalLM_0"}, communicates=True
    )
    (candidate,) = candidates(facts)
    assert candidate.words == "meta-llama/Llama-3.1-70B over 4 devices"
    assert candidate.is_enough
    assert "Llama-3.3-70B" in candidate.names


def test_families_of_classes() -> None:
    names = ["Qwen3MoeForCausalLM_0", "Qwen2MLP_3", "Qwen2DecoderLayer_1", "Linear_2", "x" * 5000]
    assert class_families(names) == {"qwen3moe"}
    assert class_families(names[2:]) == {"qwen2"}
    assert class_families(["DecoderLayer_0", "_ForCausalLM", "", "\x1b[2JForCausalLM_0"]) == set()


@given(st.lists(st.text(max_size=40), max_size=5), st.integers(-5, 10**9), st.integers(0, 10**18))
def test_hostile_facts_are_no_model(classes: list[str], layers: int, elements: int) -> None:
    facts = TraceFacts(
        layers=layers,
        classes=frozenset(f"{name}ForCausalLM_0" for name in classes),
        gathered=(elements,),
        reduced=(elements,),
        ranks=(0, layers),
        communicates=True,
        tokens=elements,
    )
    assert not [one for one in candidates(facts) if one.is_enough and layers < 0]
