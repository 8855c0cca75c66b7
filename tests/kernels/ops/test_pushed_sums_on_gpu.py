"""Sums that products send to ranks that run at the same time."""

from dataclasses import dataclass, replace

import pytest
import torch

from decodescope.kernels.host.exchange import Exchange
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from tests.helpers.exchanges import play_push
from tests.helpers.kernel_inputs import poisoned, random
from tests.helpers.ranks.on_streams import assert_replays_agree, synchronize, two_exchanges

pytestmark = pytest.mark.gpu
_LATE_CYCLES = 3000
_COLUMNS = 256


@dataclass
class StreamRank:
    """A rank on the current GPU, whose products are other numbers in each launch. It computes those
    of both ranks without sending them, and compares each sum."""

    exchange: Exchange
    matrices: list[torch.Tensor]
    batch: int
    tile: Tile
    pdl: bool

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.launches = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.wrong = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.base = random(self.batch, _COLUMNS, dtype=torch.bfloat16, device="cuda")
        self.x = torch.empty_like(self.base)
        weights = [WeightMatrix((each / 16).bfloat16().cuda()) for each in self.matrices]
        self.plain = [self._product(weight) for weight in weights]
        weight, shared = weights[self.exchange.rank], self.exchange
        self.pushing = replace(self._product(weight), exchange=shared)
        self.out = poisoned(self.pushing.residual)
        operands = self.pushing.residual, self.out, shared
        self.pick_up = AllReduceResidual(*operands, adds=False, pushed=True)

    def _product(self, weight: WeightMatrix) -> LinearResidual:
        partial = torch.full((self.batch, weight.rows), torch.nan, device="cuda")
        memory = new_workspace(*split_workspace(weight, self.tile, self.batch), "cuda")
        return LinearResidual(self.x, weight, partial, self.tile, memory, adds=False)

    def messages(self) -> list[torch.Tensor]:
        """The sums of both ranks in the next launch."""
        factor = 1 + (self.launches % 8191).float() / 8192
        self.x.copy_(self.base * factor)
        for product in self.plain:
            product.launch()
        return [product.residual for product in self.plain]

    def launch(self, late: bool) -> None:
        """One launch on the current stream; it comes `late` if the other rank's does not."""
        messages = self.messages()
        self.launches.add_(1)
        self.pushing.residual.fill_(torch.nan)
        self.out.fill_(torch.nan)
        if late:
            torch.cuda._sleep(_LATE_CYCLES)
        self.pushing.launch(self.pdl)
        self.pick_up.launch(self.pdl)
        self.wrong.add_((self.out != messages[0] + messages[1]).sum())


# One GPU may begin a graph only when another one, whose kernels wait for it, has given up.
APART = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
# Batch, rows, tile, launches, overlap.
CASES = [
    (1, 4096, Tile(4, 256, 2), 200_000, True),
    (1, 4096, Tile(8, 128, 4, splits=2), 20_000, True),
    (1, 4096, Tile(2, 256, 8), 20_000, True),
    (1, 99, Tile(8, 256), 20_000, False),
    (1, 99, Tile(1, 256), 20_000, True),
    (4, 4096, Tile(64, 64, 4, 3, 2), 20_000, True),
    (3, 99, Tile(32, 64, 4, 2), 20_000, True),
    # In two rounds, of which the second ends early.
    pytest.param(16, 20480, Tile(64, 64, 4, 1), 5_000, True, marks=APART),
]


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "rows", "tile", "launches", "pdl"), CASES)
def test_many_launches_give_no_stale_and_no_torn_word(
    batch: int, rows: int, tile: Tile, launches: int, pdl: bool
) -> None:
    words, in_graph = batch * rows, 250
    matrices = [random(rows, _COLUMNS, seed=seed, device="cpu") for seed in (1, 2)]
    exchanges, ranks = two_exchanges(words), []
    for exchange in exchanges:
        with torch.cuda.device(exchange.slots.device):
            ranks.append(StreamRank(exchange, matrices, batch, tile, pdl))
            # Loads what is compiled, which may wait for kernels that run: none may wait now.
            other = 1 - exchange.rank
            play_push([exchange], other, 0, ranks[-1].messages()[other])
            synchronize(exchanges)
            with torch.cuda.stream(ranks[-1].stream):
                ranks[-1].launch(late=False)
            synchronize(exchanges)
    assert_replays_agree(ranks, launches, in_graph)
