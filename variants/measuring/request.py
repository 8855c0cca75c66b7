"""Checks a `WorkerConfig` as far as possible without weights and tokenizer.

Imports no torch, so that `compare` can check its request without loading it.
"""

from dataclasses import dataclass

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.machine.environment import choose_device, require_run_packages
from decodescope.variants.model.source import ModelSource, resolve_model
from decodescope.variants.model.workload import DecodeWorkload, default_dtype, parse_dtype
from decodescope.variants.registry import Variant, require_split, require_variant

DEFAULT_CONTEXT = 128
DEFAULT_MODELS = {"cuda": "llama-3.2-1b@random", "cpu": "tiny"}


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. `device` is "cuda" or "cpu"; the workload's context is a lower bound until
    a prompt's text is tokenised."""

    device: str
    workload: DecodeWorkload
    source: ModelSource
    variant: Variant


def read_request(config: WorkerConfig) -> Request:
    """Choose the device and check the request.

    Raises:
        InputError, ModelError, MissingRequirement: as `require_run_packages`, `require_utf8`,
            `choose_device`, `DecodeWorkload`, `require_variant`, `require_split` and
            `resolve_model`.
    """
    require_run_packages()
    require_utf8(config)
    device = choose_device(config.device)
    # A temperature of 0 requests greedy decoding.
    greedy = config.sampling is None or config.sampling.temperature == 0
    workload = DecodeWorkload(
        batch=config.batch,
        context=_context(config),
        new_tokens=config.tokens,
        dtype=default_dtype(device) if config.dtype is None else parse_dtype(config.dtype),
        sampling=None if greedy else config.sampling,
    )
    variant = require_variant(config.variant, device)
    require_split(variant, config.tp)
    source = resolve_model(DEFAULT_MODELS[device] if config.model is None else config.model)
    return Request(device, workload, source, variant)


def require_utf8(config: WorkerConfig) -> None:
    """Refuse bytes of the command line that are not UTF-8; Python passes them on as surrogates.

    Raises:
        InputError: the model's name or the prompt holds some.
    """
    for option, value in (("--model", config.model), ("--prompt", config.prompt)):
        try:
            (value or "").encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{option}: character {error.start + 1} is no UTF-8 text; give text in UTF-8"
            ) from error


def _context(config: WorkerConfig) -> int:
    """The number of prompt tokens, as far as it is known without a tokenizer: at least 1."""
    if config.context is not None:
        return config.context
    if config.prompt_ids is not None:
        return max(len(config.prompt_ids), 1)
    return DEFAULT_CONTEXT if config.prompt is None else 1
