"""Turns a `WorkerConfig` into what a run starts with: device, workload, model and prompts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from decodescope.analyzer.protocol import WorkerConfig
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.measuring.request import read_request
from decodescope.variants.measuring.window import Subject
from decodescope.variants.model.loading import LoadedModel, check_fits, load_model
from decodescope.variants.model.memory_need import require_memory
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import find_variant


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model on its device and the workload it will decode."""

    config: WorkerConfig
    device: str
    loaded: LoadedModel
    workload: DecodeWorkload

    def prompt(self, round: int) -> torch.Tensor:
        """Prompt ids of generation `round`, int64 [batch, context], on the CPU.

        A prompt given by the user is the same in every round.
        """
        return make_prompt(
            self.loaded, self.workload, self.config.prompt, self.config.prompt_ids, round
        )

    def subject(
        self, variant: str, read_peak: ReadPeak | None, kernel_floor_ns: int | None
    ) -> Subject:
        """`variant` of this model on this device, with what was measured of the device."""
        return Subject(self.loaded, self.workload, self.device, variant, read_peak, kernel_floor_ns)


def prepare(config: WorkerConfig, say: Callable[[str], None]) -> Prepared:
    """Choose the device, check the request and load the model; `say` is called for slow stages.

    Everything that can be checked without the weights is checked before they are loaded.

    Raises:
        InputError, ModelError, MissingRequirement: as `read_request`, `load_model`,
            `make_prompt` and `check_fits`.
        DecodescopeError: the variant's check rejects the model or workload.
    """
    request = read_request(config)
    device, source, workload = request.device, request.source, request.workload
    say(f"loading {source.name}")
    variant = find_variant(request.variant)

    def check(name: str, fields: Mapping[str, object]) -> None:
        if variant.check is not None:
            variant.check(name, fields, workload, device)

    loaded = load_model(source, device, workload.dtype, config.trust_remote_code, workload, check)
    if config.prompt is not None or config.prompt_ids is not None:
        ids = make_prompt(loaded, workload, config.prompt, config.prompt_ids)
        workload = replace(workload, context=ids.shape[1])
    check_fits(loaded, workload)
    require_memory(source.name, loaded.model, workload, device, weight_bytes=0)
    return Prepared(config, device, loaded, workload)
