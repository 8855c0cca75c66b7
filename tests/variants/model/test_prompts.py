from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload


@pytest.fixture(scope="module")
def tiny() -> Any:
    return load_model(resolve_model("tiny"), "cpu", "fp32")


def test_random_prompts_differ_by_row_and_round(load_small: Callable[..., Any]) -> None:
    loaded = load_small("llama")
    workload = DecodeWorkload(3, 40, 5)
    first = make_prompt(loaded, workload)
    assert first.shape == (3, 40)
    assert first.dtype == torch.int64
    assert 0 <= int(first.min()) <= int(first.max()) < 97
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first, make_prompt(loaded, workload, round=0))
    assert not torch.equal(first, make_prompt(loaded, workload, round=1))


def test_given_ids_are_the_context_of_every_row(load_small: Callable[..., Any]) -> None:
    ids = make_prompt(load_small("llama"), DecodeWorkload(2, 40, 5), prompt_ids=(5, 6, 96))
    assert ids.tolist() == [[5, 6, 96], [5, 6, 96]]


@pytest.mark.parametrize("ids", [(), (97,), (3, -1)])
def test_ids_outside_the_vocabulary_are_refused(
    load_small: Callable[..., Any], ids: tuple[int, ...]
) -> None:
    with pytest.raises(InputError, match="--prompt-ids"):
        make_prompt(load_small("llama"), DecodeWorkload(), prompt_ids=ids)


def test_a_text_prompt_needs_a_tokenizer_and_must_not_be_empty(
    load_small: Callable[..., Any], tiny: Any
) -> None:
    with pytest.raises(ModelError, match="no tokenizer; use --prompt-ids"):
        make_prompt(load_small("llama"), DecodeWorkload(), prompt="def")
    with pytest.raises(InputError, match="empty"):
        make_prompt(tiny, DecodeWorkload(), prompt="")
    with pytest.raises(InputError, match="one of the two"):
        make_prompt(tiny, DecodeWorkload(), prompt="def", prompt_ids=(1,))
    ids = make_prompt(tiny, DecodeWorkload(2), prompt="def main():")
    assert tiny.tokenizer.decode(ids[1]) == "def main():"


def test_the_bundled_model_starts_from_python_sources(tiny: Any) -> None:
    workload = DecodeWorkload(2, 64, 5)
    first, second = (make_prompt(tiny, workload, round=number) for number in (0, 1))
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first, second)
    assert "def " in tiny.tokenizer.decode(make_prompt(tiny, replace(workload, context=256))[0])
    assert torch.equal(make_prompt(tiny, replace(workload, context=900))[:, :64], first)
