"""How a scored text is split into prompt, fed tokens and the tokens that follow."""

from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.comparing.accuracy_text import own_text, scored_text
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model


class Letters:
    """A tokenizer with one token per letter."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


class SmallConfig:
    vocab_size = 128

    def get_text_config(self, decoder: bool) -> "SmallConfig":
        return self


class SmallModel:
    config = SmallConfig()


def loaded(tokenizer: Any = None, max_context: int | None = None) -> LoadedModel:
    return LoadedModel(SmallModel(), tokenizer, "pretrained", "small", max_context)


@pytest.mark.parametrize(
    ("letters", "sequences", "context", "positions"),
    [
        (3, 1, 1, 1),
        (4, 1, 1, 2),
        (5, 1, 2, 2),
        (64, 1, 31, 32),
        (65, 1, 32, 32),
        (66, 1, 32, 33),
        (160, 1, 32, 127),
        (161, 1, 32, 128),
        (288, 1, 32, 128),
        (289, 2, 32, 128),
        (9000, 16, 32, 128),
    ],
)
def test_a_text_is_split(letters: int, sequences: int, context: int, positions: int) -> None:
    text = "".join(chr(65 + number % 26) for number in range(letters))
    ids = Letters().encode(text)
    scored = scored_text(loaded(Letters()), text)
    assert (len(scored.ids), scored.context, scored.positions) == (sequences, context, positions)
    for number, row in enumerate(scored.ids.tolist()):
        first = number * positions
        assert row == ids[first : first + context + positions + 1]
    assert scored.next_ids.tolist() == ids[context + 1 :][: sequences * positions]
    assert scored.name == "the given text"


@pytest.mark.parametrize("limit", [2, 3, 20, 100, 160, 161])
@pytest.mark.parametrize("tokenizer", [None, Letters()])
def test_no_more_positions_than_the_model_allows(limit: int, tokenizer: Any) -> None:
    scored = scored_text(loaded(tokenizer, limit), None)
    assert scored.context + scored.positions == min(limit, 160)
    assert len(scored.next_ids) == len(scored.ids) * scored.positions
    # Random ids are as many as the sequences need with prompts of their own.
    assert len(scored.ids) == 16


def test_fewer_sequences_and_positions_can_be_asked_for() -> None:
    scored = scored_text(loaded(Letters()), None, 1, 16)
    assert (len(scored.ids), scored.context, scored.positions) == (1, 32, 16)


@pytest.mark.parametrize("text", ["", "a", "ab"])
def test_too_short_a_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"--text: {len(text)} tokens are too few"):
        scored_text(loaded(Letters()), text)


def test_a_text_needs_a_tokenizer() -> None:
    with pytest.raises(ModelError, match="--text: small has no tokenizer"):
        scored_text(loaded(), "a text")


def test_without_a_tokenizer_the_ids_are_random_and_always_the_same() -> None:
    first, second = scored_text(loaded(), None), scored_text(loaded(), None)
    assert torch.equal(first.ids, second.ids)
    assert len(first.ids.unique()) > 50
    assert 0 <= int(first.ids.min()) < int(first.ids.max()) < 128
    assert first.name == "seeded random token ids"


def test_our_own_text_is_long_enough_and_is_python() -> None:
    compile(own_text(), "own", "exec")
    tiny = load_model(resolve_model("tiny"), "cpu", "bf16")
    for model in (tiny, loaded(Letters())):
        scored = scored_text(model, None)
        assert (len(scored.ids), scored.positions) == (16, 128)
        assert scored.name == "decodescope's own text"
