"""`tk-gemm`: every product is right, the best of all M stands beside the published figure, and the
launches that compile are told from those that load."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton

from benchmarks.claims.racing import Racing
from benchmarks.claims.report import EntrantFigures, Race
from benchmarks.claims.tk_gemm import products
from benchmarks.claims.tk_gemm.first_launch import ROUNDS, launch_costs
from benchmarks.claims.tk_gemm.products import (
    OURS,
    launch_rows,
    memory_rate,
    race_products,
    speed_ups,
)
from benchmarks.gemm import gemm_contenders, gemm_tuner
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.gemm.gemm_tiles import Candidate
from benchmarks.harness import cold_graphs
from decodescope.kernels.host.operation import Launch
from decodescope.kernels.host.tile import Tile
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.fake_clock import FakeClock
from tests.helpers.sizes import H200
from tests.helpers.triton_mode import launch_in_one_thread

ENTRANTS = ["split_k_gemm", "plain_gemm", "scaled_mm_tensorwise", "scaled_mm_rowwise"]


def small(monkeypatch: pytest.MonkeyPatch, known: Tile | None) -> GemmOperands:
    """Matrices for the interpreter, and few launches: each takes milliseconds."""
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    monkeypatch.setattr(gemm_tuner, "TUNING_LAUNCHES", 1)
    monkeypatch.setattr(gemm_tuner, "FINAL_ROUNDS", 1)
    launch_in_one_thread(monkeypatch)
    monkeypatch.setattr(products, "measured_tile", lambda *_: known)
    rules = (Candidate(Tile(16, 32, splits=2)),)
    monkeypatch.setattr(gemm_contenders, "split_candidates", lambda *_: rules)
    monkeypatch.setattr(gemm_contenders, "unsplit_candidates", lambda *_: rules)
    monkeypatch.setattr(
        gemm_contenders, "plain_candidates", lambda _: (Candidate(Tile(16, 32), 16),)
    )
    return GemmOperands(24, 64, 5, 2, "cpu")


def race_of(device_ns: dict[str, float], tokens: int = 1) -> Race:
    """Entrants with these times, for work that takes 1 µs at the bound; inf failed its check."""
    return Race(
        f"M = {tokens}",
        tuple(
            EntrantFigures(
                name,
                name,
                True,
                bytes_moved=1_000_000,
                bound_ns=1e3,
                device_ns=RoundSpread.of([ns, ns]) if ns < float("inf") else None,
                share_of_bound=1e3 / ns,
                error=None if ns < float("inf") else "wrong",
            )
            for name, ns in device_ns.items()
        ),
    )


def times(ours: float, **others: float) -> dict[str, float]:
    return {OURS: ours, "plain_gemm": 2e3, "scaled_mm_tensorwise": 2e3, "cublas_fp16": 4e3} | others


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("known", [None, Tile(32, 64)])
def test_every_product_is_checked_and_ours_uses_the_known_tile(
    tokens: int, known: Tile | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = small(monkeypatch, known)
    racing = Racing(FakeClock(2e3), 1 << 10, 1e12, {"fp8": 1e15}, 2)  # type: ignore[arg-type]
    race = race_products(racing, operands, tokens, H200)
    assert [one.name for one in race.entrants] == [*ENTRANTS, "cublas_fp16"]
    for name in ("split_k_gemm", "plain_gemm", "cublas_fp16"):
        one = race.entrant(name)
        assert one.error is None
        assert one.relative_error is not None
        assert one.relative_error < 8e-3
    ours, half = race.entrant(OURS), race.entrant("cublas_fp16")
    assert ours.what.startswith("FP8, 32 x 64, splits 1" if known else "FP8, 16 x 32, splits 2")
    moved = 24 * 64 + 24 * 4 + tokens * (64 + 4 + 2 * 24)
    assert ours.bytes_moved == half.bytes_moved == moved
    assert half.traffic_bytes == 2 * (24 * 64 + tokens * (64 + 24))
    assert ours.bound_ns == pytest.approx(moved / 1e12 * 1e9)


def test_a_wrong_product_gets_no_speed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = small(monkeypatch, Tile(32, 64))
    monkeypatch.setattr(operands, "x_scale", operands.x_scale * 1.1)
    operands.x_scale[0] = float("nan")
    race = race_products(
        Racing(FakeClock(2e3), 1 << 10, 1e12, {}, 2),  # type: ignore[arg-type]
        operands,
        1,
        H200,
    )
    assert race.entrant(OURS).error is not None
    rows = list(speed_ups({1: race}))
    assert all(row.measured is None and row.error is not None for row in rows)


def test_the_best_number_of_tokens_stands_beside_the_published_figure() -> None:
    races = {
        1: race_of(times(1e3)),
        32: race_of(times(1e3, plain_gemm=3e3, scaled_mm_tensorwise=0.9e3)),
        64: race_of(times(float("inf"), plain_gemm=9e3)),
    }
    rows = list(speed_ups(races))
    assert len(rows) == 3 * (1 + len(races))
    best = {row.published: row for row in rows if row.published is not None}
    assert set(best) == {1.94, 1.87, 1.71}
    assert best[1.94].what.endswith("(here M = 32)")
    assert best[1.94].measured is not None
    assert best[1.94].measured.median == 3
    assert best[1.87].what.endswith("(here M = 1)")
    by_tokens = {row.what: row for row in rows}
    assert by_tokens["over cuBLAS FP8, M = 32"].measured == RoundSpread.of([0.9, 0.9])
    assert by_tokens["over a plain Triton GEMM, M = 64"].error == "split_k_gemm: wrong"


def test_where_nothing_is_right_the_published_figure_stays_with_the_error() -> None:
    rows = list(speed_ups({1: race_of(times(float("inf"))), 2: race_of(times(float("inf")))}))
    assert {row.published for row in rows} == {None, 1.94, 1.87, 1.71}
    assert all(row.error == "split_k_gemm: wrong" for row in rows)


def test_the_rate_of_memory_is_of_the_bytes_that_the_product_needs() -> None:
    (row,) = memory_rate({16: race_of(times(2e3), 16)}, 4e12)
    assert row.measured is not None
    assert row.measured.median == pytest.approx(5e11)
    assert (row.limit, row.measured_share) == (4e12, 0.5)
    assert row.published_share == pytest.approx(0.4925, abs=1e-4)
    (failed,) = memory_rate({16: race_of(times(float("inf")), 16)}, None)
    assert (failed.measured, failed.error) == (None, "wrong")


class Host:
    """A host whose launches take a time that depends on what is compiled, and on where."""

    def __init__(self) -> None:
        self.ns = 0
        self.known = False
        self.folders: list[str] = []
        self.compiled_in: set[str] = set()

    def launch(self) -> Launch:
        folder = triton.knobs.cache.dir
        if not self.known:
            assert Path(folder).is_dir()
            self.folders.append(folder)
            self.ns += 70 if folder in self.compiled_in else 9000
            self.compiled_in.add(folder)
        self.known = True
        self.ns += 30
        return Launch(self._again, ())

    def forget(self) -> None:
        self.known = False

    def _again(self) -> None:
        self.ns += 2


def test_first_launches_compile_then_load() -> None:
    host = Host()
    before = triton.knobs.cache.dir
    now: Callable[[], int] = lambda: host.ns  # noqa: E731
    costs = launch_costs(host.launch, host.forget, lambda: None, now)
    assert costs.compiling_ns == RoundSpread.of([9030.0] * ROUNDS)
    assert costs.loading_ns == RoundSpread.of([100.0] * ROUNDS)
    assert costs.later_ns.median == 30
    assert costs.kept_ns.median == 2
    # Each round compiles and loads in one folder of its own, which is gone afterwards.
    assert host.folders[::2] == host.folders[1::2]
    assert len(set(host.folders)) == ROUNDS
    assert not any(Path(folder).exists() for folder in host.folders)
    assert triton.knobs.cache.dir == before
    rows = list(launch_rows(costs))
    assert [row.published for row in rows] == [2.413e6, 2.413e6, None, None]
    assert [row.baseline for row in rows] == [True, True, False, False]
    assert [row.reached for row in rows] == [None] * 4
    assert "15.0 x as fast" in rows[-1].explanation


@pytest.mark.gpu
def test_the_whole_claim_on_a_gpu() -> None:
    from benchmarks.claims.bench import run_claims
    from benchmarks.claims.catalog import chosen_claims

    report = run_claims(chosen_claims(("tk-gemm",)), None, lambda stage: None)
    assert report.errors == ()
    (claim,) = report.claims
    assert all(row.error is None for row in claim.rows if row.published is not None)
    costs = {row.what: row.measured.median for row in claim.rows if row.measured is not None}
    assert costs["first launch, compiling"] > costs["first launch, compiled before"]
    assert costs["first launch, compiled before"] > costs["later launch"]
    assert torch.cuda.is_available()
