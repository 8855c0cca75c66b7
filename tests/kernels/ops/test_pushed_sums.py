"""Sums that the kernels of O, down and the experts send to the other ranks, whose memory is in one
process, and their pick-up."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from decodescope.kernels.device.exchange import GAVE_UP
from decodescope.kernels.host.exchange import MARK, SLOTS, Exchange
from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.operation import ResidualOperation
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import FP8_X, WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from tests.helpers.exchanges import as_pushed, exchanges_of, picked_up_in_two_rounds, play_push
from tests.helpers.kernel_fixtures import Inputs
from tests.helpers.kernel_inputs import poisoned
from tests.helpers.refusals import refuses

COLUMNS = 48
# Ranks, batch, rows of the matrix, tile.
SHAPES = [
    (2, 1, 1, Tile(1, 64)),
    (2, 1, 3, Tile(2, 64)),
    (3, 1, 6, Tile(1, 64)),
    (2, 1, 8, Tile(2, 16, splits=3)),
    (2, 1, 35, Tile(8, 64)),
    (3, 1, 99, Tile(64, 16, splits=3)),
    (2, 1, 129, Tile(128, 64)),
    (2, 3, 1, Tile(16, 16)),
    (2, 3, 99, Tile(32, 16, splits=3)),
    (4, 3, 40, Tile(16, 64)),
    (2, 2, 18, Tile(16, 64)),
    (2, 17, 20, Tile(16, 16, splits=2)),
    (2, 64, 129, Tile(128, 64)),
]


def product(
    make: Inputs,
    batch: int,
    weight: WeightMatrix,
    tile: Tile,
    seed: int = 0,
    x_scale: torch.Tensor | None = None,
) -> LinearResidual:
    """W x as float32 partial sums, which are NaN before; W and x of a rank and a launch."""
    x = make.random(batch, COLUMNS, seed=seed)
    if x_scale is not None:
        x = x.to(FP8_X)
    partial = make.poisoned(batch, weight.rows, dtype=torch.float32)
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    return LinearResidual(x, weight, partial, tile, workspace, x_scale, adds=False)


def check_pushes(operation: ResidualOperation, exchanges: list[Exchange], launch: int) -> None:
    """Launch it as it is and as rank `exchange.rank`: the same sums, which the others have then."""
    own = operation.exchange
    before = [each.slots.clone() for each in exchanges]
    turns = own.turns.clone()
    alone = replace(operation, residual=operation.residual.clone(), exchange=None)
    alone.launch()
    operation.launch()
    assert torch.equal(operation.residual, alone.residual)
    assert operation.residual.isfinite().all()
    assert torch.equal(own.turns, turns)
    for each, slots in zip(exchanges, before, strict=True):
        if each.rank == own.rank:
            assert torch.equal(each.slots, slots)
        else:
            assert torch.equal(each.slots, as_pushed(slots, own.rank, launch, alone.residual))


@pytest.mark.parametrize(("ranks", "batch", "rows", "tile"), SHAPES)
def test_what_is_pushed_is_picked_up_as_what_the_pick_up_sends(
    ranks: int, batch: int, rows: int, tile: Tile, inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, words = inputs(torch.float32), batch * rows
    if batch == 64:
        picked_up_in_two_rounds(words, monkeypatch)
    exchanges, others = (exchanges_of(ranks, words, make.device) for _ in range(2))
    weight = make.weight(rows, COLUMNS, scaled=rows % 2 == 1, biased=rows > 8)
    start = make.random(batch, rows, seed=99)
    for launch in range(4 if ranks == 2 else 2):
        made = [product(make, batch, weight, tile, 10 * launch + rank) for rank in range(ranks)]
        order = sorted(range(ranks), key=lambda rank: (rank + launch) % ranks)
        for rank in order:
            check_pushes(replace(made[rank], exchange=exchanges[rank]), exchanges, launch)
        # Of others, what comes before a launch is played.
        for rank in range(ranks):
            play_push(others, rank, launch, made[rank].residual)
        for rank in order:
            residual, expected = start.clone(), start.clone()
            partial = made[rank].residual
            AllReduceResidual(partial, residual, exchanges[rank], pushed=True).launch()
            AllReduceResidual(partial, expected, others[rank]).launch()
            assert torch.equal(residual, expected)
            terms = start.double(), *(each.reference(0)[0] for each in made)
            assert (residual - sum(terms)).norm() < 1e-6 * sum(term.norm() for term in terms)
            empty = [slot for slot in range(SLOTS) if slot != launch % SLOTS]
            assert (exchanges[rank].slots[empty] == MARK).all()
            assert exchanges[rank].missing.item() == 0
        assert all((each.turns == (launch + 1) % SLOTS).all() for each in exchanges)


FORMATS: list[tuple[str, torch.dtype]] = [
    ("fp8_e4m3", torch.float16),
    ("int8", torch.bfloat16),
    ("int4", torch.bfloat16),
    ("mxfp4", torch.float16),
    ("w8a8", torch.bfloat16),
]


@pytest.mark.parametrize(("format", "dtype"), FORMATS)
@pytest.mark.parametrize("batch", [1, 3])
def test_products_of_narrow_weights_are_pushed(
    batch: int, format: str, dtype: torch.dtype, inputs
) -> None:
    make, rows = inputs(dtype), 37
    scale = make.random(batch, dtype=torch.float32).abs() if format == "w8a8" else None
    weight = make.narrow(rows, COLUMNS, "fp8_e4m3" if format == "w8a8" else format, biased=True)
    exchanges = exchanges_of(2, batch * rows, make.device)
    operation = product(make, batch, weight, Tile(16, 32, splits=2), x_scale=scale)
    check_pushes(replace(operation, exchange=exchanges[1]), exchanges, 0)


def test_the_last_of_several_products_pushes_their_sum(inputs) -> None:
    make = inputs(torch.bfloat16)
    exchanges = exchanges_of(2, 20, make.device)
    weight = make.weight(20, COLUMNS)
    first = product(make, 1, weight, Tile(4, 64))
    first.launch()
    second = product(make, 1, weight, Tile(8, 64), seed=1)
    both = replace(second, residual=first.residual, adds=True, exchange=exchanges[0])
    check_pushes(both, exchanges, 0)


@pytest.mark.parametrize(("batch", "hidden"), [(1, 8), (1, 33), (3, 516), (2, 33)])
def test_experts_push_the_sums_of_their_outputs(batch: int, hidden: int, inputs) -> None:
    make, count, chosen, width = inputs(torch.float32), 4, 2, 16
    experts = Experts(
        make.weight(count, hidden),
        make.weight(count * 2 * width, hidden),
        make.weight(count * hidden, width),
        chosen,
        normalized=True,
    )
    exchanges = exchanges_of(2, batch * hidden, make.device)
    logits, partial = make.random(batch, count), make.poisoned(batch, hidden)
    if batch == 1:
        x = make.random(1, chosen, width)
        operands = (experts, logits, partial, Tile(8, 16))
        operation: ResidualOperation = ExpertsDown(x, *operands, False, exchanges[1])
    else:
        x = make.random(batch, chosen, hidden)
        operation = ExpertsCombine(x, experts, logits, partial, False, exchanges[1])
    check_pushes(operation, exchanges, 0)


@pytest.mark.parametrize("rows", [2, 7, 8])
def test_every_number_is_pushed(rows: int, inputs) -> None:
    make = inputs(torch.float32)
    exchanges = exchanges_of(2, rows, make.device)
    numbers = [-0.0, float("nan"), float("inf"), 1e-45, -float("inf"), 0.0, -1e-45, 3.5]
    partial = torch.tensor([numbers[:rows]], device=make.device)
    # Products of -0.0.
    scale = torch.full((rows,), -1.0, device=make.device)
    nothing = WeightMatrix(torch.zeros(rows, COLUMNS, device=make.device), scale)
    operation = product(make, 1, nothing, Tile(4 if rows > 2 else 2, 64))
    replace(operation, residual=partial, adds=True, exchange=exchanges[0]).launch()
    assert torch.signbit(partial[0, 0])
    sent = exchanges[1].slots[0, 0].flatten().view(torch.float32)[:rows]
    assert torch.equal(sent.isnan(), partial[0].isnan())
    assert torch.equal(sent.nan_to_num(), partial[0].nan_to_num())
    assert not torch.signbit(sent[0])


@pytest.mark.parametrize(("batch", "rows"), [(1, 8), (1, 7), (3, 7)])
def test_after_a_pick_up_that_gave_up_nothing_is_pushed(batch: int, rows: int, inputs) -> None:
    make = inputs(torch.float32)
    exchanges = exchanges_of(2, batch * rows, make.device)
    exchanges[0].turns.fill_(GAVE_UP.value)
    tile = Tile(2 if batch == 1 else 16, 64)
    operation = product(make, batch, make.weight(rows, COLUMNS), tile)
    replace(operation, exchange=exchanges[0]).launch()
    assert operation.residual.isfinite().all()
    assert all((each.slots == MARK).all() for each in exchanges)


def test_one_word_that_is_missing_is_waited_for(inputs) -> None:
    make = inputs(torch.float32)
    exchanges = exchanges_of(2, 7, make.device, patience_ns=0)
    operation = product(make, 1, make.weight(7, COLUMNS), Tile(1, 64))
    replace(operation, exchange=exchanges[0]).launch()
    exchanges[1].slots[0, 0, 1, 2] = MARK
    out = poisoned(operation.residual)
    AllReduceResidual(operation.residual, out, exchanges[1], adds=False, pushed=True).launch()
    assert out.isnan().all()
    assert exchanges[1].missing.item() == 1


def in_the_background(play: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(0.1, play)
    timer.start()
    return timer


def test_a_pick_up_waits_and_clears_copies_of_words_that_came_late(inputs) -> None:
    make = inputs(torch.float32)
    if make.device == "cuda":
        pytest.skip("the GPU's tests have ranks that run at the same time")
    exchanges = exchanges_of(2, 40, make.device)
    weight = make.weight(40, COLUMNS)
    for launch in range(2):
        mine, other = (product(make, 1, weight, Tile(8, 64), 2 * launch + rank) for rank in (0, 1))
        replace(mine, exchange=exchanges[0]).launch()
        other.launch()

        def play(launch: int = launch, words: torch.Tensor = other.residual) -> None:
            if launch:
                # A program of a kernel may store until the kernel ends, so before its next words.
                play_push(exchanges[:1], 1, launch - 1, words)
            play_push(exchanges[:1], 1, launch, words)

        timer = in_the_background(play)
        out = poisoned(mine.residual)
        AllReduceResidual(mine.residual, out, exchanges[0], adds=False, pushed=True).launch()
        timer.join()
        assert torch.equal(out, mine.residual + other.residual)
    assert (exchanges[0].slots[[0, 2]] == MARK).all()


X, WEIGHT, WORKSPACE = (
    torch.zeros(1, 8),
    WeightMatrix(torch.zeros(6, 8)),
    new_workspace(0, 0, "cpu"),
)
OPERATION = LinearResidual(X, WEIGHT, torch.zeros(1, 6), Tile(4, 8), WORKSPACE, adds=False)

test_bad_operands_are_refused = refuses(
    (replace(OPERATION, residual=residual, exchange=exchange).launch, complaint)
    for residual, exchange, complaint in [
        (torch.zeros(1, 6).half(), exchanges_of(2, 6, "cpu")[0], "sums for other ranks are .*16"),
        (torch.zeros(1, 6), exchanges_of(2, 600, "cpu")[0], "exchange of 160 pieces .* must be 32"),
    ]
)
