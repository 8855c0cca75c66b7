"""The text scored for accuracy: a given text, decodescope's own, or seeded random ids."""

from dataclasses import dataclass
from pathlib import Path

import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.prompts import encoded_text

CONTEXT = 32
POSITIONS = 128
# 2,048 positions: E4M3 weights change the log-likelihood of a token of `tiny` by 0.11 (standard
# deviation), so the perplexity ratio is known to about ±0.5 %.
SEQUENCES = 16
# A step of the bundled model takes Triton's interpreter a second.
INTERPRETED_POSITIONS = 16
RANDOM_SEED = 0


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Token `ids` [sequences, context + positions + 1], int64, on the CPU. The first `context` of a
    sequence are its prompt; the next `positions` are fed one by one, and their logits are scored
    against the id that follows. `name` describes the text."""

    ids: torch.Tensor
    context: int
    positions: int
    name: str

    @property
    def next_ids(self) -> torch.Tensor:
        """The text's own next token at each scored position, [sequences * positions]."""
        return self.ids[:, self.context + 1 :].flatten()


def scored_text(
    loaded: LoadedModel, text: str | None, sequences: int = SEQUENCES, positions: int = POSITIONS
) -> ScoredText:
    """The first tokens of `text` as at most `sequences` sequences, each with a prompt of at most 32
    and at most `positions` scored tokens. The scored tokens are consecutive: the prompt of a
    sequence is the end of the one before.

    Without a text, `own_text.txt` is used, or random ids (seed 0) if the model has no tokenizer. A
    text of less than one sequence, or a model with few positions, gives a shorter prompt and fewer
    scored positions.

    Raises:
        ModelError: a text for a model without a tokenizer.
        InputError: a text of fewer than 3 tokens.
    """
    most = CONTEXT + positions + 1
    if loaded.max_context is not None:
        most = min(most, loaded.max_context + 1)
    if text is None and loaded.tokenizer is None:
        generator = torch.Generator().manual_seed(RANDOM_SEED)
        ids = torch.randint(0, loaded.vocab_size, (sequences * most,), generator=generator)
        return _split(ids, most, sequences, positions, "seeded random token ids")
    if loaded.tokenizer is None:
        raise ModelError(f"--text: {loaded.name} has no tokenizer, so no text can be scored")
    name, origin = "the given text", "--text"
    if text is None:
        name = origin = "decodescope's own text"
        text = own_text()
    tokens = encoded_text(loaded, text, origin)
    if len(tokens) < 3:
        raise InputError(f"--text: {len(tokens)} tokens are too few to score; give at least 3")
    return _split(torch.tensor(tokens, dtype=torch.int64), most, sequences, positions, name)


def own_text() -> str:
    return Path(__file__).with_name("own_text.txt").read_text(encoding="utf-8")


def _split(ids: torch.Tensor, most: int, sequences: int, positions: int, name: str) -> ScoredText:
    length = min(len(ids), most)
    known = length - 1
    context = max(min(CONTEXT, known // 2), known - positions)
    scored = known - context
    windows = ids.unfold(0, length, scored)[:sequences]
    return ScoredText(windows.contiguous(), context, scored, name)
