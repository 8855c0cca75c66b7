"""The claims about norms and SwiGLU at prefill sizes: everyone does the same work, and a share says
by which count of bytes it is."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.claims.claim import Measured, Setup
from benchmarks.claims.prefill.norms import (
    RmsNormOfSum,
    eager_rms_norm,
    measure_rms_norm,
    measure_rms_norm_residual,
)
from benchmarks.claims.prefill.swiglu import measure_swiglu
from benchmarks.claims.racing import Racing
from benchmarks.harness import cold_graphs
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual
from tests.helpers.fake_clock import FakeClock
from tests.helpers.kernel_inputs import LIMITS, poisoned, random
from tests.helpers.triton_mode import launch_in_one_thread

TOKENS, FEATURES = 3, 80
ELEMENTS = TOKENS * FEATURES
MEASURES = (measure_rms_norm, measure_rms_norm_residual, measure_swiglu)
# A replay of one call takes 2 ms, in which the datasheet's bandwidth moves 4 MB.
REPLAY_NS, DATASHEET, PEAK_BYTES = 2e6, 2e9, 4e6

Measure = Callable[[Any], Measured]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, device: str) -> Measure:
    """Measures a claim in two rounds of graphs of one call."""
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    launch_in_one_thread(monkeypatch)

    def measure(claim: Any) -> Measured:
        clock: Any = FakeClock(REPLAY_NS)
        setup = Setup(Racing(clock, 100, 1e9, {"fp32": 1e12}, 2), str, None, DATASHEET)
        with torch.no_grad():
            found: Measured = claim(setup, TOKENS, FEATURES)
        return found

    return measure


@pytest.mark.parametrize("claim", MEASURES)
def test_everyone_is_right_and_who_is_not_installed_has_no_row(
    claim: Any, measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    found = measured(claim)
    for race in found.races:
        for one in race.entrants:
            if one.name == "liger_kernel":
                assert (one.error or "").startswith("not available")
            else:
                assert one.error is None
                assert one.device_ns is not None
            assert one.bytes_moved
            assert one.flops
    assert all(one.error is None and one.explanation for one in found.rows)
    assert found.rows[0].published in (8.1, 6.0, 1.6)
    assert not any("Liger" in one.what for one in found.rows)


def test_liger_kernel_is_raced_where_it_is_installed(
    measured: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Norms:
        @staticmethod
        def apply(
            x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float, mode: str, place: bool
        ) -> torch.Tensor:
            assert (offset, mode, place) == (0.0, "llama", False)
            return eager_rms_norm(x, Norm(weight, eps))

    class SumNorms:
        @staticmethod
        def apply(
            x: torch.Tensor, r: torch.Tensor, weight: torch.Tensor, eps: float, *others: object
        ) -> tuple[torch.Tensor, torch.Tensor]:
            return eager_rms_norm(x + r, Norm(weight, eps)), x + r

    class Products:
        @staticmethod
        def apply(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
            return F.silu(gate) * up

    names = ("", ".ops", ".ops.rms_norm", ".ops.fused_add_rms_norm", ".ops.swiglu")
    modules = {f"liger_kernel{name}": ModuleType(f"liger_kernel{name}") for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    modules["liger_kernel.ops.rms_norm"].LigerRMSNormFunction = Norms  # type: ignore[attr-defined]
    modules["liger_kernel.ops.fused_add_rms_norm"].LigerFusedAddRMSNormFunction = SumNorms  # type: ignore[attr-defined]
    modules["liger_kernel.ops.swiglu"].LigerSiLUMulFunction = Products  # type: ignore[attr-defined]
    for claim in MEASURES:
        found = measured(claim)
        assert [one.error for race in found.races for one in race.entrants if one.error] == []
        assert sum("Liger" in one.what for one in found.rows) == 1


def test_shares_are_by_the_count_that_they_name(measured: Measure) -> None:
    found = measured(measure_rms_norm)
    shares = {one.what: one for one in found.rows if one.unit == "share"}
    for count, published in ((3, 0.88), (2, 0.585)):
        row = shares[f"one kernel, share of the datasheet's bandwidth by {count} elements"]
        assert row.published == published
        assert row.measured is not None
        assert row.measured.median == pytest.approx(count * 2 * ELEMENTS / PEAK_BYTES)
    assert {one.what for one in found.rows if one.baseline} == {
        what for what in shares if what.startswith("eager, ")
    }
    ours = [one.name for one in found.races[0].entrants if one.ours]
    assert ours == ["rms_norm", "rms_norm_rows"]
    work = found.races[0].entrants[0]
    assert work.bytes_moved == 2 * (2 * ELEMENTS + FEATURES)
    assert work.flops == 4 * ELEMENTS


@pytest.mark.parametrize(
    ("claim", "launches", "elements"),
    # To float32 (6 bytes), the square (8), the mean (4), the product (8), to float16 (6), the
    # product with the weight (4); before that the sum (6).
    [(measure_rms_norm, 8, 36), (measure_rms_norm_residual, 9, 42), (measure_swiglu, 2, 10)],
)
def test_the_baseline_is_the_sources_sequence(
    claim: Any, launches: int, elements: int, measured: Measure
) -> None:
    for race in measured(claim).races:
        baseline = race.entrant("pytorch")
        assert baseline.launches == launches
        assert baseline.traffic_bytes is not None
        # Beside whole tensors, the weight and a few numbers for each token.
        rest = baseline.traffic_bytes - elements * ELEMENTS
        assert 0 <= rest <= 2 * FEATURES + 4 * 6 * TOKENS


@pytest.mark.parametrize("dtype", list(LIMITS))
def test_the_norm_of_the_sum_alone_leaves_the_residual(dtype: torch.dtype, device: str) -> None:
    x = random(5, 577, dtype=dtype, device=device)
    residual = random(5, 577, seed=1, dtype=dtype, device=device)
    norm = Norm(random(577, dtype=dtype, device=device), 1e-5)
    before, out, kept = residual.clone(), poisoned(x), poisoned(x)
    alone = RmsNormOfSum(x, residual, norm, out)
    alone.launch()
    assert torch.equal(residual, before)
    both = RmsNormResidual(x, residual, norm, kept)
    assert both.bytes_moved(0) - alone.bytes_moved(0) == residual.nbytes
    both.launch()
    assert torch.equal(out, kept)
