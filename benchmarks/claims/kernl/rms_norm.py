"""Claim: RMSNorm in one Triton kernel is 2.3 times as fast as PyTorch's sequence in float16."""

from functools import partial

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.kernl import SOURCE
from benchmarks.claims.entrants import pytorch
from benchmarks.claims.kernl.layer import (
    LLAMA_2_7B,
    NOTES,
    POSITION,
    TOLERANCE,
    Layer,
    both_ratios,
    tokens_text,
)
from benchmarks.claims.kernl.sequences import NORM_ROUNDINGS, PYTORCH, rms_norm
from benchmarks.claims.racing import Racing, Tensors, Work, entrant_of
from benchmarks.claims.report import Race
from decodescope.kernels.ops.rms_norm import RmsNorm

PUBLISHED = 2.3


def measure(setup: Setup, layer: Layer = LLAMA_2_7B) -> Measured:
    """RMSNorm of hidden states."""
    floor_ns = setup.racing.launch_floor_ns
    races = [race(setup.racing, layer, tokens) for tokens in layer.tokens]
    rows = [
        row
        for one in races
        for row in both_ratios("RMSNorm", PUBLISHED, one, PYTORCH, "rms_norm", floor_ns)
    ]
    notes = (
        "The source's sequence keeps squares, their mean and the quotient in float16. Its own "
        "model computes them in float32, in two launches more.",
        *NOTES,
    )
    return Measured(tuple(rows), tuple(races), notes)


def race(racing: Racing, layer: Layer, tokens: int) -> Race:
    """PyTorch's sequence and our kernel on the same rows."""
    draw = layer.normal()

    def operation() -> RmsNorm:
        x = draw(tokens, layer.hidden)
        return RmsNorm(x, layer.norm(draw), torch.empty_like(x))

    first = operation()
    work = Work(first.bytes_moved(POSITION))
    operations = [first, *(operation() for _ in range(racing.copies(work) - 1))]

    def sequence(one: RmsNorm) -> Tensors:
        return (rms_norm(one.x, one.norm.weight, one.norm.eps),)

    entrants = [
        pytorch(
            PYTORCH,
            "pow, mean, add, rsqrt, mul, mul",
            [partial(sequence, one) for one in operations],
            first.reference(POSITION),
            NORM_ROUNDINGS,
        ),
        entrant_of(operations, "computed in float32", TOLERANCE),
    ]
    return racing.race(tokens_text(tokens), work, entrants)


CLAIM = Claim("kernl-rmsnorm", "RMSNorm in one kernel: 2.3 x PyTorch", SOURCE, measure)
