"""`attention-layer`: both layers compute what they should, also in a graph, and the gaps of their
traces are those that the trace has."""

from collections.abc import Callable

import pytest
import torch

from benchmarks.claims import traced
from benchmarks.claims.racing import Racing
from benchmarks.claims.tk_gemm import toy_layer
from benchmarks.claims.tk_gemm.attention_layer import (
    EAGER,
    GRAPH,
    Layer,
    fp8_layer,
    layer_rows,
    measure_layer,
    transformers_layer,
)
from benchmarks.claims.tk_gemm.toy_layer import LayerShape, ToyAttention
from benchmarks.claims.traced import Traced, idle_between
from benchmarks.harness import cold_graphs
from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.fake_clock import FakeClock
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.sizes import H200

SHAPE = LayerShape(hidden=64, heads=4, kv_heads=2, head_dim=32, length=9)


class CapturingClock(FakeClock):
    """Runs what it captures once, as a capture does."""

    def capture(self, body: Callable[[], None]) -> Callable[[], None]:
        body()
        return super().capture(body)


@pytest.fixture(autouse=True)
def few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch takes the interpreter milliseconds."""
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 1)
    monkeypatch.setattr(traced, "STEPS", 2)
    monkeypatch.setattr(traced, "WINDOWS", 2)
    monkeypatch.setattr(traced, "_WARM_STEPS", 0)
    monkeypatch.setattr(toy_layer, "measured_tile", lambda *_: None)


def racing() -> Racing:
    return Racing(CapturingClock(8e3, 2e3), 1 << 10, 1e12, {}, 2)  # type: ignore[arg-type]


def layers() -> list[Layer]:
    return [
        fp8_layer(H200, SHAPE, racing(), "cpu"),
        transformers_layer(SHAPE, racing(), "cpu"),
    ]


def test_both_layers_are_right_and_traced_both_ways() -> None:
    session = ProfilerSession("cpu")
    for layer in layers():
        race, traces = measure_layer(layer, racing(), session, "cpu")
        assert [one.error for one in race.entrants] == [None, None]
        assert all(one.relative_error is not None for one in race.entrants)
        assert set(traces) == {EAGER, GRAPH}
        for one in traces.values():
            assert len(one.windows) == 2
            assert [len(window.report.steps) for window in one.windows] == [2, 2]
            assert 0 < one.idle_share.median < 1
            assert one.launches.median > 10
        rows = list(layer_rows(layer, race, traces, {"speed-up": 6.4, f"{EAGER} idle": 0.92}))
        speed_up = rows[-1]
        assert speed_up.published == 6.4
        assert speed_up.measured == RoundSpread.of([4.0, 4.0])
        assert speed_up.measured_share == pytest.approx(layer.work.bytes_moved / 1e12 * 1e9 / 2e3)
        assert rows[0].published == 0.92
        assert {row.what for row in rows if "one by one:" in row.what} == {
            row.what for row in rows if row.baseline
        }
        assert rows[0].reached is None
        # The interpreter's GEMMs are not ops of the trace.
        gaps = [row for row in rows if "between its GEMMs" in row.what]
        assert [row.error for row in gaps] == ["there is no such gap in the trace"] * (
            2 if layer.gemm else 0
        )


def test_a_layer_that_writes_no_row_gets_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "index_copy_", lambda self, *_: self)
    layer = fp8_layer(H200, SHAPE, racing(), "cpu")
    race, traces = measure_layer(layer, racing(), ProfilerSession("cpu"), "cpu")
    assert traces == {}
    rows = list(layer_rows(layer, race, traces, {}))
    assert all(row.error is not None and row.measured is None for row in rows)


def test_the_toy_layer_counts_its_bytes() -> None:
    toy = ToyAttention(SHAPE, H200, "cpu")
    weights = (128 + 64 + 64) * (64 + 4) + 64 * (128 + 4)
    assert toy.bytes_moved == weights + 2 * 2 * 2 * 10 * 32 + 2 * 2 * 64
    assert len(toy.state_dict()) == 0


def step(at: int, correlation: int) -> list[Event]:
    """GEMM, glue, GEMM: 100 ns idle before the glue and 250 ns after it; a GEMM beside."""
    events = [span(at, at + 5_000, "decode_step")]
    for index, (name, start, end) in enumerate(
        (
            ("_split_k_gemm_kernel", 1_000, 2_000),
            ("elementwise", 2_100, 2_200),
            ("_split_k_gemm_kernel", 2_450, 3_000),
            ("_split_k_gemm_kernel", 3_000, 3_500),
        )
    ):
        events.append(call(at + 10 * index, at + 10 * index + 5, correlation + index))
        events.append(op(at + start, at + end, correlation + index, name=name))
    return events


def test_idle_between_gemms_leaves_out_what_ran_and_other_steps() -> None:
    analysis: Analysis = analyze(trace_of(*step(0, 1), *step(10_000, 11)))
    assert idle_between(analysis, "split_k_gemm").tolist() == [350, 0, 350, 0]
    assert len(idle_between(analysis, "gemv")) == 0
    found = Traced((analysis,))
    assert found.idle_between_ns("split_k_gemm") == RoundSpread.of([175.0])
    assert found.idle_between_ns("gemv") is None
    # 100 and 250 ns in each step, and 7,500 ns between them.
    assert found.gap_p50_ns == RoundSpread.of([250.0])
    assert found.busy_ns == 2_150
    assert found.launches.median == 4
    busy, window = 2 * 2_150, 13_500 - 1_000
    assert found.idle_share.median == pytest.approx(1 - busy / window)


@pytest.mark.gpu
def test_a_graph_closes_the_gaps_on_a_gpu() -> None:
    from benchmarks.claims.bench import run_claims
    from benchmarks.claims.catalog import chosen_claims

    report = run_claims(chosen_claims(("attention-layer",)), None, lambda stage: None)
    assert report.errors == ()
    found = {row.what: row.measured for row in report.claims[0].rows}
    assert all(one is not None for one in found.values())
    for layer in ("FP8 layer", "transformers bf16 layer"):
        for figure in ("idle share", "gap p50"):
            by_one, graph = (
                found[f"{layer}, {way}: {figure}"] for way in ("one by one", "CUDA graph")
            )
            assert by_one is not None
            assert graph is not None
            assert graph.max < by_one.min
