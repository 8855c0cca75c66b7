"""The sampling kernels against the reference: the same tokens, not just the same distribution."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from decodescope.kernels.sampling.reference import choose_reference
from decodescope.kernels.sampling.sample import sample
from decodescope.kernels.sampling.workspace import SamplingWorkspace, new_sampling_workspace
from tests.helpers.refusals import refuses

FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.8},
    "both": {"top_k": 90, "top_p": 0.6},
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(params=list(FILTERS))
def filters(request: pytest.FixtureRequest) -> dict[str, Any]:
    return FILTERS[request.param]


def random_logits(batch: int, vocabulary: int, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch * 10_000 + vocabulary)
    return (3 * torch.randn(batch, vocabulary, generator=generator)).to(device)


def at(position: int, device: str) -> torch.Tensor:
    return torch.tensor([position], dtype=torch.int32, device=device)


def chosen(
    logits: torch.Tensor, position: int, workspace: SamplingWorkspace, **options: Any
) -> torch.Tensor:
    out = torch.full((logits.shape[0],), -7, dtype=torch.int64, device=logits.device)
    sample(logits, at(position, str(logits.device)), out, workspace, **options)
    return out


def assert_clean(workspace: SamplingWorkspace) -> None:
    """As a new one, except for slots that are written before they are read."""
    new = new_sampling_workspace(workspace.batch, workspace.state.device)
    for name in ("upper", "lower", "counters"):
        assert torch.equal(getattr(workspace, name), getattr(new, name)), name
    assert torch.equal(workspace.state[:, :3], new.state[:, :3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "vocabulary", "block"), [(1, 389, 256), (2, 131, 64)])
def test_chooses_the_reference_tokens(
    filters: dict[str, Any],
    batch: int,
    vocabulary: int,
    block: int,
    dtype: torch.dtype,
    device: str,
) -> None:
    logits = random_logits(batch, vocabulary, device).to(dtype)
    workspace = new_sampling_workspace(batch, device)
    options = {"temperature": 1.7, "seed": 6 + (5 << 40), **filters}
    ids = chosen(logits, 9, workspace, block=block, **options)
    assert torch.equal(ids, choose_reference(logits, 9, **options))
    assert_clean(workspace)


@pytest.mark.parametrize("top_p", [0.3, 0.96])
def test_ties_at_the_border_are_cut_alike(top_p: float, device: str) -> None:
    workspace = new_sampling_workspace(2, device)
    logits = random_logits(2, 301, device).round()
    logits[1] = 0.25
    for position, top_k in enumerate((None, 150, 3)):
        options = {"temperature": 4.0, "top_p": top_p, "top_k": top_k}
        expected = choose_reference(logits, position, **options)
        assert torch.equal(chosen(logits, position, workspace, **options), expected)


def test_the_tiling_does_not_matter(device: str) -> None:
    logits = random_logits(1, 1200, device)
    workspace = new_sampling_workspace(1, device)
    options = {"temperature": 2.0, "top_k": 500, "top_p": 0.9}
    ids = [chosen(logits, 3, workspace, block=block, **options) for block in (512, 1024)]
    assert torch.equal(*ids)


def test_both_signs_of_zero_are_equal(device: str) -> None:
    logits = torch.full((1, 64), -1.0, device=device)
    logits[0, 10:30:2] = 0.0
    logits[0, 11:30:2] = -0.0
    workspace = new_sampling_workspace(1, device)
    seen = set()
    for position in range(6):
        ids = chosen(logits, position, workspace, temperature=1.0, top_k=5)
        assert torch.equal(ids, choose_reference(logits, position, temperature=1.0, top_k=5))
        seen.add(ids.item() % 2)
    assert seen == {0, 1}


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}])
def test_narrow_filters_are_greedy(options: dict[str, Any], device: str) -> None:
    logits = random_logits(2, 203, device)
    ids = chosen(logits, 1, new_sampling_workspace(2, device), temperature=9.0, **options)
    assert torch.equal(ids, logits.argmax(-1))


@pytest.mark.parametrize("options", [{"top_k": 203}, {"top_k": 10**9}, {"top_p": 1.0}])
def test_wide_filters_change_nothing(options: dict[str, Any], device: str) -> None:
    logits = random_logits(2, 203, device)
    workspace = new_sampling_workspace(2, device)
    plain = chosen(logits, 1, workspace, temperature=2.0)
    assert torch.equal(chosen(logits, 1, workspace, temperature=2.0, **options), plain)


def test_impossible_tokens_are_not_drawn(filters: dict[str, Any], device: str) -> None:
    logits = torch.full((2, 90), -torch.inf, device=device)
    logits[0, 40] = -50.0
    logits[0, 3] = torch.nan
    logits[1, 80] = torch.inf
    workspace = new_sampling_workspace(2, device)
    assert chosen(logits, 0, workspace, temperature=1.0, **filters).tolist() == [40, 80]
    nothing = torch.full((2, 90), -torch.inf, device=device)
    ids = chosen(nothing, 0, workspace, temperature=1.0, **filters)
    assert torch.equal(ids, choose_reference(nothing, 0, temperature=1.0, **filters))
    assert_clean(workspace)


def test_sample_writes_the_next_token_and_advances(filters: dict[str, Any], device: str) -> None:
    capacity, batch = 4, 2
    tokens = torch.full((batch, capacity + 1), -7, dtype=torch.int64, device=device)
    position = at(2, device)
    workspace = new_sampling_workspace(16, device)
    for step in range(3):
        logits = random_logits(batch, 101 + step, device)
        sample(logits, position, tokens, workspace, temperature=1.0, seed=4, **filters)
        assert position.item() == 3 + step
        if 3 + step <= capacity:
            expected = choose_reference(logits, 2 + step, temperature=1.0, seed=4, **filters)
            assert torch.equal(tokens[:, 3 + step], expected)
    assert (tokens[:, :3] == -7).all()
    assert (tokens[:, 3:] >= 0).all()
    assert_clean(workspace)


@pytest.mark.parametrize("position", [-3, -1, 2, 9])
def test_outside_the_history_no_token_is_written(position: int, device: str) -> None:
    tokens = torch.full((4, 3), -7, dtype=torch.int64, device=device)
    device_position, workspace = at(position, device), new_sampling_workspace(2, device)
    sample(random_logits(2, 50, device), device_position, tokens[1:3], workspace, temperature=1.0)
    assert (tokens == -7).all()
    assert device_position.item() == position + 1
    assert_clean(workspace)


def test_every_position_draws_again(device: str) -> None:
    logits = torch.zeros(2, 600, device=device)
    workspace = new_sampling_workspace(2, device)
    draws = [chosen(logits, position, workspace, temperature=1.0) for position in (0, 1, 0)]
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
    assert draws[0][0] != draws[0][1]


RIGHT: dict[str, Any] = {
    "logits": torch.zeros(2, 8),
    "position": torch.zeros(1, dtype=torch.int32),
    "out": torch.zeros(2, dtype=torch.int64),
    "workspace": new_sampling_workspace(2, "cpu"),
    "temperature": 1.0,
}
test_refuses_what_it_cannot_do = refuses(
    (partial(sample, **(RIGHT | change)), complaint)
    for change, complaint in [
        ({"logits": torch.zeros(2, 8).double()}, "logits is torch.float64"),
        ({"logits": torch.zeros(8, 2).T}, "contiguous"),
        ({"logits": torch.zeros(2, 0)}, "contiguous"),
        ({"logits": torch.empty(2, (1 << 20) + 1)}, "at most 1048576"),
        ({"position": torch.zeros(1)}, "position is torch.float32"),
        ({"out": torch.zeros(2)}, "out is torch.float32"),
        ({"out": torch.zeros(3, dtype=torch.int64)}, r"out .*\[3\].*\[2\]"),
        ({"out": torch.zeros(3, 9, dtype=torch.int64)}, r"out .*\[3, 9\].*\[2, 9\]"),
        ({"out": torch.zeros(2, 0, dtype=torch.int64)}, r"capacity \+ 1\]"),
        ({"workspace": new_sampling_workspace(1, "cpu")}, "workspace for 1 sequences"),
        ({"block": 48}, "power of two"),
    ]
)


def captured(launch: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """`launch` as a graph; it must have been compiled before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph


@pytest.mark.gpu
@pytest.mark.parametrize("pdl", [False, True])
@pytest.mark.parametrize(("batch", "vocabulary"), [(1, 128_256), (3, 151_937), (16, 32_000)])
def test_a_replayed_graph_draws_the_reference_tokens(
    filters: dict[str, Any], batch: int, vocabulary: int, pdl: bool
) -> None:
    capacity = 12
    tokens = torch.full((batch, capacity + 1), -7, dtype=torch.int64, device="cuda")
    position = at(0, "cuda")
    logits = random_logits(batch, vocabulary, "cuda").bfloat16()
    workspace = new_sampling_workspace(batch, "cuda")
    options = {"temperature": 1.4, "seed": 12, **filters}
    launch = functools.partial(sample, logits, position, tokens, workspace, pdl=pdl, **options)
    launch()
    graph = captured(launch)
    position.zero_()
    tokens.fill_(-7)
    expected = []
    for step in range(capacity):
        logits.copy_(logits.roll(step, -1))
        expected.append(choose_reference(logits.cpu(), step, **options))
        graph.replay()
    assert torch.equal(tokens[:, 1:].cpu(), torch.stack(expected, dim=1))
    assert position.item() == capacity
    assert_clean(workspace)
