"""The benchmark of all-reduces on CPUs: every way is checked, and planted times are reported."""

from pathlib import Path

import torch

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from benchmarks.allreduce import bench
from benchmarks.allreduce.report import (
    OWN,
    SCHEMA_VERSION,
    AllReduceBenchmark,
    AllReduceFigures,
    AllReduceSize,
)
from benchmarks.allreduce.result_table import all_reduce_table
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.exchanges import share_through, shared_slots
from tests.helpers.fake_clock import FakeClock
from tests.helpers.rank_processes import on_ranks
from tests.helpers.rich_report import text_of

MESSAGE_BYTES, LAUNCHES, ROUNDS = 1024, 2, 3


def measured(ranks: Ranks, slots: dict[int, list[torch.Tensor]]) -> AllReduceSize:
    """Ours takes 3 µs a launch, torch.distributed's 12 µs; without `slots` ours is not there."""
    if slots:
        share_through(slots, ranks.rank)
    times = iter((6000.0, 24000.0) if slots else (24000.0,))
    bench.DeviceClock = lambda: FakeClock(next(times))
    ways = {OWN: None, "gloo": "torch", "one-shot": "one_shot"}
    return bench._measure(MESSAGE_BYTES, ways, ranks, torch.device("cpu"), ROUNDS, LAUNCHES)


def test_ways_that_pass_are_timed_in_the_same_rounds(tmp_path: Path) -> None:
    slots = shared_slots({MESSAGE_BYTES // 4, CHOICE_WORDS})
    for size in on_ranks(2, tmp_path, measured, slots):
        own, gloo, one_shot = size.ways
        assert own.rounds_ns is not None
        assert own.rounds_ns.rounds == (3000.0,) * ROUNDS
        assert gloo.rounds_ns is not None
        assert gloo.rounds_ns.median == 12000.0
        assert gloo.own_share is not None
        assert gloo.own_share.median == 0.25
        assert own.relative_error < 1e-6
        assert one_shot.rounds_ns is None
        assert "not available: PyTorch's symmetric memory" in one_shot.error


def test_torch_does_not_stand_for_our_kernel(tmp_path: Path) -> None:
    own, gloo, _ = on_ranks(2, tmp_path, measured, {})[0].ways
    assert own.error == "not available: the ranks run on CPUs"
    assert own.rounds_ns is None
    assert gloo.own_share is None
    assert gloo.rounds_ns is not None


def test_the_table_has_a_row_for_each_way_and_a_failure_is_an_error() -> None:
    times, share = RoundSpread.of([4000.0, 4200.0, 3900.0]), RoundSpread.of([0.3, 0.4, 0.5])
    ways = (
        AllReduceFigures(OWN, "relative error 0.5", 0.5),
        AllReduceFigures("nccl", None, 1e-8, times, share),
    )
    size = AllReduceSize(8192, ways)
    result = AllReduceBenchmark(SCHEMA_VERSION, 2, False, 100, ROUNDS, 5, (size,), {})
    assert result.errors == ("own of 8192 bytes: relative error 0.5",)
    text = text_of(all_reduce_table(result))
    assert "2 ranks, a GPU each" in text
    (row,) = (line for line in text.splitlines() if "nccl" in line)
    assert row.split() == ["nccl", "4.00", "3.90-4.20", "0.40", "1.0e-08"]
