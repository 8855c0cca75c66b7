"""What a `WorkerConfig` asks for, checked as far as that needs neither weights nor a tokenizer."""

from dataclasses import dataclass

from decodescope.analyzer.protocol import WorkerConfig
from decodescope.variants.machine.environment import (
    choose_device,
    default_dtype,
    require_run_packages,
)
from decodescope.variants.model.sampling import requested_sampling
from decodescope.variants.model.source import ModelSource, resolve_model
from decodescope.variants.model.workload import DecodeWorkload, parse_dtype
from decodescope.variants.registry import require_variant

DEFAULT_CONTEXT = 128
DEFAULT_MODELS = {"cuda": "llama-3.2-1b@random", "cpu": "tiny"}


@dataclass(frozen=True, slots=True)
class Request:
    """The chosen device ("cuda" or "cpu"), the workload as far as it is certain before a prompt's
    text is tokenised, where the model comes from, and the variant's own name."""

    device: str
    workload: DecodeWorkload
    source: ModelSource
    variant: str


def read_request(config: WorkerConfig) -> Request:
    """Choose the device and check the request.

    Raises:
        InputError, ModelError, MissingRequirement: as `choose_device`, `DecodeWorkload`,
            `require_variant` and `resolve_model` do, or a package that runs models is missing.
    """
    require_run_packages()
    device = choose_device(config.device)
    workload = DecodeWorkload(
        batch=config.batch,
        context=_context(config),
        new_tokens=config.tokens,
        dtype=default_dtype(device) if config.dtype is None else parse_dtype(config.dtype),
        sampling=requested_sampling(config.sampling),
    )
    variant = require_variant(config.variant, device)
    source = resolve_model(config.model or DEFAULT_MODELS[device])
    return Request(device, workload, source, variant.name)


def _context(config: WorkerConfig) -> int:
    """Prompt tokens that are certain before there is a tokenizer: at least one of a text."""
    if config.context is not None:
        return config.context
    if config.prompt_ids is not None:
        return max(len(config.prompt_ids), 1)
    return DEFAULT_CONTEXT if config.prompt is None else 1
