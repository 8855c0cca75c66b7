"""The text scored for accuracy: a given text, decodescope's own, or seeded random ids."""

from dataclasses import dataclass

import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.prompts import encoded_text

CONTEXT = 32
POSITIONS = 128
# A step of the bundled model takes Triton's interpreter seconds.
INTERPRETED_POSITIONS = 16
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Token `ids` [context + positions + 1], int64, on the CPU. The first `context` are the prompt;
    the next `positions` are fed one by one, and their logits are scored against the id that
    follows. `name` describes the text."""

    ids: torch.Tensor
    context: int
    positions: int
    name: str

    @property
    def next_ids(self) -> torch.Tensor:
        """The text's own next token at each scored position, [positions]."""
        return self.ids[self.context + 1 :]


def scored_text(loaded: LoadedModel, text: str | None, positions: int = POSITIONS) -> ScoredText:
    """The first tokens of `text`: a prompt of at most 32, and at most `positions` scored ones.

    Without a text, `OWN_TEXT` is used, or random ids (seed 0) if the model has no tokenizer. A
    short text, or a model with few positions, gives a shorter prompt and fewer scored positions.

    Raises:
        ModelError: a text for a model without a tokenizer.
        InputError: a text of fewer than 3 tokens.
    """
    most = CONTEXT + positions + 1
    if loaded.max_context is not None:
        most = min(most, loaded.max_context + 1)
    if text is None and loaded.tokenizer is None:
        generator = torch.Generator().manual_seed(RANDOM_SEED)
        ids = torch.randint(0, loaded.vocab_size, (most,), generator=generator)
        return _split(ids, positions, "seeded random token ids")
    if loaded.tokenizer is None:
        raise ModelError(f"--text: {loaded.name} has no tokenizer, so no text can be scored")
    origin = "--text" if text is not None else "decodescope's own text"
    tokens = encoded_text(loaded, OWN_TEXT if text is None else text, origin)[:most]
    if len(tokens) < 3:
        raise InputError(f"--text: {len(tokens)} tokens are too few to score; give at least 3")
    name = "decodescope's own text" if text is None else "the given text"
    return _split(torch.tensor(tokens, dtype=torch.int64), positions, name)


def _split(ids: torch.Tensor, most_positions: int, name: str) -> ScoredText:
    known = len(ids) - 1
    context = max(min(CONTEXT, known // 2), known - most_positions)
    return ScoredText(ids, context, known - context, name)


OWN_TEXT = '''"""Greedy decoding of one sequence, one token at a time.

Every step reads all weights from memory and uses them for a single position.
"""

import time


class KeyValueCache:
    """Keys and values of the positions seen so far."""

    def __init__(self, max_length):
        if max_length < 1:
            raise ValueError("max_length must be at least 1, not %r" % max_length)
        self.max_length = max_length
        self.keys = []
        self.values = []

    def __len__(self):
        return len(self.keys)

    def append(self, key, value):
        """Add one position to the cache."""
        if len(self.keys) == self.max_length:
            raise IndexError("the cache is full")
        self.keys.append(key)
        self.values.append(value)

    def truncate(self, length):
        """Forget all positions after the first length ones."""
        del self.keys[length:]
        del self.values[length:]


def generate(model, prompt, max_new_tokens, stop=None):
    """Return the tokens that follow prompt, and the seconds each of them took."""
    cache = KeyValueCache(len(prompt) + max_new_tokens)
    token = model.prefill(prompt, cache)
    tokens, seconds = [token], []
    while len(tokens) < max_new_tokens and token != stop:
        start = time.perf_counter()
        token = model.step(token, cache)
        seconds.append(time.perf_counter() - start)
        tokens.append(token)
    return tokens, seconds
'''
