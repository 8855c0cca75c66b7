"""The all-reduce of ranks that run at the same time."""

from dataclasses import dataclass

import pytest
import torch
import triton
import triton.language as tl

from decodescope.kernels.host.exchange import Exchange
from decodescope.kernels.host.weights import Norm, QkNorm
from decodescope.kernels.host.workspace import MAX_BATCH, NO_KEY
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS, AllReduceChoice
from decodescope.kernels.ops.all_reduce_qk_norm import AllReduceQkNorm, norm_words
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.kernels.ops.rms_norm import rms_norm_reference
from tests.helpers.exchanges import exchanges_of, play_push
from tests.helpers.kernel_inputs import LIMITS, at, poisoned, random, relative_error
from tests.helpers.ranks.on_streams import assert_replays_agree, synchronize, two_exchanges

pytestmark = pytest.mark.gpu
_LATE_CYCLES = 3000
_ELEMENTS = 1024


@triton.jit
def _begin_kernel(bases_ptr, launches_ptr, x_ptr, out_ptr, N, RANK: tl.constexpr, E: tl.constexpr):
    """The next message of a rank: its base times a factor that each launch has of its own."""
    columns = tl.program_id(0) * E + tl.arange(0, E)
    base = tl.load(bases_ptr + RANK * N + columns, mask=columns < N)
    factor = 1.0 + ((tl.load(launches_ptr) + 1) % 8191).to(tl.float32) / 8192
    tl.store(x_ptr + columns, base * factor, mask=columns < N)
    tl.store(out_ptr + columns, float("nan"), mask=columns < N)


@triton.jit
def _compare_kernel(bases_ptr, launches_ptr, out_ptr, wrong_ptr, N, E: tl.constexpr):
    """Count the elements of a launch's sum that are not those of both messages."""
    columns = tl.program_id(0) * E + tl.arange(0, E)
    mask = columns < N
    factor = 1.0 + ((tl.load(launches_ptr) + 1) % 8191).to(tl.float32) / 8192
    first = tl.load(bases_ptr + columns, mask=mask) * factor
    last = tl.load(bases_ptr + N + columns, mask=mask) * factor
    wrong = mask & (tl.load(out_ptr + columns, mask=mask) != first + last)
    tl.atomic_add(wrong_ptr, tl.sum(wrong.to(tl.int64)))


@dataclass
class StreamRank:
    """A rank whose messages are other numbers in each launch, and which compares each result."""

    exchange: Exchange
    bases: torch.Tensor
    pdl: bool

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.launches = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.wrong = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.out = poisoned(self.bases[0])
        self.x = torch.empty_like(self.out)
        self.operation = AllReduceResidual(self.x, self.out, self.exchange, adds=False)

    def launch(self, late: bool) -> None:
        """One launch on the current stream; it comes `late` if the other rank's does not."""
        bases, launches, out, n = self.bases, self.launches, self.out, self.out.numel()
        grid = (triton.cdiv(n, _ELEMENTS),)
        rank = self.exchange.rank
        _begin_kernel[grid](bases, launches, self.x, out, n, RANK=rank, E=_ELEMENTS)
        if late:
            torch.cuda._sleep(_LATE_CYCLES)
        self.operation.launch(self.pdl)
        # Products and sums are rounded one by one, as those of the ranks are.
        options = {"E": _ELEMENTS, "enable_fp_fusion": False}
        _compare_kernel[grid](bases, launches, out, self.wrong, n, **options)
        launches.add_(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "launches", "pdl"),
    [((1, 4096), 1_000_000, True), ((1, 99), 20_000, False), ((64, 4096), 20_000, True)],
)
def test_many_launches_give_no_stale_and_no_torn_word(
    shape: tuple[int, int], launches: int, pdl: bool
) -> None:
    words, in_graph = shape[0] * shape[1], 500
    bases = torch.stack([random(*shape, seed=seed, device="cpu") for seed in range(2)])
    exchanges, ranks = two_exchanges(words), []
    for source, base in enumerate(bases.cuda()):
        play_push(exchanges, source, 0, base * (1 + 1 / 8192))
    for exchange in exchanges:
        with torch.cuda.device(exchange.slots.device):
            ranks.append(StreamRank(exchange, bases.cuda(), pdl))
            # Loads what is compiled, which may wait for kernels that run: none may wait now.
            synchronize(exchanges)
            with torch.cuda.stream(ranks[-1].stream):
                ranks[-1].launch(late=False)
    synchronize(exchanges)
    assert_replays_agree(ranks, launches, in_graph)


