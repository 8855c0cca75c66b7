"""Claim: rotary embedding from complex PyTorch over real PyTorch to one Triton kernel, 4.94 x."""

from dataclasses import replace
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
from benchmarks.claims.kernl.sequences import halved, paired, rotate_complex, rotate_real
from benchmarks.claims.racing import Entrant, Racing, Tensors, Work, entrant_of
from benchmarks.claims.report import Race
from decodescope.kernels.ops.rope import RopeTable, Rotate, rotated_reference

PUBLISHED = 4.94
COMPLEX, REAL = "PyTorch complex", "PyTorch real"


def measure(setup: Setup, layer: Layer = LLAMA_2_7B) -> Measured:
    """The rotation of queries and keys at their position."""
    floor_ns = setup.racing.launch_floor_ns
    races = [race(setup.racing, layer, tokens) for tokens in layer.tokens]
    pairs = (
        ("RoPE: Triton over complex PyTorch", PUBLISHED, COMPLEX, "rotate"),
        ("RoPE: Triton over real PyTorch", PUBLISHED, REAL, "rotate"),
        ("RoPE: real PyTorch over complex PyTorch", None, COMPLEX, REAL),
    )
    rows = [
        row
        for one in races
        for what, published, base, ours in pairs
        for row in both_ratios(what, published, one, base, ours, floor_ns)
    ]
    notes = (
        "The source's model rotates by a complex product; its repository times the kernel against "
        "the real sequence only. 4.94 stands beside both.",
        "At 1 token q and k are rotated, as in the model: PyTorch launches its kernels for each, "
        "ours serves both in one launch. At 16 tokens it is one tensor, as in the source's "
        "micro-benchmark. The source's kernel computes cosine and sine; ours reads them from a "
        "table, as PyTorch does, and writes in place.",
        *NOTES,
    )
    return Measured(tuple(rows), tuple(races), notes)


def race(racing: Racing, layer: Layer, tokens: int) -> Race:
    """Both PyTorch sequences and our kernel on the same numbers."""
    draw, table, position = layer.normal(), layer.rope_table(), layer.position()
    tensors = 2 if tokens == 1 else 1

    def states() -> Tensors:
        shape = tokens, layer.heads, layer.head_dim
        return tuple(draw(*shape) for _ in range(tensors))

    first = states()
    reference = tuple(rotated_reference(x, table, POSITION) for x in first)
    ours = _rotate(first, table, position)
    work = Work(ours.bytes_moved(POSITION))
    sets = [first, *(states() for _ in range(racing.copies(work) - 1))]
    cos, sin = (one[POSITION].repeat(tokens, 1) for one in (table.cos, table.sin))
    turns = torch.complex(cos, sin)

    def complex_sequence(states: Tensors) -> Tensors:
        return tuple(rotate_complex(x, turns) for x in states)

    def real_sequence(states: Tensors) -> Tensors:
        return tuple(rotate_real(x, cos, sin) for x in states)

    sequences = (
        (COMPLEX, "to float32, complex product, back", complex_sequence),
        (REAL, "four products, difference, sum, stack, back", real_sequence),
    )
    # Ours rotates in place: the others have numbers of their own.
    operands = [tuple(paired(x) for x in one) for one in sets]
    entrants = [
        pytorch(name, what, [partial(call, one) for one in operands], reference, 1, halved)
        for name, what, call in sequences
    ]
    operations = [ours, *(_rotate(one, table, position) for one in sets[1:])]
    entrants.append(_in_place(operations, first, reference))
    size = f"{tokens_text(tokens)}, {'q and k' if tensors == 2 else 'one tensor'}"
    return racing.race(size, work, entrants)


def _rotate(states: Tensors, table: RopeTable, position: torch.Tensor) -> Rotate:
    """One launch for q and k; of one tensor, half of its heads stand for each."""
    q, k = states if len(states) == 2 else states[0].chunk(2, dim=1)
    return Rotate(q, k, table, position)


def _in_place(operations: list[Rotate], states: Tensors, reference: Tensors) -> Entrant:
    start = [x.clone() for x in states]
    entrant = entrant_of(operations, "in place", TOLERANCE, POSITION)

    def result() -> Tensors:
        for x, begun in zip(states, start, strict=True):
            x.copy_(begun)
        operations[0].launch()
        return states

    return replace(entrant, result=result, reference=lambda: reference)


CLAIM = Claim(
    "kernl-rope", "RoPE: complex PyTorch, real PyTorch, one kernel: 4.94 x", SOURCE, measure
)
