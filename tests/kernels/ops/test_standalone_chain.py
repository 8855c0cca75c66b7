"""The standalone kernels one after another, as a decode step without fusions launches them."""

import pytest
import torch

from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.embedding import Embed
from decodescope.kernels.ops.kv_write import KvWrite
from decodescope.kernels.ops.linear import Linear
from decodescope.kernels.ops.rms_norm import RmsNorm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from decodescope.kernels.ops.rope import RopeTable, Rotate, rotated_reference
from decodescope.kernels.ops.swiglu import Swiglu

HIDDEN, INTERMEDIATE, HEADS, HEAD_DIM, CAPACITY, VOCABULARY = 96, 140, 3, 32, 6, 50
TILE = Tile(16, 128)
EPS = 1e-5


class Block:
    """Embedding, Q/K/V into the cache, and the MLP, with buffers of their own: no attention."""

    def __init__(self, device: str) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.device = device
        self.table = self.random(VOCABULARY, HIDDEN)
        self.tokens = torch.randint(VOCABULARY, (1, CAPACITY + 1), generator=self.generator)
        self.tokens = self.tokens.to(device)
        self.norms = [Norm(self.random(HIDDEN), EPS) for _ in range(2)]
        self.qkv = WeightMatrix(self.random(3 * HEADS * HEAD_DIM, HIDDEN) / 10)
        self.gate_up = WeightMatrix(self.random(2 * INTERMEDIATE, HIDDEN) / 10)
        self.down = WeightMatrix(self.random(HIDDEN, INTERMEDIATE) / 12)
        angles = self.random(CAPACITY, HEAD_DIM // 2)
        self.rope = RopeTable(angles.cos(), angles.sin())
        self.caches = torch.zeros(2, 1, HEADS, CAPACITY, HEAD_DIM, device=device)

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.device)

    def poisoned(self, width: int) -> torch.Tensor:
        return torch.full((1, width), float("nan"), device=self.device)

    def step(self, position: torch.Tensor, pdl: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual and its norm after the MLP."""
        residual, normed, down = (self.poisoned(HIDDEN) for _ in range(3))
        projection, product = self.poisoned(self.qkv.rows), self.poisoned(2 * INTERMEDIATE)
        q, k, v = projection.view(1, 3 * HEADS, HEAD_DIM).split(HEADS, dim=1)
        gate, up = product.chunk(2, dim=-1)
        # Allocated before the first launch, so that nothing but these kernels is on the stream.
        activated = self.poisoned(INTERMEDIATE)
        Embed(WeightMatrix(self.table), self.tokens, position, residual).launch(pdl)
        RmsNorm(residual, self.norms[0], normed).launch(pdl)
        Linear(normed, self.qkv, projection, TILE).launch(pdl)
        Rotate(q, k, self.rope, position).launch(pdl)
        KvWrite(k, v, self.caches[0], self.caches[1], position).launch(pdl)
        Linear(residual, self.gate_up, product, TILE, self.norms[0]).launch(pdl)
        Swiglu(gate, up, activated).launch(pdl)
        Linear(activated, self.down, down, TILE).launch(pdl)
        RmsNormResidual(down, residual, self.norms[1], normed).launch(pdl)
        return residual, normed

    def expected(self, position: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Residual, norm, and the new K rows, from torch's own modules in float64."""
        x = self.table[self.tokens[:, position]].double()
        shape, weights = (HIDDEN,), [norm.weight.double() for norm in self.norms]
        normed = torch.nn.functional.rms_norm(x, shape, weights[0], EPS)
        _, k, _ = (normed @ self.qkv.dense().T).view(3, HEADS, HEAD_DIM)
        gate, up = (normed @ self.gate_up.dense().T).chunk(2, dim=-1)
        x = x + (torch.nn.functional.silu(gate) * up) @ self.down.dense().T
        out = torch.nn.functional.rms_norm(x, shape, weights[1], EPS)
        return x, out, rotated_reference(k, self.rope, position)


@pytest.mark.parametrize("pdl", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_a_block_at_every_position(pdl: bool, device: str) -> None:
    if pdl and not can_overlap(torch.device("cuda")):
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    block = Block(device)
    positions = torch.arange(CAPACITY, dtype=torch.int32, device=device)
    results = [block.step(positions[step : step + 1], pdl) for step in range(CAPACITY)]
    for step, (residual, normed) in enumerate(results):
        expected_residual, expected_normed, k = block.expected(step)
        torch.testing.assert_close(residual.double(), expected_residual, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(normed.double(), expected_normed, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(block.caches[0, 0, :, step].double(), k, atol=2e-5, rtol=1e-5)
    assert block.caches.count_nonzero() == block.caches.numel()


@pytest.mark.gpu
def test_overlapped_launches_give_the_same_bits() -> None:
    if not can_overlap(torch.device("cuda")):
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    block = Block("cuda")
    position = torch.tensor([3], dtype=torch.int32, device="cuda")
    expected = block.step(position, pdl=False)
    for _ in range(100):
        assert all(map(torch.equal, block.step(position, pdl=True), expected))