def test_ranks_that_run_together_choose_the_same_tokens() -> None:
    batch, capacity = 33, 200
    exchanges = exchanges_of(2, CHOICE_WORDS, "cuda")
    first = torch.zeros(CHOICE_WORDS, dtype=torch.int32, device="cuda")
    for rank in range(2):
        # As above.
        play_push(exchanges, 1 - rank, 0, first)
        # Triton compiles other code for another capacity.
        keys, tokens = (
            torch.zeros(*shape, dtype=torch.int64, device="cuda")
            for shape in ((MAX_BATCH,), (batch, capacity + 1))
        )
        AllReduceChoice(keys, tokens, at(0, "cuda"), exchanges[rank]).launch()
        torch.cuda.synchronize()
    generator = torch.Generator().manual_seed(0)
    # Bit 31 of a key is 0 (`device/choice.py`).
    every_key = (capacity, 2, MAX_BATCH)
    values = torch.randint(-(2**31), 2**31, every_key, generator=generator)
    indices = torch.randint(2**31, every_key, generator=generator)
    keys = ((values << 32) | indices).cuda()
    chosen = [torch.full((batch, capacity + 1), -1, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    held = [torch.full((MAX_BATCH,), NO_KEY, device="cuda") for _ in range(2)]
    positions = [at(0, "cuda") for _ in range(2)]
    torch.cuda.synchronize()
    for position in range(capacity):
        for rank in range(2):
            with torch.cuda.stream(streams[rank]):
                held[rank].copy_(keys[position, rank])
                memory = held[rank], chosen[rank], positions[rank], exchanges[rank]
                AllReduceChoice(*memory).launch()
    torch.cuda.synchronize()
    assert [exchange.missing.item() for exchange in exchanges] == [0, 0]
    best = keys.amax(dim=1)[:, :batch].T
    for rank in range(2):
        assert torch.equal(chosen[rank][:, 1:], 0x7FFFFFFF - (best & 0x7FFFFFFF))
        assert (held[rank] == NO_KEY).all()


def test_ranks_that_run_together_norm_over_all_heads() -> None:
    batch, launches, eps = 33, 300, 1e-2
    exchanges = exchanges_of(2, norm_words(batch), "cuda")
    # More columns than a program has at a time; all rows begin at a multiple of 16 bytes, so that
    # nothing is compiled while a rank waits.
    q, k = (
        random(launches, 2, batch, size, seed=3, dtype=torch.bfloat16, device="cuda")
        for size in (2104, 264)
    )
    # Other means for each rank and each launch.
    factors = torch.rand(launches, 2, 1, 1, generator=torch.Generator().manual_seed(0)).cuda() + 0.1
    q, k = ((rows * factors).to(rows.dtype) for rows in (q, k))
    weights = [random(rows.shape[-1], seed=4, device="cuda") for rows in (q, k)]
    expected = [
        rms_norm_reference(torch.cat((rows[:, 0], rows[:, 1]), -1), Norm(weight.repeat(2), eps))
        for rows, weight in zip((q, k), weights, strict=True)
    ]
    norm = QkNorm(weights[0], weights[1], eps)
    for rank in range(2):
        # As above.
        play_push(exchanges, 1 - rank, 0, torch.zeros(norm_words(batch), device="cuda"))
        first = (rows[0, rank].clone() for rows in (q, k))
        AllReduceQkNorm(*first, norm, exchanges[rank]).launch(pdl=True)
        torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    for launch in range(launches):
        for rank in range(2):
            with torch.cuda.stream(streams[rank]):
                memory = q[launch, rank], k[launch, rank]
                AllReduceQkNorm(*memory, norm, exchanges[rank]).launch(pdl=True)
    torch.cuda.synchronize()
    for rows, whole in zip((q, k), expected, strict=True):
        assert relative_error(torch.cat((rows[:, 0], rows[:, 1]), -1), whole) < LIMITS[q.dtype]
    assert not any(exchange.missing.item() for exchange in exchanges)
