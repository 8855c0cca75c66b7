"""The claim about INT8 weights: every product is right, and there is a row where we have no kernel
of our own."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.claims.claim import Measured, Setup
from benchmarks.claims.prefill import int8_products
from benchmarks.claims.prefill.int8_products import CONVERTED, CUBLAS, INT_MM
from benchmarks.claims.racing import Racing
from benchmarks.gemm import gemm_tuner
from benchmarks.harness import cold_graphs
from decodescope.kernels.ops.linear import Linear
from tests.helpers.fake_clock import FakeClock
from tests.helpers.sizes import H200
from tests.helpers.triton_mode import launch_in_one_thread

ROWS, COLUMNS = 48, 64
SIZES = (1, 3, 32, 70)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Measured:
    """All rows, of small matrices, few launches and two tiles of each kernel."""
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    monkeypatch.setattr(gemm_tuner, "TUNING_LAUNCHES", 1)
    monkeypatch.setattr(gemm_tuner, "FINAL_ROUNDS", 1)
    monkeypatch.setattr(int8_products, "_TRIED", 2)
    monkeypatch.setattr(int8_products, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    launch_in_one_thread(monkeypatch)
    clock: Any = FakeClock(1e6)
    racing = Racing(clock, ROWS * COLUMNS // 4, 1e9, {"fp16": 1e12}, 2)
    setup = Setup(racing, lambda text: None, None, 2e9)
    with torch.no_grad():
        return int8_products.measure_int8(setup, ROWS, COLUMNS, SIZES, H200)


def test_every_product_is_right_and_has_its_row(measured: Measured) -> None:
    entrants = {
        size: {one.name for one in race.entrants}
        for size, race in zip(SIZES, measured.races, strict=True)
    }
    few = {CUBLAS, "linear", "split_k_gemm"}
    assert entrants == {1: few, 3: few, 32: few | {INT_MM}, 70: {CUBLAS, CONVERTED, INT_MM}}
    for race in measured.races:
        assert [one.error for one in race.entrants if one.error] == []
        # The bytes are those of INT8 weights; float16 moves more.
        ours, cublas = race.entrants[1], race.entrant(CUBLAS)
        assert ours.bytes_moved is not None
        assert cublas.traffic_bytes is not None
        assert cublas.traffic_bytes - ours.bytes_moved == ROWS * COLUMNS - 4 * ROWS
    assert all(one.error is None and one.explanation for one in measured.rows)
    published = [one.published for one in measured.rows if one.unit == "ratio"]
    found = [0.968, None, 0.979, 0.251, None, None]
    assert published == [one and pytest.approx(one, abs=5e-4) for one in found]


def test_conversions_are_counted(measured: Measured) -> None:
    tokens, weights, scales = SIZES[-1], ROWS * COLUMNS, 4 * ROWS
    x, out = 2 * tokens * COLUMNS, 2 * tokens * ROWS
    converted, int_mm = (measured.races[-1].entrant(name) for name in (CONVERTED, INT_MM))
    # W in float16 is written and read.
    assert converted.launches == 2
    assert converted.traffic_bytes == weights + scales + 2 * (2 * weights) + x + out
    # Launches: abs, amax, clamp, reciprocal, two products, round, clamp, to, _int_mm, scaled.
    assert int_mm.launches == 11
    assert int_mm.traffic_bytes is not None
    assert int_mm.traffic_bytes > weights + 9 * x + 2 * (4 * tokens * ROWS) + out
    explained = next(row for row in measured.rows if row.what.endswith(CONVERTED)).explanation
    assert explained.endswith("x the bytes)")


def test_the_weights_take_half(measured: Measured) -> None:
    memory = measured.rows[0]
    assert memory.measured is not None
    assert memory.measured.median == ROWS * COLUMNS + 4 * ROWS
    assert memory.published == 11008 * 4096 + 4 * 11008
    assert memory.reached


def test_a_wrong_kernel_of_ours_gets_no_ratio(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    right = Linear.reference
    monkeypatch.setattr(Linear, "reference", lambda self, at: (2 * right(self, at)[0],))
    found: Measured = request.getfixturevalue("measured")
    first = found.races[0].entrant("linear")
    assert first.error is not None
    assert first.device_ns is None
    # The other kernel stands in the row.
    assert "split_k_gemm" in found.rows[1].what
    assert found.rows[1].error is None
