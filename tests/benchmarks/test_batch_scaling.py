"""Batch sizes are compared within rounds, on runs that decode what `run` decodes."""

import argparse
import sys

import pytest
import torch

from benchmarks import batch_scaling
from benchmarks.batch_scaling import (
    BatchRun,
    batch_figures,
    parsed_batches,
    run_once,
    run_rounds,
    scaling_table,
)
from decodescope.variants.measuring.measure import WARM_UP_STEPS
from decodescope.variants.model.workload import DecodeWorkload
from tests.helpers.rich_report import text_of


class CountingStep:
    """A step that only counts; reads 1000 bytes of weights and 10 for each position."""

    weight_bytes_read = 1000

    def __init__(self, context: int) -> None:
        self.position = context
        self.prompts: list[torch.Tensor] = []

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self.prompts.append(ids)
        return ids[:, 0]

    def step(self) -> torch.Tensor:
        self.position += 1
        return self.prompts[0][:, 0]

    def kv_bytes_read(self, position: int) -> int:
        return 10 * position


def test_a_run_decodes_all_its_tokens_and_times_those_after_the_warm_up() -> None:
    workload = DecodeWorkload(2, context=20, new_tokens=WARM_UP_STEPS + 4)
    step = CountingStep(20)
    prompt = torch.zeros(2, 20, dtype=torch.int64)
    run = run_once(step, workload, prompt)
    assert step.prompts == [prompt]
    assert step.position == 20 + WARM_UP_STEPS + 4
    # Timed steps see positions 25 to 28.
    assert run.bytes_per_step == 1000 + 265
    assert run.step_p50_ns > 0
    assert run.tokens_per_s > 0


def test_rounds_take_the_batches_in_turn() -> None:
    asked: list[int] = []

    def run(batch: int) -> BatchRun:
        asked.append(batch)
        return BatchRun(100.0 * len(asked), 1, 1)

    runs = run_rounds((1, 4), 2, run)
    assert asked == [1, 4, 1, 4]
    assert [one.tokens_per_s for one in runs[4]] == [200.0, 400.0]


RUNS = {
    1: [BatchRun(100.0, 10_000_000, 4_000_000), BatchRun(200.0, 5_000_000, 4_000_000)],
    2: [BatchRun(150.0, 8_000_000, 6_000_000), BatchRun(380.0, 4_000_000, 6_000_000)],
}


def test_ratios_compare_runs_of_one_round() -> None:
    first, second = batch_figures(RUNS, 2e9)
    assert first.over_first.rounds == (1.0, 1.0)
    assert second.over_first.rounds == (1.5, 1.9)
    assert second.tokens_per_s.median == 265.0
    assert second.step_p50_ns.median == 6_000_000
    # 6 MB in 6 ms.
    assert second.share_of_peak == pytest.approx(0.5)
    assert [one.share_of_peak for one in batch_figures(RUNS, None)] == [None, None]


def test_the_table_has_a_row_for_each_batch_size() -> None:
    table = scaling_table("fused+graph of m", batch_figures(RUNS, 2e9))
    cells = text_of(table).splitlines()[-2].split()
    row = "2 265 150 to 380 1.70 1.50 to 1.90 6.00 50.0 %"
    assert cells == row.split()


@pytest.mark.parametrize("text", ["", "1,x", "0", "65", "1,1", "1,,2"])
def test_impossible_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1 to 64"):
        parsed_batches(text)


def test_batch_sizes_keep_their_order() -> None:
    assert parsed_batches("1,16,2") == (1, 16, 2)


@pytest.mark.parametrize(
    "options", [("--tokens", str(WARM_UP_STEPS)), ("--rounds", "0"), ("--batches", "1,65")]
)
def test_bad_usage_is_refused(monkeypatch: pytest.MonkeyPatch, options: tuple[str, str]) -> None:
    monkeypatch.setattr(sys, "argv", ["batch_scaling", *options])
    with pytest.raises(SystemExit) as end:
        batch_scaling.main()
    assert end.value.code == 2
