"""What is refused before a model is loaded."""

import pytest

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.variants.preparation import prepare

ASKED = {"variant": "eager", "batch": 1, "tokens": 4, "model": "tiny", "device": "cpu"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"variant": "egaer"}, "did you mean eager"),
        ({"variant": "compiled"}, "CUDA"),
        ({"batch": 0}, "--batch 0"),
        ({"tokens": 0}, "--tokens 0"),
        ({"context": 1021}, "1025"),
        ({"prompt_ids": (1,) * 1021}, "1025"),
        ({"prompt": "x", "tokens": 1024}, "1025"),
        ({"dtype": "fp64"}, "fp64"),
    ],
)
def test_a_request_that_cannot_be_met_costs_no_loading(
    wrong: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_weights(*args: object, **options: object) -> None:
        raise AssertionError("weights were touched")

    monkeypatch.setattr("decodescope.variants.models._load_pretrained", no_weights)
    with pytest.raises(DecodescopeError, match=words):
        prepare(WorkerConfig(**(ASKED | wrong)), lambda stage: None)


@pytest.mark.parametrize(
    ("given", "context"),
    [
        ({}, 128),
        ({"context": 7}, 7),
        ({"prompt_ids": (5, 6, 7)}, 3),
        ({"prompt": "def f():"}, None),
    ],
)
def test_the_context_is_what_was_given(given: dict[str, object], context: int | None) -> None:
    prepared = prepare(WorkerConfig(**(ASKED | given)), lambda stage: None)
    shape = prepared.prompt(0).shape
    assert shape == (1, prepared.workload.context)
    assert shape[1] == context or (context is None and shape[1] > 1)
