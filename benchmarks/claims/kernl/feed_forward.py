"""Claim: RMSNorm, gate and up, SiLU and their product in one kernel: 1.20 times PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.kernl import SOURCE
from benchmarks.claims.entrants import chained, pytorch
from benchmarks.claims.kernl.layer import (
    LLAMA_2_7B,
    NOTES,
    POSITION,
    TOLERANCE,
    Layer,
    both_ratios,
    normed_first,
    product_work,
    tokens_text,
)
from benchmarks.claims.kernl.sequences import NORM_ROUNDINGS, PYTORCH, gated
from benchmarks.claims.racing import Racing, Tensors
from benchmarks.claims.report import Race, Row
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference

PUBLISHED = 1.20


@dataclass(frozen=True, slots=True)
class FeedForward:
    """x [tokens, hidden], its norm, and the rows of w1 (gate), then of w3 (up)."""

    x: torch.Tensor
    norm: Norm
    gate_up: WeightMatrix


def measure(setup: Setup, layer: Layer = LLAMA_2_7B) -> Measured:
    """The first half of the feed-forward block."""
    floor_ns = setup.racing.launch_floor_ns
    races: list[Race] = []
    rows: list[Row] = []
    for tokens in layer.tokens:
        setup.say(tokens_text(tokens))
        one = race(setup.racing, layer, tokens)
        races.append(one)
        ours = one.entrants[-1].name
        rows += both_ratios("Feed-forward", PUBLISHED, one, PYTORCH, ours, floor_ns)
    notes = (
        "As in the source: RMSNorm, both products with w1 and w3, SiLU and the product of both. "
        "Its kernel and its sequence do not include w2, and neither does this.",
        "At 16 tokens our norm is a launch of its own, and the product starts as it ends (PDL); "
        "the source's kernel has both.",
        *NOTES,
    )
    return Measured(tuple(rows), tuple(races), notes)


def race(racing: Racing, layer: Layer, tokens: int) -> Race:
    """PyTorch's sequence and our kernel on the same numbers."""
    draw, rows = layer.normal(), 2 * layer.intermediate

    def operands() -> FeedForward:
        gate_up = draw(rows, layer.hidden, std=layer.hidden**-0.5)
        return FeedForward(draw(tokens, layer.hidden), layer.norm(draw), WeightMatrix(gate_up))

    first = operands()
    work = product_work(first.x, first.norm, first.gate_up, tokens * layer.intermediate)
    sets = [first, *(operands() for _ in range(racing.copies(work) - 1))]
    reference = (norm_gate_up_reference(first.x, first.norm, first.gate_up),)

    def sequence(one: FeedForward) -> Tensors:
        return (gated(one.x, one.norm.weight, one.norm.eps, *one.gate_up.data.chunk(2)),)

    tile, text = layer.tile("gate_up", layer.shapes(tokens))
    chains = [_chain(layer, one, tile) for one in sets]
    entrants = [
        pytorch(
            PYTORCH,
            "RMSNorm, matmul, SiLU, matmul, mul",
            [partial(sequence, one) for one in sets],
            reference,
            NORM_ROUNDINGS + 4,
        ),
        chained(chains, text, reference, TOLERANCE, POSITION),
    ]
    return racing.race(tokens_text(tokens), work, entrants)


def _chain(layer: Layer, one: FeedForward, tile: Tile) -> Sequence[KernelOperation]:
    tokens = len(one.x)
    before, x, norm = normed_first(one.x, one.norm)
    out = x.new_empty(tokens, layer.intermediate)
    return [*before, NormGateUp(x, norm, one.gate_up, out, tile)]


CLAIM = Claim(
    "kernl-feed-forward", "RMSNorm + gate + up + SiLU in one kernel: 1.20 x", SOURCE, measure
)
