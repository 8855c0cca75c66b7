from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps import annotations
from decodescope.variants.steps.annotations import LayerRanges, range_paths
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers import families

LAYER = ["input_norm", "attention", "post_attention_norm", "mlp"]
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral")


class Journal:
    """Stands in for `annotate`, and writes down what is opened and closed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, name: str) -> "JournalRange":
        return JournalRange(self, name)


class JournalRange:
    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._name = journal, name

    def __enter__(self) -> None:
        self._journal.lines.append(f"+{self._name}")

    def __exit__(self, *error: object) -> None:
        self._journal.lines.append(f"-{self._name}")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    journal = Journal()
    monkeypatch.setattr(annotations, "annotate", journal)
    return journal


def paths(lines: list[str]) -> list[str]:
    """Every opened range's path; fails unless each range closes the one opened last."""
    stack: list[str] = []
    found = []
    for line in lines:
        if line.startswith("+"):
            stack.append(line[1:])
            found.append("/".join(stack))
        else:
            assert stack.pop() == line[1:]
    assert not stack
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_part_of_a_step_has_its_range(
    load_small: Callable[..., Any], journal: Journal, architecture: str
) -> None:
    step = EagerStep(load_small(architecture), DecodeWorkload(1, 4, 8, "fp32"))
    step.prefill(torch.ones(1, 4, dtype=torch.int64))
    step.annotate_layers(True)
    step.step()
    layers = [f"model/layer.{number}" for number in range(3)]
    assert paths(journal.lines) == [
        "model",
        "model/embedding",
        "model/rotary",
        *(path for layer in layers for path in (layer, *(f"{layer}/{part}" for part in LAYER))),
        "model/final_norm",
        "model/lm_head",
        "sampling",
    ]


def test_ranges_come_off_completely(load_small: Callable[..., Any], journal: Journal) -> None:
    loaded = load_small("llama")
    step = EagerStep(loaded, DecodeWorkload(1, 4, 8, "fp32"))
    step.prefill(torch.ones(1, 4, dtype=torch.int64))
    for _ in range(2):
        step.annotate_layers(True)
        step.annotate_layers(True)
        step.step()
        first, journal.lines = journal.lines, []
        step.annotate_layers(False)
        step.annotate_layers(False)
        step.step()
        assert len(paths(first)) == 3 * 5 + 6
        assert journal.lines == []
    modules = list(loaded.model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def test_ranges_close_when_a_layer_fails(load_small: Callable[..., Any], journal: Journal) -> None:
    model = load_small("llama").model
    ranges = LayerRanges(model)
    ranges.set(True)

    def fail(*args: object) -> None:
        raise RuntimeError("device error")

    handle = model.model.layers[1].mlp.down_proj.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="device error"):
            model(torch.ones(1, 3, dtype=torch.int64))
    finally:
        handle.remove()
        ranges.set(False)
    assert paths(journal.lines)[-1] == "layer.1/mlp"


def test_other_layer_names_are_found_too() -> None:
    config = AutoConfig.for_model("gpt2", n_embd=32, n_layer=2, n_head=2, vocab_size=50)
    config.bos_token_id = config.eos_token_id = 1
    paths = range_paths(AutoModelForCausalLM.from_config(config))
    assert paths["transformer.h.1"] == "layer.1"
    assert paths["transformer.h.1.ln_2"] == "layer.1/post_attention_norm"
    layers = [f"layer.{number}" for number in range(2)]
    parts = [f"{layer}/{part}" for layer in layers for part in LAYER]
    assert sorted(paths.values()) == sorted(
        [*layers, *parts, "embedding", "embedding", "final_norm", "lm_head"]
    )


def test_experts_beside_an_mlp_have_ranges_of_their_own() -> None:
    paths = range_paths(families.build("gemma4-moe"))
    inside = [path for name, path in paths.items() if name.startswith("model.layers.1.")]
    parts = ["pre_mlp_norm"] * 2 + ["mlp", "router", "experts"] + ["post_mlp_norm"] * 3
    assert sorted(inside) == sorted(f"layer.1/{part}" for part in [*LAYER[:3], *parts])
