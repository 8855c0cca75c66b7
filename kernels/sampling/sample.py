"""Sampling on the device: temperature, top-k, top-p and the draw, without the host.

The host waits for nothing and allocates nothing, and position and noise come from device memory and
counters: a captured CUDA graph draws new tokens at every position, and the same tokens again from
the same seed. One launch with a temperature alone, three with top-k, four with top-p, five with
both. `reference` defines the result; the kernels choose the same tokens.

Bytes that must move: the logits once, and 8 bytes for each sequence.
"""

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, choice_keys, chosen_index
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.operation import Launch, launch
from decodescope.kernels.sampling.border import largest_kernel, lower_half_kernel, upper_half_kernel
from decodescope.kernels.sampling.numbers import EXACT, gumbel_noise, logit_keys, program_logits
from decodescope.kernels.sampling.reference import MAX_VOCABULARY, inverse_float32, to_float32
from decodescope.kernels.sampling.workspace import (
    BEST,
    BIN,
    BORDER,
    FIRST_TIED,
    HALF,
    LARGEST,
    LOWER_BINS,
    SLOTS,
    TOTAL,
    SamplingWorkspace,
    arrived_last,
    clear_lower,
)

BLOCK = 1024
NUM_WARPS = 8


@triton.jit(do_not_specialize=["seed"])
def draw_kernel(
    logits_ptr,
    lower_ptr,
    state_ptr,
    counters_ptr,
    position_ptr,
    out_ptr,
    vocabulary,
    out_columns,
    inverse_temperature,
    seed,
    HISTORY: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """Draws one of the kept tokens: the largest of logit / temperature plus Gumbel noise.

    Programs offer their best token to an atomic maximum of integers, so the result does not depend
    on their order; the last program to arrive writes the token. With HISTORY, `out` holds tokens by
    position and the position advances; else ids alone.

    Without filters, lower_ptr is None and every token is kept.
    """
    allow_next(PDL)
    wait_for_previous(PDL)
    tokens, kept, scaled = program_logits(logits_ptr, vocabulary, inverse_temperature, BLOCK)
    sequence = tl.program_id(1).to(tl.int64)
    state_ptr += sequence * SLOTS
    if lower_ptr is not None:
        keys = logit_keys(scaled)
        border = tl.load(state_ptr + BORDER)
        filled = kept & ((keys >> HALF) == tl.load(state_ptr + BIN))
        clear_lower(lower_ptr + sequence * LOWER_BINS, keys, filled)
        tied = (keys == border) & (tokens >= tl.load(state_ptr + FIRST_TIED))
        kept &= (keys > border) | tied
    position = tl.load(position_ptr)
    noise = gumbel_noise(seed, position, tl.program_id(1), tl.program_id(0) * BLOCK, BLOCK)
    scores = tl.where(kept, choice_keys(scaled + noise, tokens), NO_KEY)
    tl.atomic_max(state_ptr + BEST, tl.max(scores), sem="relaxed")
    if arrived_last(counters_ptr + sequence, tl.num_programs(0)):
        token = chosen_index(tl.atomic_xchg(state_ptr + BEST, NO_KEY, sem="relaxed"))
        tl.store(state_ptr + LARGEST, 0)
        tl.store(state_ptr + TOTAL, 0)
        if HISTORY:
            if (position >= 0) & (position < out_columns - 1):
                tl.store(out_ptr + sequence * out_columns + position + 1, token)
            if arrived_last(counters_ptr + tl.num_programs(1), tl.num_programs(1)):
                tl.store(position_ptr, position + 1)
        else:
            tl.store(out_ptr + sequence, token)


def sample(
    logits: torch.Tensor,
    position: torch.Tensor,
    out: torch.Tensor,
    workspace: SamplingWorkspace,
    *,
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    block: int = BLOCK,
    pdl: bool = False,
) -> tuple[Launch, ...]:
    """Draw a token from softmax(logits[b] / temperature), filtered by top_k and then by top_p
    (`reference.kept_tokens`).

    out int64 [batch, capacity + 1] holds tokens by position: out[b, position + 1] is drawn, then
    position += 1; at a position outside of it only the position advances. out int64 [batch]: out[b]
    is drawn, and the position stays.

    logits [batch, vocabulary], contiguous, float32, float16 or bfloat16; position int32 [1], that
    of the token that gave the logits. temperature > 0, top_k at least 1, 0 < top_p, 0 <= seed <
    2^63; None or a top_p of 1 filters nothing. NaN and -inf are never drawn if there is another
    logit. A program has `block` tokens; the result does not depend on it.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices, or a workspace too small.
    """
    _check(logits, position, out, workspace, block)
    batch, vocabulary = (int(size) for size in logits.shape)
    inverse = inverse_float32(temperature)
    grid = (triton.cdiv(vocabulary, block), batch)
    options = {"BLOCK": block, "PDL": pdl, "num_warps": NUM_WARPS, **EXACT}
    memory = (workspace.upper, workspace.lower, workspace.state, workspace.counters)

    def border(top_k: int, top_p: float, mass: bool) -> tuple[Launch, Launch]:
        arguments = (logits, *memory, vocabulary, inverse)
        upper = launch(upper_half_kernel, grid, *arguments, top_k, top_p, MASS=mass, **options)
        return upper, launch(lower_half_kernel, grid, *arguments, MASS=mass, **options)

    launches: tuple[Launch, ...] = ()
    if top_k is not None:
        launches = border(min(top_k, vocabulary), 1.0, mass=False)
    if top_p is not None and top_p < 1:
        if top_k is None:
            state = workspace.state
            launches = (
                launch(largest_kernel, grid, logits, state, vocabulary, inverse, **options),
            )
        launches += border(1, to_float32(top_p), mass=True)
    draw = launch(
        draw_kernel,
        grid,
        logits,
        workspace.lower if launches else None,
        workspace.state,
        workspace.counters,
        position,
        out,
        vocabulary,
        out.shape[-1],
        inverse,
        seed,
        HISTORY=out.dim() == 2,
        **options,
    )
    return (*launches, draw)


def _check(
    logits: torch.Tensor,
    position: torch.Tensor,
    out: torch.Tensor,
    workspace: SamplingWorkspace,
    block: int,
) -> None:
    if logits.dim() != 2 or not logits.is_contiguous() or 0 in logits.shape:
        raise ValueError(f"logits {list(logits.shape)}: must be contiguous [batch, vocabulary]")
    batch, vocabulary = (int(size) for size in logits.shape)
    if vocabulary > MAX_VOCABULARY:
        raise ValueError(f"a vocabulary of {vocabulary}: at most {MAX_VOCABULARY}")
    check_float("logits", logits)
    check_position(position, logits.device)
    if out.dim() not in (1, 2) or 0 in out.shape:
        raise ValueError(f"out {list(out.shape)}: must be [batch] or [batch, capacity + 1]")
    check_tensor("out", out, (batch, *out.shape[1:]), torch.int64, logits.device)
    workspace.check(batch, logits.device)
    if block < 16 or block & (block - 1):
        raise ValueError(f"block {block}: must be a power of two from 16")
