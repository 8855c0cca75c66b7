"""`gemm` compares GEMMs fairly: checked first, in the same rounds, and no peer breaks it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from rich.console import Console
from triton.runtime.errors import OutOfResources

from benchmarks.gemm import gemm_bench, gemm_contenders, gemm_tuner
from benchmarks.gemm.gemm_bench import (
    ROUNDS,
    GemmConditions,
    found_tiles,
    measure_gemms,
    measure_size,
)
from benchmarks.gemm.gemm_contenders import TORCH_PEERS, Contender, tuned_gemms
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.gemm.gemm_report import PEERS, GemmBenchmark, GemmFigures, GemmSize
from benchmarks.gemm.gemm_tiles import (
    MAX_SPLITS,
    Candidate,
    GemmWork,
    plain_candidates,
    rule_tiles,
    split_candidates,
    unsplit_candidates,
)
from benchmarks.gemm.gemm_tuner import FINAL_ROUNDS, FINALISTS, REPLAYS, ranked
from benchmarks.gemm.result_table import gemm_table
from benchmarks.harness import cold_graphs
from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.steps.fused.tiling.tile_table import GemmKind, keep_tiles
from tests.helpers.fake_clock import FakeClock
from tests.helpers.sizes import H200
from tests.helpers.triton_mode import launch_in_one_thread

KINDS: tuple[GemmKind, ...] = ("gemm_w8a8", "gemm_w8a16", "gemm_int8")
CONDITIONS = GemmConditions(H200, None, ReadPeak(4e12, "2026-01-01"), pdl=False)
OURS = ("w8a8", "w8a16", "int8")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 16, 17, 33, 64])
@pytest.mark.parametrize(("rows", "columns"), [(8192, 8192), (4096, 14336), (100, 64), (16, 20000)])
def test_the_rules_tiles_fit_and_run_at_once(
    rows: int, columns: int, tokens: int, kind: GemmKind
) -> None:
    work = GemmWork(kind, rows, columns, tokens)
    tiles = rule_tiles(work, H200)
    assert tiles
    assert len(set(tiles)) == len(tiles) <= 12
    for tile in tiles:
        per_stage = tile.columns * (tile.rows + padded_tokens(tokens) * work.x_bytes)
        assert tile.num_stages >= 2
        assert tile.num_stages * per_stage <= H200.shared_bytes
        assert tile.splits <= min(MAX_SPLITS, max(1, -(-columns // tile.columns)))
    default = tiles[0]
    programs = -(-rows // default.rows) * default.splits
    assert programs <= 2 * H200.multiprocessors
    assert all(one.tile.splits == 1 for one in unsplit_candidates(work, H200))


def test_a_measured_tile_is_tried_first(tmp_path: Path) -> None:
    work = GemmWork("gemm_int8", 512, 640, 3)
    rules = [one.tile for one in split_candidates(work, H200, tmp_path)]
    assert rules == list(rule_tiles(work, H200))
    found = Tile(128, 64, 8, 3, 7)
    operands = GemmOperands(512, 640, 4, 1, "cpu")
    figures = GemmFigures("int8", candidate=Candidate(found))
    wrong = GemmFigures("w8a8", error="wrong", candidate=Candidate(found))
    # Tokens are rounded up to a power of two.
    tiles = dict(found_tiles(operands, GemmSize(4, (figures, wrong), {})))
    assert keep_tiles(H200, tiles, tmp_path) is not None
    assert [one.tile for one in split_candidates(work, H200, tmp_path)] == [found, *rules]
    other = replace(work, kind="gemm_w8a8")
    assert found not in [one.tile for one in split_candidates(other, H200, tmp_path)]


def test_a_plain_gemm_is_tried_with_few_tokens_and_with_64() -> None:
    assert {one.token_block for one in plain_candidates(3)} == {16, 64}
    assert {one.token_block for one in plain_candidates(40)} == {64}


class Scripted:
    """Operations of candidates that take known times, on a clock that reads them."""

    def __init__(self, times: dict[Tile, list[float]]) -> None:
        self.times = times
        self.launched: list[Tile] = []

    def operations(self, candidate: Candidate) -> list[Any]:
        return [_Operation(self, candidate.tile)] * 5

    def capture(self, body: Callable[[], None]) -> Callable[[], Tile]:
        self.launched.clear()
        body()
        (tile,) = set(self.launched)
        assert len(self.launched) % 5 == 0
        return lambda: tile

    def each_ns(self, call: Callable[[], Tile], calls: int) -> list[float]:
        times = self.times[call()]
        return [len(self.launched) * (times.pop(0) if len(times) > 1 else times[0])] * calls


class _Operation:
    def __init__(self, script: Scripted, tile: Tile) -> None:
        self.script, self.tile = script, tile

    def launch(self, pdl: bool = False) -> None:
        if self.tile.rows == 256:
            raise OutOfResources(300_000, 232_448, "shared memory")
        if self.tile.rows == 512:
            raise RuntimeError("PassManager::run failed\nwith a long report")
        if self.tile.rows == 1024:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.script.launched.append(self.tile)


def test_finalists_are_ranked_by_later_rounds_and_refusals_come_last() -> None:
    tiles = [Tile(rows, 32) for rows in (16, 32, 64, 128, 256, 512)]
    # The first is lucky once; the fourth is no finalist.
    script = Scripted({tiles[0]: [1.0, 9.0], tiles[1]: [3.0], tiles[2]: [2.0], tiles[3]: [4.0]})
    trials = ranked([Candidate(tile) for tile in tiles], script.operations, script)  # type: ignore[arg-type]
    assert [trial.candidate.tile for trial in trials] == [
        tiles[2],
        tiles[1],
        tiles[0],
        tiles[3],
        tiles[4],
        tiles[5],
    ]
    assert [trial.launch_ns for trial in trials] == [2.0, 3.0, 9.0, 4.0, None, None]
    assert trials[-2].refusal is not None
    assert "shared memory" in trials[-2].refusal
    assert trials[-1].refusal == "PassManager::run failed"
    with pytest.raises(MissingRequirement, match=r"no tile of a GEMM .* shared memory"):
        ranked([Candidate(tiles[4])], script.operations, script)  # type: ignore[arg-type]
    with pytest.raises(torch.OutOfMemoryError):
        ranked([Candidate(Tile(1024, 32))], script.operations, script)  # type: ignore[arg-type]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> GemmOperands:
    """Matrices for the interpreter, and few launches: each takes milliseconds."""
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    monkeypatch.setattr(gemm_tuner, "TUNING_LAUNCHES", 1)
    launch_in_one_thread(monkeypatch)
    monkeypatch.setattr(gemm_tuner, "FINAL_ROUNDS", 1)
    monkeypatch.setattr(gemm_bench, "ROUNDS", 2)
    some = (Candidate(Tile(16, 32, splits=2)), Candidate(Tile(32, 64)))
    monkeypatch.setattr(gemm_contenders, "split_candidates", lambda *_: some)
    monkeypatch.setattr(
        gemm_contenders, "unsplit_candidates", lambda *_: (Candidate(Tile(16, 32)),)
    )
    monkeypatch.setattr(
        gemm_contenders, "plain_candidates", lambda _: (Candidate(Tile(16, 32), 16),)
    )
    return GemmOperands(24, 64, 5, 2, "cpu")


def test_every_gemm_agrees_with_float64_on_every_copy(small: GemmOperands) -> None:
    for tokens in (1, 5):
        for tuned in tuned_gemms(small, tokens, H200, None):
            for candidate in tuned.candidates:
                for operation in tuned.operations(candidate):
                    operation.out.fill_(float("nan"))
                    operation.launch()
                    (expected,) = operation.reference(0)
                    error = (operation.out.double() - expected).norm() / expected.norm()
                    assert error < tuned.tolerance
    copies = [one.data.view(torch.uint8) for one in small.narrow("fp8_e4m3")]
    assert not torch.equal(*copies)
    for name, build in TORCH_PEERS.items():
        try:
            contender = build(small, 5)
        except (RuntimeError, NotImplementedError):
            assert name != "cublas_bf16"
            continue
        assert contender.name == name
        assert contender.error() < contender.tolerance


def test_all_gemms_of_a_size_are_measured_and_fill_json_and_table(small: GemmOperands) -> None:
    said: list[str] = []
    clock = FakeClock(2000.0)
    size = measure_size(small, 5, CONDITIONS, clock, said.append)  # type: ignore[arg-type]
    assert [gemm.name for gemm in size.gemms][:3] == list(TORCH_PEERS)
    figures = {gemm.name: gemm for gemm in size.gemms}
    assert set(figures) == {*OURS, *PEERS}
    assert set(size.trials) == {*OURS, "w8a8_unsplit", "plain_triton"}
    for name in (*OURS, "cublas_bf16", "plain_triton"):
        gemm = figures[name]
        assert gemm.error is None
        assert gemm.times is not None
        assert gemm.times.median_ns == 2000.0 / 2
        assert gemm.bytes_moved is not None
        assert gemm.times.bytes_per_s == pytest.approx(gemm.bytes_moved / 1e-6)
        assert len(gemm.rounds_ns) == 2
        assert (
            gemm.speedups["plain_triton" if name != "plain_triton" else "cublas_bf16"].median == 1
        )
        assert name not in gemm.speedups
    weight_bytes = 24 * 64 + 4 * 24
    assert figures["w8a8"].bytes_moved == weight_bytes + 5 * 64 + 4 * 5 + 2 * 5 * 24
    assert figures["int8"].bytes_moved == weight_bytes + 2 * 5 * 64 + 2 * 5 * 24
    assert figures["cublas_bf16"].bytes_moved == 2 * 24 * 64 + 2 * 5 * 64 + 2 * 5 * 24
    result = benchmark_of(size)
    assert result.errors == ()
    assert msgspec.json.decode(msgspec.json.encode(result), type=GemmBenchmark) == result
    text = text_of(gemm_table(result))
    assert all(name in text for name in figures)
    assert "16 x 32, 4, 1, 2" in text


def test_ours_are_measured_with_overlap_too(
    small: GemmOperands, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: dict[str, Any] = {}

    def keep(builders: dict[str, Any], *_: object) -> tuple[GemmFigures, ...]:
        built.update(builders)
        return ()

    def ranking(candidates: Any, *_: object) -> Any:
        return (gemm_tuner.GemmTrial(candidates[-1], 1.0),)

    monkeypatch.setattr(gemm_bench, "measure_gemms", keep)
    monkeypatch.setattr(gemm_bench, "ranked", ranking)
    conditions = replace(CONDITIONS, pdl=True)
    measure_size(small, 5, conditions, FakeClock(1.0), lambda stage: None)  # type: ignore[arg-type]
    assert set(built) == {*OURS, *PEERS, *(f"{name}_pdl" for name in OURS)}
    for name in OURS:
        overlapping, serial = built[f"{name}_pdl"](), built[name]()
        assert (overlapping.name, overlapping.overlaps) == (f"{name}_pdl", True)
        assert (serial.name, serial.overlaps) == (name, False)
        assert overlapping.candidate == serial.candidate == Candidate(Tile(32, 64))


def benchmark_of(*sizes: GemmSize) -> GemmBenchmark:
    return GemmBenchmark(1, 48, 96, 2, 2, 2, 3, 1000, 4e12, "2026-01-01", sizes, {"gpu": "a GPU"})


def text_of(renderable: Any) -> str:
    console = Console(width=250)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def contender(name: str, launched: list[Any], error: float = 1e-4, **changes: Any) -> Contender:
    def launcher(index: int) -> Callable[[bool], None]:
        return lambda pdl: launched.append((name, index, pdl))

    exact = torch.ones(1)
    given = Contender(
        name, [launcher(0), launcher(1)], lambda: exact * (1 + error), lambda: exact, 4000
    )
    return replace(given, **changes)


def test_rounds_take_turns_and_copies_take_turns_in_a_graph() -> None:
    launched: list[Any] = []
    builders = {
        "cublas_bf16": lambda: contender("cublas_bf16", launched),
        "w8a8_pdl": lambda: contender("w8a8_pdl", launched, overlaps=True),
    }
    launches = cold_graphs.launches_per_replay(2)
    # Each round: three replays of the peer, three of ours.
    clock = FakeClock(*(launches * ns for ns in (8.0, 8.0, 9.0, 4.0, 4.0, 5.0)))
    peer, ours = measure_gemms(builders, ReadPeak(2e12, "2026-01-01"), clock)  # type: ignore[arg-type]
    assert peer.rounds_ns == (8.0,) * ROUNDS
    assert ours.rounds_ns == (4.0,) * ROUNDS
    assert ours.speedups["cublas_bf16"].median == 2.0
    assert peer.speedups == {}
    assert ours.times is not None
    assert ours.times.bytes_per_s == pytest.approx(1e12)
    assert ours.times.share_of_peak == pytest.approx(0.5)
    assert clock.captured == 2
    names = [name for name, _, _ in launched]
    assert names == (["cublas_bf16"] * launches + ["w8a8_pdl"] * launches) * ROUNDS
    first = launched[launches : 2 * launches]
    assert [index for _, index, _ in first] == [0, 1] * (launches // 2)
    assert [pdl for _, _, pdl in first] == [False] + [True] * (launches - 1)
    assert {pdl for name, _, pdl in launched if name == "cublas_bf16"} == {False}


@pytest.mark.parametrize("error", [0.5, math.inf, math.nan])
def test_a_wrong_gemm_gets_an_error_and_no_time(error: float) -> None:
    launched: list[Any] = []
    builders = {"w8a8": lambda: contender("w8a8", launched, error, candidate=Candidate(Tile(1, 1)))}
    (figures,) = measure_gemms(builders, None, FakeClock(1.0))  # type: ignore[arg-type]
    assert figures.error is not None
    assert "float64" in figures.error
    assert (figures.times, figures.rounds_ns, launched) == (None, (), [])
    result = benchmark_of(GemmSize(3, (figures,), {}))
    assert result.errors == (f"w8a8 at 3 tokens: {figures.error}",)
    assert b"NaN" not in msgspec.json.encode(result)
    assert "float64" in text_of(gemm_table(result)).replace("\n", " ")


def test_a_peer_that_is_missing_or_refuses_the_shape_does_not_stop_the_run() -> None:
    def missing() -> Contender:
        raise AttributeError("module 'torch' has no attribute '_scaled_mm'")

    def refuses() -> None:
        raise RuntimeError("Expected trailing dimension of mat1\nto be divisible by 16")

    launched: list[Any] = []
    builders = {
        "scaled_mm_rowwise": missing,
        "scaled_mm_tensorwise": lambda: contender("scaled_mm_tensorwise", launched, result=refuses),
        "w8a8": lambda: contender("w8a8", launched),
    }
    gone, refusing, ours = measure_gemms(builders, None, FakeClock(1000.0))  # type: ignore[arg-type]
    assert gone.error == "not available: module 'torch' has no attribute '_scaled_mm'"
    assert refusing.error == "not available: Expected trailing dimension of mat1"
    assert ours.times is not None
    assert ours.speedups == {}
    result = benchmark_of(GemmSize(3, (gone, refusing, ours), {}))
    assert result.errors == ()
    assert "not available" in text_of(gemm_table(result))
    # A fault of our own is one.
    with pytest.raises(AttributeError):
        measure_gemms({"w8a8": missing}, None, FakeClock(1.0))  # type: ignore[arg-type]


def test_x_is_padded_to_16_rows_where_torch_asks_for_them(
    small: GemmOperands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled_mm(x: torch.Tensor, w: torch.Tensor, *, scale_a: Any, scale_b: Any, **_: Any) -> Any:
        if len(x) % 16:
            raise RuntimeError("Expected both dimensions to be divisible by 16")
        return ((x.float() * scale_a) @ (w.float() * scale_b)).bfloat16()

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    for name in ("scaled_mm_tensorwise", "scaled_mm_rowwise"):
        contender = TORCH_PEERS[name](small, 5)
        assert contender.note == "x is padded to 16 rows"
        assert contender.error() < 8e-3
        figures = GemmFigures(name, note=contender.note)
        text = text_of(gemm_table(benchmark_of(GemmSize(5, (figures,), {}))))
        assert f"{name}: x is padded to 16 rows" in text


def test_a_clocks_readings_per_candidate_are_few() -> None:
    """Tuning is a small part of a run: one reading a candidate, a few for the finalists."""
    readings: list[int] = []

    class Counting(Scripted):
        def each_ns(self, call: Callable[[], Tile], calls: int) -> list[float]:
            readings.append(calls)
            return super().each_ns(call, calls)

    tiles = [Tile(16, 1 << power) for power in range(5, 11)]
    script = Counting({tile: [1.0] for tile in tiles})
    ranked([Candidate(tile) for tile in tiles], script.operations, script)  # type: ignore[arg-type]
    assert readings == [REPLAYS] * (len(tiles) + FINALISTS * FINAL_ROUNDS)


@pytest.mark.gpu
def test_on_a_gpu_every_gemm_is_right_and_below_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_bench, "cache_folder", lambda: tmp_path)
    result = gemm_bench.run_gemm_bench(2048, 4096, (33,), lambda stage: None)
    assert result.errors == ()
    peak = result.measured_peak_bytes_per_s
    assert peak is not None
    for gemm in (one for size in result.sizes for one in size.gemms if one.times is not None):
        assert gemm.times is not None
        assert 0 < gemm.times.bytes_per_s < 1.1 * peak, gemm.name
