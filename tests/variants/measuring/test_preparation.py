"""Requests that are refused before a model is loaded."""

from collections.abc import Mapping
from typing import Any

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.report import Finding
from decodescope.variants import registry
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.measuring.request import read_request
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.registry import Variant
from decodescope.variants.steps.decode_step import DecodeStep

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
def test_a_bad_request_is_refused_before_loading(
    wrong: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_weights(*args: object, **options: object) -> None:
        raise AssertionError("weights were touched")

    monkeypatch.setattr("decodescope.variants.model.loading._load_checkpoint", no_weights)
    with pytest.raises(DecodescopeError, match=words):
        prepare(WorkerConfig(**(ASKED | wrong)), lambda stage: None)


@pytest.mark.parametrize("model", ["tiny", "qwen2.5-0.5b@random"])
def test_a_model_that_the_variant_cannot_run_is_refused_before_loading(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_weights(*args: object, **options: object) -> None:
        raise AssertionError("weights were touched")

    def check(name: str, config: Mapping[str, Any], workload: Any, device: str) -> None:
        raise ModelError(f"{name}: no {config['model_type']} of width {config['hidden_size']}")

    monkeypatch.setattr("decodescope.variants.model.loading._load_checkpoint", no_weights)
    monkeypatch.setattr("decodescope.variants.model.loading.build_random", no_weights)
    picky = Variant("picky", "refuses everything", False, no_weights, check)  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "_BUILT_IN", (picky,))
    with pytest.raises(ModelError, match=f"{model}: no (llama|qwen2) of width (256|896)"):
        prepare(WorkerConfig(**(ASKED | {"variant": "picky", "model": model})), lambda stage: None)


@pytest.mark.parametrize(
    ("given", "context"),
    [
        ({}, 128),
        ({"context": 7}, 7),
        ({"prompt_ids": (5, 6, 7)}, 3),
        ({"prompt": "def f():"}, None),
    ],
)
def test_the_context_is_the_given_one_or_the_prompts_length(
    given: dict[str, object], context: int | None
) -> None:
    prepared = prepare(WorkerConfig(**(ASKED | given)), lambda stage: None)
    shape = prepared.prompt(0).shape
    assert shape == (1, prepared.workload.context)
    assert shape[1] == context or (context is None and shape[1] > 1)


def test_a_report_has_the_findings_of_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("default_tiles", "tiles not measured")

    def build(*arguments: Any) -> DecodeStep:
        step = registry.build_variant(*arguments)
        step.findings = (finding,)
        return step

    monkeypatch.setattr("decodescope.variants.measuring.run.build_variant", build)
    report = run_variant(WorkerConfig(**ASKED), None, lambda stage: None)
    assert finding in report.health.findings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"prompt": "a\udcffb"}, "--prompt: character 2"), ({"model": "m\udc80"}, "--model: char")],
)
def test_bytes_that_are_no_text_are_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_request(WorkerConfig(**(ASKED | wrong)))
