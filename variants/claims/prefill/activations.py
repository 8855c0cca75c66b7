"""RMSNorm, RMSNorm of a sum and SwiGLU of 2,048 tokens, against the source's PyTorch sequences.

FLOPs are those that the source counts: 4, 5 and 6 for each element of the output.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from msgspec.structs import replace

from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormOfSum, RmsNormResidual
from decodescope.kernels.ops.swiglu import Swiglu
from decodescope.variants.claims.claim import Claim, Measured, Setup
from decodescope.variants.claims.entrants import pytorch
from decodescope.variants.claims.prefill.source import (
    FFN,
    HIDDEN,
    LIGER,
    PYTORCH,
    SOURCE,
    STREAM,
    TOKENS,
    TOLERANCE,
    AnyOperation,
    drawn,
    generator,
    liger,
    peer,
)
from decodescope.variants.claims.racing import Entrant, Tensors, Work, entrant_of
from decodescope.variants.claims.report import Race, Row
from decodescope.variants.claims.rows import share_of_peak, speed_up

_EPS = 1e-6
_ITEM = 2
# To float16 twice: what is normalised, or silu(gate), and its product.
_ROUNDINGS = 2

_liger_norm = liger("rms_norm", "LigerRMSNormFunction")
_liger_sum_norm = liger("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
_liger_swiglu = liger("swiglu", "LigerSiLUMulFunction")


def eager_rms_norm(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The source's baseline: eight launches, five of them on float32."""
    wide = x.float()
    factor = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm.eps)
    return (wide * factor).to(x.dtype) * norm.weight


def measure_rms_norm(setup: Setup, tokens: int = TOKENS, hidden: int = HIDDEN) -> Measured:
    """out = RMSNorm(x): x read, out written."""
    elements = tokens * hidden
    work = Work(2 * _ITEM * elements + _ITEM * hidden, 4 * elements, "fp32")
    draw = generator()
    norm = _norm(draw, hidden)
    ours = [
        RmsNorm(x, norm, torch.empty_like(x))
        for x in (drawn(draw, tokens, hidden) for _ in range(setup.racing.copies(work)))
    ]

    def eager(one: RmsNorm) -> Tensors:
        return (eager_rms_norm(one.x, one.norm),)

    def ligers(one: RmsNorm) -> Tensors:
        return (_liger_norm(one.x, one.norm.weight, one.norm.eps, 0.0, "llama", False),)

    def copied(one: RmsNorm) -> Tensors:
        return (one.out.copy_(one.x),)

    race = setup.racing.race(
        _size(tokens, hidden),
        work,
        (
            _eager("in float32 to the last product but one", eager, ours),
            entrant_of(ours, "one program a row", TOLERANCE),
            peer(LIGER, "LigerRMSNormFunction", ligers, ours),
            peer(STREAM, "copies x", copied, ours, lambda: (ours[0].x,)),
        ),
    )
    name = ours[0].kernel
    rows = (
        _speed_up("RMSNorm, eager to one kernel", race, name, 8.1, 0.585),
        _share(setup, race, PYTORCH, 3, elements, 0.11),
        _share(setup, race, name, 3, elements, 0.88),
        _share(setup, race, PYTORCH, 2, elements, 0.072),
        _share(setup, race, name, 2, elements, 0.585),
    )
    return Measured((*rows, *_beside(race, name)), (race,), _NORM_NOTES)


def measure_rms_norm_residual(setup: Setup, tokens: int = TOKENS, hidden: int = HIDDEN) -> Measured:
    """out = RMSNorm(x + residual): alone as in the source, and with the sum, which a decoder needs.

    Two elements are read and one is written; with the sum two are written.
    """
    elements, vector = tokens * hidden, _ITEM * hidden
    alone_work = Work(3 * _ITEM * elements + vector, 5 * elements, "fp32")
    kept_work = Work(4 * _ITEM * elements + vector, 5 * elements, "fp32")
    draw = generator()
    norm = _norm(draw, hidden)
    pairs = _pairs(draw, setup.racing.copies(alone_work), tokens, hidden)
    alone = [RmsNormOfSum(x, residual, norm, torch.empty_like(x)) for x, residual in pairs]
    kept = [RmsNormResidual(one.x, one.residual, norm, one.out) for one in alone]

    def eager(one: RmsNormResidual) -> Tensors:
        return (eager_rms_norm(one.x + one.residual, one.norm),)

    def eager_kept(one: RmsNormResidual) -> Tensors:
        total = one.x + one.residual
        return eager_rms_norm(total, one.norm), total

    def ligers(one: RmsNormResidual) -> Tensors:
        weight, eps = one.norm.weight, one.norm.eps
        out, total = _liger_sum_norm(one.x, one.residual, weight, eps, 0.0, "llama", False)
        return out, total

    def added(one: RmsNormResidual) -> Tensors:
        return (torch.add(one.x, one.residual, out=one.out),)

    what = "an addition, then RMSNorm"
    race = setup.racing.race(
        _size(tokens, hidden),
        alone_work,
        (
            _eager(what, eager, alone),
            entrant_of(alone, "one program a row", TOLERANCE),
            peer(STREAM, "adds x and residual", added, alone, lambda: _sum(pairs)),
        ),
    )
    kept_race = setup.racing.race(
        f"{_size(tokens, hidden)}, with the sum",
        kept_work,
        (
            _eager(what, eager_kept, kept),
            entrant_of(kept, "one program a row; the sum takes the residual's place", TOLERANCE),
            peer(LIGER, "LigerFusedAddRMSNormFunction", ligers, kept),
        ),
    )
    name, kept_name = alone[0].kernel, kept[0].kernel
    rows = (
        _speed_up("RMSNorm of a sum, eager to one kernel", race, name, 6.0, 0.62),
        _share(setup, race, name, 4, elements, 0.83),
        _share(setup, race, name, 3, elements, 0.62),
        _speed_up("the same with the sum kept", kept_race, kept_name, None, None),
    )
    return Measured(
        (*rows, *_beside(race, name), *_beside(kept_race, kept_name)),
        (race, kept_race),
        _SUM_NOTES,
    )


