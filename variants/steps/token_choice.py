"""Chooses the next tokens from logits, on the device of the logits."""

from collections.abc import Callable
from importlib.util import find_spec

import torch
from msgspec.structs import asdict

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.sampling.reference import choose_reference
from decodescope.variants.model.workload import DecodeWorkload

TokenChoice = Callable[[torch.Tensor, int], torch.Tensor]


def token_choice(workload: DecodeWorkload, device: torch.device) -> TokenChoice:
    """A function of logits [batch, vocabulary] and the position of the token that gave them.

    It returns a new tensor of ids int64 [batch] and does not wait for the device. Drawn tokens
    depend on logits, position and seed alone, so a repeated step draws the same tokens.

    Raises:
        MissingRequirement: sampling on a GPU without triton.
    """
    sampling = workload.sampling
    if sampling is None:
        return _greedy
    if device.type == "cuda":
        return _kernel_choice(sampling, workload.batch, device)
    options = asdict(sampling)
    return lambda logits, position: choose_reference(logits, position, **options)


def _greedy(logits: torch.Tensor, position: int) -> torch.Tensor:
    return logits.argmax(-1)


def _kernel_choice(sampling: SamplingSettings, batch: int, device: torch.device) -> TokenChoice:
    if find_spec("triton") is None:
        raise MissingRequirement(
            "--temperature: sampling on a GPU needs triton, which is not installed; leave it out "
            "to decode greedily"
        )
    from decodescope.kernels.sampling.sample import sample
    from decodescope.kernels.sampling.workspace import new_sampling_workspace

    workspace = new_sampling_workspace(batch, device)
    device_position = torch.zeros(1, dtype=torch.int32, device=device)
    options = asdict(sampling)

    def choice(logits: torch.Tensor, position: int) -> torch.Tensor:
        ids = torch.empty(batch, dtype=torch.int64, device=device)
        sample(logits.contiguous(), device_position.fill_(position), ids, workspace, **options)
        return ids

    return choice
