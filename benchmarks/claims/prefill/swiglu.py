"""SwiGLU's activation of 2,048 tokens in one launch, against two of PyTorch.

FLOPs are those that the source counts: 6 for each element of the output.
"""

import torch
import torch.nn.functional as F

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.prefill.source import (
    FFN,
    ITEM_BYTES,
    LIGER,
    PYTORCH,
    SOURCE,
    STREAM,
    TOKENS,
    TOLERANCE,
    beside_others,
    drawn_pairs,
    eager,
    generator,
    liger,
    over_eager,
    peer,
    share_by,
    size_text,
    summed,
)
from benchmarks.claims.racing import Tensors, Work, entrant_of
from decodescope.kernels.ops.swiglu import Swiglu

_liger_swiglu = liger("swiglu", "LigerSiLUMulFunction")


def measure_swiglu(setup: Setup, tokens: int = TOKENS, features: int = FFN) -> Measured:
    """out = silu(gate) * up: two elements read, one written."""
    elements = tokens * features
    work = Work(3 * ITEM_BYTES * elements, 6 * elements, "fp32")
    pairs = drawn_pairs(generator(), setup.racing.copies(work), tokens, features)
    ours = [Swiglu(gate, up, torch.empty_like(up)) for gate, up in pairs]

    def sequence(one: Swiglu) -> Tensors:
        return (F.silu(one.gate) * one.up,)

    def ligers(one: Swiglu) -> Tensors:
        return (_liger_swiglu(one.gate, one.up),)

    def added(one: Swiglu) -> Tensors:
        return (torch.add(one.gate, one.up, out=one.out),)

    race = setup.racing.race(
        size_text(tokens, features),
        work,
        (
            eager("silu, then the product", sequence, ours),
            entrant_of(ours, "one launch", TOLERANCE),
            peer(LIGER, "LigerSiLUMulFunction", ligers, ours),
            peer(STREAM, "adds gate and up", added, ours, lambda: summed(pairs)),
        ),
    )
    name = ours[0].kernel
    rows = (
        over_eager("SwiGLU, eager to one kernel", race, name, 1.6, 0.79),
        share_by(setup, race, PYTORCH, 5, elements, 0.80),
        share_by(setup, race, name, 3, elements, 0.79),
    )
    return Measured((*rows, *beside_others(race, name)), (race,))


SWIGLU = Claim(
    "prefill-swiglu",
    "SwiGLU's activation 1.6 x as fast as PyTorch",
    SOURCE,
    measure_swiglu,
)
