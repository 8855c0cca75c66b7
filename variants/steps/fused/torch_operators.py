"""PyTorch's own operators, which stand in for our kernels where a variant leaves them out.

They are launched again in every step, because they allocate their results.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from decodescope.kernels.host.operation import Launch, Operation, Tensors
from decodescope.variants.parallel.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TorchOperator(Operation):
    """`call()` calls PyTorch on fixed memory, without waiting for the device; it reads
    `weights`."""

    call: Callable[[], object]
    weights: Tensors = ()

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        self.call()
        return ()


class VisibleRows:
    """The visible rows of the cache, bool [1, 1, 1, capacity], for each window of the model.

    The masks are made on the device, so a captured graph serves every position; in return every
    step reads the whole cache.
    """

    def __init__(
        self, windows: Iterable[int | None], capacity: int, device: torch.device | str
    ) -> None:
        self._rows = torch.arange(capacity, dtype=torch.int32, device=device)
        self._masks = {
            window: torch.zeros(capacity, dtype=torch.bool, device=device) for window in windows
        }

    def update(self, position: torch.Tensor) -> None:
        """Set the masks for a query at `position` int32 [1], whose own row is in the cache."""
        for window, mask in self._masks.items():
            torch.le(self._rows, position, out=mask)
            if window is not None:
                mask &= self._rows > position - window

    def of(self, window: int | None) -> torch.Tensor:
        return self._masks[window][None, None, None]


def static_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    mask: torch.Tensor,
    scale: float,
    cap: float | None,
    out: torch.Tensor,
    sinks: torch.Tensor | None = None,
) -> None:
    """out = softmax(scale q K^T) V over the rows that `mask` shows, [batch, heads * head_dim]; with
    a `cap` or `sinks` [heads], further logits without a row, PyTorch's attention lacks them.

    q [batch, heads, head_dim], caches [batch, KV heads, capacity, head_dim]. Nothing is copied:
    `out` becomes the tensor that PyTorch allocates for the result.
    """
    if cap is not None or sinks is not None:
        heads = q.view(len(q), k_cache.shape[1], -1, q.shape[2])
        scores = scale * heads @ k_cache.mT
        if cap is not None:
            scores = cap * (scores / cap).tanh()
        scores = scores.masked_fill(~mask, -torch.inf)
        if sinks is not None:
            columns = sinks.view(1, *heads.shape[1:3], 1).expand(len(q), -1, -1, -1)
            scores = torch.cat((scores, columns), dim=-1)
        weights = scores.softmax(-1, torch.float32).to(q.dtype)[..., : k_cache.shape[2]]
        out.set_((weights @ v_cache).reshape(len(q), -1))  # type: ignore[call-overload]
        return
    result = scaled_dot_product_attention(
        q[:, :, None],
        k_cache,
        v_cache,
        attn_mask=mask,
        scale=scale,
        enable_gqa=q.shape[1] != k_cache.shape[1],
    )
    out.set_(result.reshape(q.shape[0], -1))  # type: ignore[call-overload]


def choose_largest(
    vocabulary: Vocabulary, logits: torch.Tensor, position: torch.Tensor, tokens: torch.Tensor
) -> None:
    """Move `position` int32 [1] on by one, and write the token of the largest of logits [batch,
    tokens of this rank], over all ranks, to that column of `tokens` int64 [batch, capacity + 1]."""
    chosen = vocabulary.likeliest(logits)[:, None]
    position.add_(1)
    tokens.index_copy_(1, position.long(), chosen)


def scale_by_sigmoid(x: torch.Tensor, logits: torch.Tensor) -> None:
    """x [batch, width] * sigmoid(logits [batch, 1]) in place."""
    x.mul_(logits.sigmoid())


def cap_softly(logits: torch.Tensor, cap: float) -> None:
    """cap * tanh(logits / cap) in place."""
    logits.div_(cap).tanh_().mul_(cap)
