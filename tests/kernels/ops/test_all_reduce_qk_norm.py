"""The norms of all heads of several ranks, whose memory is in one process; PyTorch plays the ranks
that do not run."""

import pytest
import torch

from decodescope.kernels.host.exchange import MARK, Exchange
from decodescope.kernels.host.weights import Norm, QkNorm
from decodescope.kernels.ops.all_reduce_qk_norm import AllReduceQkNorm, norm_words
from decodescope.kernels.ops.rms_norm import rms_norm_reference
from tests.helpers.exchanges import exchanges_of, play_push, pushed
from tests.helpers.kernel_inputs import LIMITS, random, relative_error
from tests.helpers.refusals import refuses

EPS = 1e-2


def message(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """What a rank sends: the mean squares of its rows in the first piece of each token."""
    words = torch.zeros(len(q), norm_words(1), device=q.device)
    words[:, 0], words[:, 1] = (rows.float().square().mean(-1) for rows in (q, k))
    return words


def strided(rows: torch.Tensor) -> torch.Tensor:
    """The same rows, each behind what another one has."""
    return torch.cat((torch.full_like(rows, torch.nan), rows), dim=1)[:, rows.shape[1] :]


def parts_of(whole: torch.Tensor, heads: int, ranks: int) -> list[torch.Tensor]:
    """The columns of each rank: its heads, or the one that it shares with neighbours."""
    held = whole.chunk(min(heads, ranks), dim=-1)
    return [held[rank * len(held) // ranks] for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "batch", "q_size", "kv_heads", "dtype"),
    [
        *((2, 3, 72, 2, dtype) for dtype in LIMITS),
        (2, 1, 2 * 2050, 2, torch.float32),
        (3, 1, 21, 3, torch.float32),
        # Two ranks have the same head of K.
        (4, 2, 20, 2, torch.float32),
        (4, 5, 8, 1, torch.bfloat16),
    ],
)
def test_the_means_are_those_of_all_heads(
    ranks: int, batch: int, q_size: int, kv_heads: int, dtype: torch.dtype, device: str
) -> None:
    exchanges, sizes = exchanges_of(ranks, norm_words(batch), device), (q_size, 7 * kv_heads)
    for launch in range(4):
        seed = 10 * launch
        rows = [random(batch, size, seed=seed, dtype=dtype, device=device) for size in sizes]
        # Each rank has others: a mean of its own columns alone is wrong.
        rows = [one * torch.linspace(0.5, 3, one.shape[1], device=device).to(dtype) for one in rows]
        weights = [random(size, seed=seed + 1, dtype=dtype, device=device) for size in sizes]
        expected = [
            parts_of(rms_norm_reference(one, Norm(weight, EPS)), heads, ranks)
            for one, weight, heads in zip(rows, weights, (ranks, kv_heads), strict=True)
        ]
        q_parts, k_parts = parts_of(rows[0], ranks, ranks), parts_of(rows[1], kv_heads, ranks)
        q_weights, k_weights = (
            [part.clone() for part in parts_of(weight, heads, ranks)]
            for weight, heads in zip(weights, (ranks, kv_heads), strict=True)
        )
        sent = [message(*each) for each in zip(q_parts, k_parts, strict=True)]
        for rank in range(ranks):
            for source in set(range(ranks)) - {rank}:
                play_push([exchanges[rank]], source, launch, sent[source])
            q, k = strided(q_parts[rank]), strided(k_parts[rank])
            norm = QkNorm(q_weights[rank], k_weights[rank], EPS)
            AllReduceQkNorm(q, k, norm, exchanges[rank]).launch()
            for found, parts in zip((q, k), expected, strict=True):
                assert relative_error(found, parts[rank]) < LIMITS[dtype]
            for other in exchanges:
                if other.rank != rank:
                    words = pushed(other, rank, launch, sent[rank].numel()).view(torch.float32)
                    torch.testing.assert_close(words, sent[rank].flatten(), rtol=1e-6, atol=0)
        assert not any(exchange.missing.item() for exchange in exchanges)


def operation(exchange: Exchange, device: str) -> AllReduceQkNorm:
    q, k = (random(3, size, seed=size, device=device) for size in (24, 8))
    weights = (random(size, seed=1, device=device) for size in (24, 8))
    return AllReduceQkNorm(q, k, QkNorm(*weights, EPS), exchange)


@pytest.mark.parametrize("broken", ["missing", "nan"])
def test_what_a_rank_lacks_costs_one_token(broken: str, device: str) -> None:
    exchanges = exchanges_of(2, norm_words(3), device, patience_ns=200)
    launched = operation(exchanges[0], device)
    # The other rank has the same.
    expected = launched.reference(0)
    sent = message(launched.q, launched.k)
    if broken == "nan":
        sent[1, 0] = torch.nan
    play_push(exchanges, 1, 0, sent)
    if broken == "missing":
        exchanges[0].slots[0, 1].view(3, -1)[1, 5] = MARK
    launched.launch()
    if device == "cuda":
        torch.cuda.synchronize()
    assert exchanges[0].missing.item() == (2 if broken == "missing" else 0)
    for found, wanted in zip(launched.updated, expected, strict=True):
        assert relative_error(found[::2], wanted[::2]) < LIMITS[torch.float32]
    assert launched.q[1].isnan().all()
    assert launched.k[1].isnan().all() == (broken == "missing")


def test_bytes_are_those_of_rows_and_weights() -> None:
    moved = operation(exchanges_of(2, norm_words(3), "cpu")[0], "cpu").bytes_moved(0)
    assert moved == 4 * (2 * 3 * (24 + 8) + 24 + 8)


Q, K = torch.zeros(2, 8), torch.zeros(2, 4)
NORM = QkNorm(torch.ones(8), torch.ones(4), EPS)
EXCHANGE = exchanges_of(2, norm_words(2), "cpu")[0]

test_bad_operands_are_refused = refuses(
    (AllReduceQkNorm(q, k, norm, exchange).launch, complaint)
    for q, k, norm, exchange, complaint in [
        (Q[0], K, NORM, EXCHANGE, r"q \[8\], k \[2, 4\]: must be \[1 to 64, features\]"),
        (Q.long(), K, NORM, EXCHANGE, "q is torch.int64"),
        (Q, K.half(), NORM, EXCHANGE, "k is torch.float16"),
        (Q, K[:1], NORM, EXCHANGE, r"k .*\[1, 4\]"),
        (Q, K, QkNorm(torch.ones(4), torch.ones(4), EPS), EXCHANGE, "q norm weight"),
        (Q, K, QkNorm(torch.ones(8), torch.ones(8), EPS), EXCHANGE, "k norm weight"),
        (Q[:1], K[:1], NORM, EXCHANGE, "exchange of 64 pieces"),
    ]
)
