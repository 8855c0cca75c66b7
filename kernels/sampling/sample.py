"""Sampling on the device: temperature, top-k, top-p and the draw, without the host.

Nothing waits for the host and nothing is allocated, and position and noise come from device memory
and counters: a captured CUDA graph draws anew at every position, and again the same from the same
seed. One launch with a temperature alone, three with top-k, four with top-p, five with both.
`reference` says what is computed, and is it; these kernels choose the same tokens.
"""

import torch
import triton

from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.workspace import NO_KEY
from decodescope.kernels.sampling.border import (
    largest_kernel,
    lower_half_kernel,
    upper_half_kernel,
)
from decodescope.kernels.sampling.draw import draw_kernel
from decodescope.kernels.sampling.numbers import EXACT
from decodescope.kernels.sampling.reference import (
    MAX_VOCABULARY,
    inverse_float32,
    to_float32,
)
from decodescope.kernels.sampling.workspace import SamplingWorkspace

BLOCK = 1024
NUM_WARPS = 8


def sample(
    logits: torch.Tensor,
    position: torch.Tensor,
    tokens: torch.Tensor,
    workspace: SamplingWorkspace,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    block: int = BLOCK,
    pdl: bool = False,
) -> tuple[Launch, ...]:
    """tokens[b, position + 1] = a draw from softmax(logits[b] / temperature), filtered by top_k and
    then top_p (`reference.kept_tokens`); then position += 1.

    logits [batch, vocabulary], contiguous, float32, float16 or bfloat16; position int32 [1], that
    of the token which gave the logits; tokens int64 [batch, capacity + 1]. Outside of it only the
    position moves. temperature > 0, top_k at least 1, 0 < top_p, 0 <= seed < 2^63; None or a
    top_p of 1 filters nothing. NaN and -inf are never drawn, as long as there is another logit.
    `block` tokens belong to one program; the result does not depend on it.
    Must move: the logits once, and 8 bytes a sequence.

    Raises:
        ValueError: other shapes, dtypes, layouts, devices or numbers, or a workspace too small.
    """
    if tokens.dim() != 2 or tokens.shape[1] < 1:
        raise ValueError(f"tokens {list(tokens.shape)}: must be [batch, capacity + 1]")
    out_shape = (int(logits.shape[0]), int(tokens.shape[1]))
    check_tensor("tokens", tokens, out_shape, torch.int64, logits.device)
    filters = (temperature, top_k, top_p, seed)
    return _launch(logits, position, tokens, workspace, filters, True, block, pdl)


def choose(
    logits: torch.Tensor,
    position: torch.Tensor,
    out_ids: torch.Tensor,
    workspace: SamplingWorkspace,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    block: int = BLOCK,
    pdl: bool = False,
) -> tuple[Launch, ...]:
    """out_ids[b] = the draw that `sample` makes, with the position left where it is.

    out_ids int64 [batch]; all else as `sample`.

    Raises:
        ValueError: as `sample`.
    """
    check_tensor("out_ids", out_ids, (int(logits.shape[0]),), torch.int64, logits.device)
    filters = (temperature, top_k, top_p, seed)
    return _launch(logits, position, out_ids, workspace, filters, False, block, pdl)


def _launch(
    logits: torch.Tensor,
    position: torch.Tensor,
    out: torch.Tensor,
    workspace: SamplingWorkspace,
    filters: tuple[float, int | None, float | None, int],
    history: bool,
    block: int,
    pdl: bool,
) -> tuple[Launch, ...]:
    temperature, top_k, top_p, seed = filters
    _check(logits, position, workspace, filters, block)
    batch, vocabulary = (int(size) for size in logits.shape)
    inverse = inverse_float32(temperature)
    mass = top_p is not None and top_p < 1
    grid = (triton.cdiv(vocabulary, block), batch)
    options = {"BLOCK": block, "PDL": pdl, "num_warps": NUM_WARPS, **EXACT}
    launches: list[Launch] = []
    if top_k is not None:
        launches += _select(
            logits, workspace, inverse, min(top_k, vocabulary), 1.0, False, grid, options
        )
    elif mass:
        launches.append(
            launch(largest_kernel, grid, logits, workspace.state, vocabulary, inverse, **options)
        )
    if top_p is not None and mass:
        launches += _select(logits, workspace, inverse, 1, to_float32(top_p), True, grid, options)
    last = launch(
        draw_kernel,
        grid,
        logits,
        workspace.lower,
        workspace.state,
        workspace.counters,
        position,
        out,
        vocabulary,
        out.shape[-1],
        inverse,
        seed,
        NO_KEY=NO_KEY,
        FILTERED=top_k is not None or mass,
        HISTORY=history,
        **options,
    )
    return (*launches, last)


def _select(logits, workspace, inverse, top_k, top_p, mass, grid, options):
    """Two launches: the border of top-k, or with `mass` of top-p."""
    memory = (workspace.upper, workspace.lower, workspace.state, workspace.counters)
    vocabulary = logits.shape[1]
    sizes = (vocabulary, inverse)
    upper = launch(
        upper_half_kernel, grid, logits, *memory, *sizes, top_k, top_p, MASS=mass, **options
    )
    return upper, launch(lower_half_kernel, grid, logits, *memory, *sizes, MASS=mass, **options)


def _check(
    logits: torch.Tensor,
    position: torch.Tensor,
    workspace: SamplingWorkspace,
    filters: tuple[float, int | None, float | None, int],
    block: int,
) -> None:
    temperature, top_k, top_p, seed = filters
    if logits.dim() != 2 or not logits.is_contiguous() or 0 in logits.shape:
        raise ValueError(f"logits {list(logits.shape)}: must be contiguous [batch, vocabulary]")
    if logits.shape[1] > MAX_VOCABULARY:
        raise ValueError(f"a vocabulary of {logits.shape[1]}: at most {MAX_VOCABULARY}")
    check_float("logits", logits)
    check_position(position, logits.device)
    workspace.check(int(logits.shape[0]), logits.device)
    if not 1e-38 < temperature < float("inf"):
        raise ValueError(f"temperature {temperature}: must be above 0 and finite")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k {top_k}: must be at least 1")
    if top_p is not None and not top_p > 0:
        raise ValueError(f"top_p {top_p}: must be above 0")
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed {seed}: must be from 0 to 2^63 - 1")
    if block < 16 or block & (block - 1):
        raise ValueError(f"block {block}: must be a power of two from 16")
