"""residual += sum over the slots s of p_s x_s: the outputs of a batch's experts, weighted; or that
sum alone.

Bytes moved: x and the router's logits once, the residual read and written; over the links, the sums
to each other rank of an `exchange`. The slots are added in the order of their logits, so that the
same inputs give the same bits.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.pushed_sums import message_slots, message_turn, push_sums
from decodescope.kernels.device.routing import next_expert, own_expert, router_keys
from decodescope.kernels.host.checks import check_floats, check_tensor
from decodescope.kernels.host.exchange import Exchange, sending
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import Launch, ResidualOperation, Tensors, launch
from decodescope.kernels.ops.experts_gate_up import used_experts

_BLOCK, _WARPS = 512, 4


def expert_shares(logits: torch.Tensor, experts: Experts) -> torch.Tensor:
    """The weights of each token's chosen experts in float64, [batch, chosen], by falling logit."""
    values = logits.double()
    weights = values.softmax(dim=-1) if experts.correction is None else values.sigmoid()
    shares = weights.gather(1, used_experts(logits, experts))
    if experts.normalized:
        shares /= shares.sum(dim=-1, keepdim=True)
    return experts.factor * shares


def experts_combine_reference(
    x: torch.Tensor, experts: Experts, logits: torch.Tensor, residual: torch.Tensor
) -> torch.Tensor:
    """residual + sum over s of p[b, s] x[b, s] in float64. x [batch, chosen, hidden]."""
    shares = expert_shares(logits, experts)
    return residual.double() + (shares[..., None] * x.double()).sum(dim=1)


@triton.jit
def _experts_combine_kernel(
    x_ptr,
    logits_ptr,
    correction_ptr,
    residual_ptr,
    peers_ptr,
    turns_ptr,
    N: tl.constexpr,
    EXPERTS: tl.constexpr,
    FIRST: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,
    NORMALIZED: tl.constexpr,
    FACTOR: tl.constexpr,
    ADDS: tl.constexpr,
    MESSAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    token = tl.program_id(1)
    first = tl.program_id(0) * BLOCK
    column = first + tl.arange(0, BLOCK)
    mask = column < N
    # Not written by the previous kernel, which starts this one only when they are complete.
    weights, keys = router_keys(logits_ptr, correction_ptr, token, EXPERTS)
    shares, own = (), ()
    used = tl.full((), 0.0, tl.float32)
    for _ in tl.static_range(CHOSEN):
        expert, share, keys = next_expert(weights, keys)
        _, is_own = own_expert(expert, FIRST, HELD)
        own = own + (is_own,)  # type: ignore[assignment]  # noqa: RUF005
        # Triton unpacks no tuples.
        shares = shares + (share,)  # type: ignore[assignment]  # noqa: RUF005
        used += share
    slots = message_slots(peers_ptr, MESSAGE)
    wait_for_previous(PDL)
    turn = message_turn(turns_ptr, MESSAGE)
    places = residual_ptr + token * N + column
    if ADDS:
        residual = tl.load(places, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in tl.static_range(CHOSEN):
        written = mask
        if HELD < EXPERTS:
            written = column < tl.where(own[slot], N, 0)
        x = tl.load(x_ptr + (token * CHOSEN + slot) * N + column, mask=written, other=0.0)
        total += shares[slot] * x
    if not NORMALIZED:
        used = tl.sum(weights, axis=0)
    total = FACTOR * total / used
    if ADDS:
        total += residual
    if MESSAGE is not None:
        push_sums(total[:, None], first, token, slots, turn, MESSAGE)
    tl.store(places, total.to(residual_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class ExpertsCombine(ResidualOperation):
    """residual[b, n] += sum over s of p[b, s] x[b, s, n], in place, rounded once; p the weight of
    the expert of b with the s-th largest of `logits` (`Experts`). Unless it `adds`, what was there
    is neither read nor kept.

    x float32 [batch, chosen, hidden], logits [batch, experts], residual [batch, hidden],
    contiguous; `exchange` as of `LinearResidual`. Launched with overlap, it must come after
    `ExpertsGateUp` and `ExpertsDownProducts` on the same logits.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices.
    """

    x: torch.Tensor
    experts: Experts
    logits: torch.Tensor
    residual: torch.Tensor
    adds: bool = True
    exchange: Exchange | None = None

    def launch(self, pdl: bool = False) -> Launch:
        x, experts, residual = self.x, self.experts, self.residual
        batch, hidden, device = len(x), experts.router.columns, x.device
        check_tensor("x", x, (batch, experts.chosen, hidden), torch.float32, device)
        check_floats("residual", residual, (batch, hidden), device)
        check_floats("logits", self.logits, (batch, experts.count), device)
        operands, message = sending(self.exchange, residual, _WARPS)
        return launch(
            _experts_combine_kernel,
            (triton.cdiv(hidden, _BLOCK), batch),
            x,
            self.logits,
            experts.correction,
            residual,
            *operands,
            N=hidden,
            EXPERTS=experts.count,
            FIRST=experts.first,
            HELD=experts.held,
            CHOSEN=experts.chosen,
            NORMALIZED=experts.normalized,
            FACTOR=experts.factor,
            ADDS=self.adds,
            MESSAGE=message,
            BLOCK=_BLOCK,
            PDL=pdl,
            num_warps=_WARPS,
        )

    def inputs(self, position: int) -> Tensors:
        return self.x, self.logits

    def reference(self, position: int) -> Tensors:
        return (experts_combine_reference(self.x, self.experts, self.logits, self.start),)
