"""The prompt of a run: a given text or ids, the bundled model's snippets, or random ids."""

import json
from functools import lru_cache

import torch

from decodescope.analyzer.errors import InputError, ModelError, first_line
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.source import tiny_folder
from decodescope.variants.model.workload import DecodeWorkload


def make_prompt(
    loaded: LoadedModel,
    workload: DecodeWorkload,
    prompt: str | None = None,
    prompt_ids: tuple[int, ...] | None = None,
    round: int = 0,
) -> torch.Tensor:
    """Prompt ids, int64 [batch, context], on the CPU.

    A given text or given ids are used whole for every sequence, whatever the workload's context.
    Otherwise the bundled model gets the first `workload.context` tokens of snippet `round` of its
    held-out Python sources (continued with the next snippets if it is too short), and any other
    model gets random ids seeded with `round`, different for every sequence.

    Raises:
        InputError: both are given, an empty prompt, or ids outside the vocabulary.
        ModelError: a text prompt for a model without a tokenizer.
    """
    if prompt is not None and prompt_ids is not None:
        raise InputError("--prompt and --prompt-ids: give one of the two")
    if prompt is not None:
        ids = encoded_text(loaded, prompt, "--prompt")
        if not ids:
            raise InputError("--prompt: the prompt is empty")
        return _rows(ids, workload.batch)
    if prompt_ids is not None:
        return _rows(_checked_ids(loaded, prompt_ids), workload.batch)
    if loaded.weights == "bundled":
        return _rows(_snippet_ids(loaded, workload.context, round), workload.batch)
    generator = torch.Generator().manual_seed(round)
    shape = (workload.batch, workload.context)
    return torch.randint(0, loaded.vocab_size, shape, generator=generator)


def _rows(ids: list[int], batch: int) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64).expand(batch, -1).contiguous()


def encoded_text(loaded: LoadedModel, text: str, title: str) -> list[int]:
    """The token ids of `text`, which `title` names in errors.

    Raises:
        ModelError: the model has no tokenizer, one that fails, or one of another model.
    """
    if loaded.tokenizer is None:
        raise ModelError(f"{title}: {loaded.name} has no tokenizer; use --prompt-ids")
    try:
        ids = [int(token) for token in loaded.tokenizer.encode(text)]
    except Exception as error:  # tokenizers raise nearly every type
        raise ModelError(
            f"{title}: the tokenizer of {loaded.name} fails ({first_line(error)}); use --prompt-ids"
        ) from error
    if max(ids, default=0) >= loaded.vocab_size:
        raise ModelError(
            f"{title}: the tokenizer of {loaded.name} gives id {max(ids)}, but the model's "
            f"vocabulary ends at {loaded.vocab_size - 1}; use the tokenizer of this model, or "
            "--prompt-ids"
        )
    return ids


def _checked_ids(loaded: LoadedModel, ids: tuple[int, ...]) -> list[int]:
    if not ids:
        raise InputError("--prompt-ids: the prompt is empty")
    outside = [token for token in ids if not 0 <= token < loaded.vocab_size]
    if outside:
        raise InputError(
            f"--prompt-ids: {outside[0]} is outside the vocabulary of {loaded.name} "
            f"(0 to {loaded.vocab_size - 1})"
        )
    return list(ids)


def _snippet_ids(loaded: LoadedModel, context: int, round: int) -> list[int]:
    snippets = _snippets()
    ids: list[int] = []
    number = round
    while len(ids) < context:
        number %= len(snippets)
        ids += encoded_text(loaded, snippets[number], f"prompt {number} of {loaded.name}")
        number += 1
    return ids[:context]


@lru_cache(maxsize=1)
def _snippets() -> tuple[str, ...]:
    return tuple(json.loads((tiny_folder() / "prompts.json").read_text(encoding="utf-8")))
