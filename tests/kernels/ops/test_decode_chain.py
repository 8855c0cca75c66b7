"""The fused kernels one after another, as a decode step launches them, over several steps."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from decodescope.kernels.device.attention_splits import attention_workspace
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix
from decodescope.kernels.ops.decode_attention import DecodeAttention, decode_attention_reference
from decodescope.kernels.ops.embedding import Embed
from decodescope.kernels.ops.linear import linear_reference
from decodescope.kernels.ops.linear_residual import LinearResidual, linear_residual_reference
from decodescope.kernels.ops.norm_gate_up import NormGateUp, norm_gate_up_reference
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope, norm_qkv_rope_reference
from decodescope.kernels.ops.rope import RopeTable


@dataclass(frozen=True)
class Sizes:
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    layers: int
    capacity: int
    wide: Tile
    split: Tile
    attention: Tile


SMALL = Sizes(50, 4, 2, 32, 35, 29, 2, 3, Tile(32, 32), Tile(32, 32, splits=2), Tile(1, 16))
LARGE = Sizes(
    2048,
    32,
    8,
    64,
    8191,
    30_011,
    4,
    600,
    Tile(8, 2048, 8, 1),
    Tile(4, 1024, 4, 2, splits=3),
    Tile(1, 64, 4, splits=4),
)


@dataclass(frozen=True)
class Layer:
    attention_norm: Norm
    qkv: WeightMatrix
    qk_norm: QkNorm | None
    out: WeightMatrix
    mlp_norm: Norm
    gate_up: WeightMatrix
    down: WeightMatrix


class Chain:
    """Weights, caches and buffers of a small decoder."""

    def __init__(self, make, sizes: Sizes, qk: bool) -> None:
        self.sizes = sizes
        hidden, head_dim, kv_heads = sizes.hidden, sizes.head_dim, sizes.kv_heads
        self.layers = [
            Layer(
                make.norm(hidden, seed=10 + index),
                make.weight((sizes.heads + 2 * kv_heads) * head_dim, hidden, biased=True),
                make.qk_norm(head_dim) if qk else None,
                make.weight(hidden, sizes.heads * head_dim),
                make.norm(hidden, seed=20 + index),
                make.weight(2 * sizes.intermediate, hidden, scaled=True),
                make.weight(hidden, sizes.intermediate),
            )
            for index in range(sizes.layers)
        ]
        self.table, self.norm = make.random(sizes.vocabulary, hidden), make.norm(hidden)
        self.head = make.weight(sizes.vocabulary, hidden)
        angles = make.random(sizes.capacity, head_dim // 2, dtype=torch.float32) * 3
        self.rope = RopeTable(angles.cos(), angles.sin())
        self.scale = head_dim**-0.5
        cache = (sizes.layers, 2, 1, kv_heads, sizes.capacity, head_dim)
        self.caches = make.poisoned(*cache)
        self.x, self.act = make.poisoned(1, hidden), make.poisoned(1, sizes.intermediate)
        self.q, self.attended = (make.poisoned(1, sizes.heads, head_dim) for _ in range(2))
        self.logits = make.poisoned(1, sizes.vocabulary, dtype=torch.float32)
        self.tokens = torch.zeros(1, sizes.capacity + 1, dtype=torch.int64, device=make.device)
        self.position = make.position(0)
        splits = sizes.attention.splits
        floats, counters = attention_workspace(1, sizes.heads, head_dim, splits)
        rows = (sizes.heads + 2 * kv_heads) * head_dim
        self.workspace = make.workspace(
            max(floats, rows, sizes.split.splits * (hidden + sizes.split.rows)),
            max(counters, hidden, sizes.heads + kv_heads),
        )

    def written(self) -> list[torch.Tensor]:
        """What a step changes."""
        buffers = (self.x, self.q, self.attended, self.act, self.logits)
        return [self.caches, self.tokens, self.position, *buffers]

    def start_at(self, position: int) -> None:
        """Caches with a history of this length, nothing else from an earlier step."""
        for buffer in self.written():
            if buffer.is_floating_point():
                buffer.fill_(float("nan"))
        generator = torch.Generator().manual_seed(position)
        history = self.caches[..., :position, :]
        history.copy_(torch.randn(history.shape, generator=generator))
        self.tokens.zero_()
        self.position.fill_(position)

    def step(self, pdl: bool = False) -> None:
        sizes, workspace = self.sizes, self.workspace
        # The first kernel waits for the previous step, which wrote the token and the position.
        Embed(WeightMatrix(self.table), self.tokens, self.position, self.x).launch()
        for layer, (k_cache, v_cache) in zip(self.layers, self.caches, strict=True):
            NormQkvRope(
                self.x,
                layer.attention_norm,
                layer.qkv,
                self.rope,
                self.position,
                self.q,
                k_cache,
                v_cache,
                sizes.wide,
                workspace,
                layer.qk_norm,
            ).launch(pdl)
            DecodeAttention(
                self.q,
                k_cache,
                v_cache,
                self.position,
                self.scale,
                self.attended,
                sizes.attention,
                workspace,
            ).launch(pdl)
            attended = self.attended.view(1, -1)
            LinearResidual(attended, layer.out, self.x, sizes.split, workspace).launch(pdl)
            NormGateUp(self.x, layer.mlp_norm, layer.gate_up, self.act, sizes.wide).launch(pdl)
            LinearResidual(self.act, layer.down, self.x, sizes.split, workspace).launch(pdl)
        NormHead(
            self.x,
            self.norm,
            self.head,
            self.tokens,
            self.position,
            sizes.wide,
            workspace,
            self.logits,
        ).launch(pdl)

    def expected_logits(self, at: int) -> torch.Tensor:
        """Logits in float64 for the token at this position, from the caches before it."""
        sizes = self.sizes
        x = self.table[self.tokens[:, at]].double()
        for layer, caches in zip(self.layers, self.caches, strict=True):
            q, k, v = norm_qkv_rope_reference(
                x,
                layer.attention_norm,
                layer.qkv,
                self.rope,
                at,
                sizes.heads,
                sizes.kv_heads,
                layer.qk_norm,
            )
            k_cache, v_cache = caches.double()
            k_cache[:, :, at], v_cache[:, :, at] = k, v
            attended = decode_attention_reference(q, k_cache, v_cache, at, self.scale)
            x = linear_residual_reference(attended.view(1, -1), layer.out, x)
            act = norm_gate_up_reference(x, layer.mlp_norm, layer.gate_up)
            x = linear_residual_reference(act, layer.down, x)
        return linear_reference(x, self.head, self.norm)


@pytest.mark.parametrize(("splits", "qk"), [(1, False), (2, True)])
def test_a_chain_of_steps_is_the_model(splits: int, qk: bool, inputs, assert_reset) -> None:
    sizes = replace(SMALL, attention=replace(SMALL.attention, splits=splits))
    chain = Chain(inputs(torch.float32), sizes, qk)
    chain.start_at(1)
    for at in range(1, sizes.capacity):
        expected = chain.expected_logits(at)
        chain.step()
        error = (chain.logits.double() - expected).norm() / expected.norm()
        # Six roundings a layer, each of 2^-24 and less.
        assert error.item() < 2e-6
        assert chain.tokens[0, at + 1] == expected.argmax()
        assert chain.position.item() == at + 1
        assert_reset(chain.workspace)


def replayable(chain: Chain, pdl: bool) -> Callable[[], None]:
    """A step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Compiles and loads the kernels, which a capture does not allow.
        chain.step(pdl)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain.step(pdl)
    return graph.replay


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("qk", [False, True])
def test_overlapping_launches_change_no_bit(
    qk: bool, dtype: torch.dtype, inputs, assert_reset
) -> None:
    if not can_overlap(torch.device("cuda")):
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    chain = Chain(inputs(dtype), LARGE, qk)
    chain.start_at(500)
    plain, overlapping = replayable(chain, pdl=False), replayable(chain, pdl=True)
    results = []
    for replay in (plain, overlapping):
        chain.start_at(500)
        steps = []
        for _ in range(20):
            replay()
            steps.append([buffer.clone() for buffer in chain.written()])
        results.append(steps)
    for expected, step in zip(*results, strict=True):
        for one, other in zip(expected, step, strict=True):
            torch.testing.assert_close(other, one, rtol=0, atol=0, equal_nan=True)
    assert chain.position.item() == 520
    assert not chain.logits.isnan().any()
    assert_reset(chain.workspace)


@pytest.mark.gpu
def test_steps_overlap_in_an_uninterrupted_run(inputs, assert_reset) -> None:
    if not can_overlap(torch.device("cuda")):
        pytest.skip("programmatic dependent launch needs compute capability 9.0")
    chain = Chain(inputs(torch.bfloat16), LARGE, qk=True)
    chain.start_at(0)
    plain, overlapping = replayable(chain, pdl=False), replayable(chain, pdl=True)
    results = []
    for replay in (plain, overlapping, overlapping):
        chain.start_at(0)
        # Nothing between the replays: each step starts right after the previous one.
        for _ in range(LARGE.capacity):
            replay()
        results.append([buffer.clone() for buffer in chain.written()])
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))
    assert_reset(chain.workspace)