def measure_swiglu(setup: Setup, tokens: int = TOKENS, features: int = FFN) -> Measured:
    """out = silu(gate) * up: two elements read, one written."""
    elements = tokens * features
    work = Work(3 * _ITEM * elements, 6 * elements, "fp32")
    pairs = _pairs(generator(), setup.racing.copies(work), tokens, features)
    ours = [Swiglu(gate, up, torch.empty_like(up)) for gate, up in pairs]

    def eager(one: Swiglu) -> Tensors:
        return (F.silu(one.gate) * one.up,)

    def ligers(one: Swiglu) -> Tensors:
        return (_liger_swiglu(one.gate, one.up),)

    def added(one: Swiglu) -> Tensors:
        return (torch.add(one.gate, one.up, out=one.out),)

    race = setup.racing.race(
        _size(tokens, features),
        work,
        (
            _eager("silu, then the product", eager, ours),
            entrant_of(ours, "one launch", TOLERANCE),
            peer(LIGER, "LigerSiLUMulFunction", ligers, ours),
            peer(STREAM, "adds gate and up", added, ours, lambda: _sum(pairs)),
        ),
    )
    name = ours[0].kernel
    rows = (
        _speed_up("SwiGLU, eager to one kernel", race, name, 1.6, 0.79),
        _share(setup, race, PYTORCH, 5, elements, 0.80),
        _share(setup, race, name, 3, elements, 0.79),
    )
    return Measured((*rows, *_beside(race, name)), (race,))


def _eager(
    what: str, way: Callable[[AnyOperation], Tensors], operations: Sequence[AnyOperation]
) -> Entrant:
    calls = [partial(way, one) for one in operations]
    entrant = pytorch(PYTORCH, what, calls, (), _ROUNDINGS)
    # Of the operands as they are then: an operation in place changes them.
    return dataclasses.replace(entrant, reference=lambda: operations[0].reference(0))


def _norm(draw: torch.Generator, features: int) -> Norm:
    return Norm(1.0 + 0.2 * drawn(draw, features), _EPS)


def _pairs(
    draw: torch.Generator, copies: int, *shape: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(drawn(draw, *shape), drawn(draw, *shape)) for _ in range(copies)]


def _sum(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Tensors:
    first, second = pairs[0]
    return (first.double() + second.double(),)


def _size(tokens: int, features: int) -> str:
    return f"{tokens:,} tokens x {features:,}, fp16"


def _speed_up(
    what: str, race: Race, name: str, published: float | None, published_share: float | None
) -> Row:
    row = speed_up(what, race, PYTORCH, name, published)
    return replace(row, published_share=published_share)


def _share(
    setup: Setup, race: Race, name: str, counted: int, elements: int, published: float
) -> Row:
    """A share of the datasheet's bandwidth by a number of elements for each of the output."""
    return share_of_peak(
        f"{'eager' if name == PYTORCH else 'one kernel'}, share of the datasheet's bandwidth by "
        f"{counted} elements",
        race,
        name,
        published,
        _ITEM * counted * elements,
        setup.datasheet_bytes_per_s,
    )


def _beside(race: Race, name: str) -> tuple[Row, ...]:
    """Ours beside Liger-Kernel, where it is installed, and beside the same bytes."""
    others = ((LIGER, "Liger-Kernel"), (STREAM, "PyTorch moving the same bytes"))
    present = {one.name for one in race.entrants if one.error is None}
    return tuple(
        speed_up(f"ours beside {what}", race, other, name, None)
        for other, what in others
        if other in present
    )


_NORM_NOTES = (
    "The source counts 3 elements for each of x (the weight as one), hence 88 %. The weight is one "
    "row for all tokens: by the 2 elements that move, its 36.9 µs are 910 GB/s, 58.5 % of 1,555, "
    "and PyTorch's 299.6 µs are 7.2 %.",
    "Liger-Kernel publishes 279.9 to 31.1 µs (9.0 x) for this shape in bf16 on an A100-SXM4-80GB: "
    "53 % of its datasheet's bandwidth by the 2 elements.",
)
_SUM_NOTES = (
    "The source's kernel returns the norm without the sum, and its share counts 4 elements where 3 "
    "move: its 52.2 µs are 964 GB/s, 62 % of 1,555.",
)

CLAIMS = (
    Claim(
        "prefill-rmsnorm",
        "RMSNorm 8.1 x as fast as PyTorch, 11 to 88 % of the peak bandwidth",
        SOURCE,
        measure_rms_norm,
    ),
    Claim(
        "prefill-rmsnorm-residual",
        "RMSNorm with the residual's addition 6.0 x as fast as PyTorch",
        SOURCE,
        measure_rms_norm_residual,
    ),
    Claim(
        "prefill-swiglu",
        "SwiGLU's activation 1.6 x as fast as PyTorch",
        SOURCE,
        measure_swiglu,
    ),
)
