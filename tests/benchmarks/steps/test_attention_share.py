"""What attention costs comes from differences of steps that really differ in attention alone."""

import pytest
import torch

from benchmarks.kernels.report import KernelFigures, LaunchTimes
from benchmarks.steps.attention_share import (
    Cost,
    attention_cost,
    row_bytes,
    share_table,
    step_ways,
    time_ways,
)
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.kernels.host.operation import Launch
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.ops.decode_attention import DecodeAttention
from decodescope.variants.machine.clock import Call
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import FusedStep, build_fused
from tests.helpers import families
from tests.helpers.command import Command
from tests.helpers.fake_clock import FakeClock
from tests.helpers.rich_report import text_of


def test_a_cost_is_the_rounds_difference_a_layer() -> None:
    cost = attention_cost([900.0, 1000.0, 1100.0], [500.0, 500.0, 900.0], 4, 1000, 16e9)
    assert cost.ns_per_layer.rounds == (100.0, 125.0, 50.0)
    assert cost.ns_per_layer.median == 100.0
    assert cost.bytes_per_s == 10e9
    assert cost.share_of_peak == 0.625


def test_a_cost_that_noise_hides_has_no_rate() -> None:
    cost = attention_cost([900.0], [901.0], 1, 1000, 1e9)
    assert (cost.bytes_per_s, cost.share_of_peak) == (None, None)


def test_ways_take_turns_within_a_round() -> None:
    called: list[str] = []
    ways = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    times = time_ways(ways, FakeClock(*([1.0] * 40), *([2.0] * 40)), rounds=3, rest_s=0)
    assert called == ["a", "b"] * 3
    assert times == {"a": (1.0,) * 3, "b": (2.0,) * 3}


@pytest.fixture
def step(device: str) -> FusedStep:
    model = families.build("mistral", torch.float32, device=device)
    loaded = LoadedModel(model, None, "random", "mistral", 64)
    return build_fused(VariantSpec("fused"), loaded, DecodeWorkload(2, 40, 8, "fp32"), device)


class LaunchingClock(FakeClock):
    """Captures nothing, but launches what it should capture once, as a capture does first."""

    def capture(self, body: Call) -> Call:
        body()
        return super().capture(body)


def test_the_ways_differ_in_position_and_attention(
    step: FusedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions: list[int] = []

    def noted(operation: DecodeAttention, pdl: bool) -> Launch:
        positions.append(int(operation.position))
        return Launch(lambda: positions.append(int(operation.position)), ())

    monkeypatch.setattr(DecodeAttention, "launch", noted)
    clock = LaunchingClock(1.0)
    ways = step_ways(step.plan, 39, clock)
    # One graph has the attention of both layers, the other has none.
    assert clock.captured == 2
    assert positions == [1, 1]
    ways["long"]()
    ways["short"]()
    assert positions == [1, 1, 39, 39, 1, 1]
    ways["without"]()
    assert int(step.plan.buffers.position) == 40


def test_a_rows_bytes_are_those_of_k_and_v_of_one_layer(step: FusedStep) -> None:
    keys, values = step.plan.cache.layer(0)
    assert row_bytes(step.plan) == keys[:, :, 0].nbytes + values[:, :, 0].nbytes


def test_the_table_has_a_row_for_each_definition() -> None:
    launch = LaunchTimes(1000.0, 2000.0, 3000.0, 3e12, 0.75)
    alone = KernelFigures(
        "attention",
        "decode_attention",
        "",
        1,
        4096,
        Tile(1, 64),
        8,
        128,
        True,
        0.0,
        0.1,
        None,
        launch,
        None,
    )
    cost = attention_cost([9000.0], [1000.0], 1, 4096, 1e9)
    hidden = Cost(cost.ns_per_layer, 4096, None, None)
    record = {
        "model": "m",
        "batch": 1,
        "position": 8191,
        "measured_peak_bytes_per_s": 4e12,
        "length": cost,
        "launches": hidden,
        "alone": alone,
    }
    lines = [line.split() for line in text_of(share_table(record)).splitlines()]
    rows = {line[0]: line for line in lines if line and line[0] in ("length", "launches", "alone")}
    assert rows["length"][1:5] == ["8.00", "8.00", "to", "8.00"]
    assert rows["length"][-2:] == ["51.2", "%"]
    assert rows["launches"][-2:] == [UNKNOWN, UNKNOWN]
    assert rows["alone"][-2:] == ["75.0", "%"]


@pytest.mark.parametrize("context", ["0", "2", "many"])
def test_bad_usage_is_refused(benchmarks: Command, context: str) -> None:
    done = benchmarks("attention-share", "--context", context)
    assert done.code == 2
    assert "--context" in done.only_line
