"""From a `WorkerConfig` to what a run starts with: device, workload, loaded model, first prompt."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from decodescope.analyzer.protocol import WorkerConfig
from decodescope.variants.environment import choose_device, default_dtype, require_run_packages
from decodescope.variants.models import LoadedModel, check_fits, load_model, resolve_model
from decodescope.variants.prompts import make_prompt, with_prompt
from decodescope.variants.registry import require_variant
from decodescope.variants.workload import DecodeWorkload, parse_dtype

DEFAULT_CONTEXT = 128
DEFAULT_MODELS = {"cuda": "llama-3.2-1b@random", "cpu": "tiny"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model on its device and the workload it will decode.

    `prompt(round)` gives the prompt ids, int64 [batch, context] on the CPU, of one generation.
    """

    config: WorkerConfig
    device: str
    loaded: LoadedModel
    workload: DecodeWorkload

    def prompt(self, round: int) -> torch.Tensor:
        """Prompt ids of generation `round`; a given prompt is the same in every round."""
        return make_prompt(
            self.loaded, self.workload, self.config.prompt, self.config.prompt_ids, round
        )


def prepare(config: WorkerConfig, say: Callable[[str], None]) -> Prepared:
    """Choose the device, check the request and load the model; `say` hears each slow stage.

    Everything that can be refused without loading weights is refused first.

    Raises:
        InputError, ModelError, EnvironmentLacks: as `require_variant`, `resolve_model`,
            `load_model`, `make_prompt` and `check_fits` do.
    """
    require_run_packages()
    device = choose_device(config.device)
    workload = DecodeWorkload(
        batch=config.batch,
        context=_context(config),
        new_tokens=config.tokens,
        dtype=default_dtype(device) if config.dtype is None else parse_dtype(config.dtype),
    )
    require_variant(config.variant, device)
    source = resolve_model(config.model or DEFAULT_MODELS[device])
    say(f"loading {source.name}")
    loaded = load_model(source, device, workload.dtype, config.trust_remote_code, workload)
    if config.prompt is not None or config.prompt_ids is not None:
        ids = make_prompt(loaded, workload, config.prompt, config.prompt_ids)
        workload = with_prompt(workload, ids)
    check_fits(loaded, workload)
    return Prepared(config, device, loaded, workload)


def _context(config: WorkerConfig) -> int:
    """Prompt tokens that are certain before there is a tokenizer: at least one of a text."""
    if config.context is not None:
        return config.context
    if config.prompt_ids is not None:
        return max(len(config.prompt_ids), 1)
    return DEFAULT_CONTEXT if config.prompt is None else 1
