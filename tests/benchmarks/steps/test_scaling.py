"""Values are compared within rounds, on runs that decode what `run` decodes."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.steps import scaling
from benchmarks.steps.scaling import (
    Point,
    Run,
    figures_of,
    parsed_values,
    run_once,
    run_rounds,
    scaling_table,
)
from decodescope.analyzer.errors import InputError
from decodescope.variants.measuring.measure import WARM_UP_STEPS
from decodescope.variants.model.workload import DecodeWorkload
from tests.helpers.command import Command
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

    def chosen_weight_bytes(self) -> int:
        return self.weight_bytes_read

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


FIRST, SECOND = Point("m", 1, 128), Point("m", 2, 128)


def test_rounds_take_the_points_in_turn() -> None:
    asked: list[Point] = []

    def run(point: Point) -> Run:
        asked.append(point)
        return Run(100.0 * len(asked), 1, 1)

    runs = run_rounds((FIRST, SECOND), 2, run)
    assert asked == [FIRST, SECOND, FIRST, SECOND]
    assert [one.tokens_per_s for one in runs[SECOND]] == [200.0, 400.0]


RUNS = {
    FIRST: [Run(100.0, 10_000_000, 4_000_000), Run(200.0, 5_000_000, 4_000_000)],
    SECOND: [Run(150.0, 8_000_000, 6_000_000), Run(380.0, 4_000_000, 6_000_000)],
}


def test_ratios_compare_runs_of_one_round() -> None:
    first, second = figures_of(RUNS, 2e9).values()
    assert first.over_first.rounds == (1.0, 1.0)
    assert second.over_first.rounds == (1.5, 1.9)
    assert second.tokens_per_s.median == 265.0
    assert second.step_p50_ns.median == 6_000_000
    # 6 MB in 6 ms.
    assert second.share_of_peak == pytest.approx(0.5)
    assert [one.share_of_peak for one in figures_of(RUNS, None).values()] == [None, None]


def test_the_table_has_a_row_for_each_value() -> None:
    table = scaling_table("fused+graph of m", "batch", figures_of(RUNS, 2e9))
    cells = text_of(table).splitlines()[-2].split()
    row = "2 265 150 to 380 1.70 1.50 to 1.90 6.00 50.0 %"
    assert cells == row.split()


@pytest.mark.parametrize("over", ["batch", "context"])
@pytest.mark.parametrize("text", ["", "1,x", "0", "1,1", "1,,2", "-1", "1.5"])
def test_impossible_values_are_refused(over: scaling.Axis, text: str) -> None:
    with pytest.raises(InputError, match="--values"):
        parsed_values(over, text)


def test_values_keep_their_order_and_only_batches_have_an_end() -> None:
    assert parsed_values("batch", "1,16,2") == (1, 16, 2)
    assert parsed_values("context", "32768,128") == (32768, 128)
    assert parsed_values("model", "b@random,a") == ("b@random", "a")
    with pytest.raises(InputError, match="1 to 64"):
        parsed_values("batch", "65")


@pytest.mark.parametrize("options", [("--tokens", str(WARM_UP_STEPS)), ("--rounds", "0")])
def test_bad_usage_is_refused(benchmarks: Command, options: tuple[str, str]) -> None:
    done = benchmarks("scaling", *options)
    assert done.code == 2
    assert options[0] in done.only_line


@pytest.mark.parametrize(
    ("over", "values", "expected"),
    [
        ("model", "a@random,b@random", [("a@random", 1, 64), ("b@random", 1, 64)]),
        ("context", "128,4096", [("m@random", 1, 128), ("m@random", 1, 4096)]),
        ("batch", "2,8", [("m@random", 2, 64), ("m@random", 8, 64)]),
    ],
)
def test_the_record_has_the_values_and_what_was_the_same_for_all(
    over: scaling.Axis,
    values: str,
    expected: list[tuple[str, int, int]],
    benchmarks: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ran: list[tuple[str, int, int]] = []

    def run_point(variant: str, loaded: str, point: Point, tokens: int) -> Run:
        assert loaded == f"loaded {point.model}"
        ran.append((point.model, point.batch, point.context))
        return Run(100.0 * len(ran), 10_000_000, 4_000_000)

    monkeypatch.setattr(scaling, "RESULTS", tmp_path)
    monkeypatch.setattr(scaling, "require_cuda", lambda command: None)
    monkeypatch.setattr(scaling, "read_peak", lambda: SimpleNamespace(bytes_per_s=2e9))
    monkeypatch.setattr(scaling, "resolve_model", lambda name: name)
    monkeypatch.setattr(scaling, "load_model", lambda name, device, dtype: f"loaded {name}")
    monkeypatch.setattr(scaling, "run_point", run_point)
    options = ["--values", values, "--model", "m@random", "--context", "64", "--rounds", "2"]
    assert benchmarks("scaling", over, *options).code == 0
    assert ran == expected * 2
    record = json.loads((tmp_path / f"{over}-scaling.json").read_bytes())
    points = record[scaling.PLURALS[over]]
    assert [point[over] for point in points] == [
        point[("model", "batch", "context").index(over)] for point in expected
    ]
    assert [point["tokens_per_s"]["rounds"] for point in points] == [[100, 300], [200, 400]]
    assert over not in record
    assert {"model", "batch", "context"} - set(record) == {over}
    assert record["environment"]["date"]
