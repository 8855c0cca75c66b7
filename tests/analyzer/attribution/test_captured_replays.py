"""Paths of graph replays from profiles of captures: the right ones, or none."""

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, Given, analyze, load
from decodescope.analyzer.attribution.ranges import replay_sources
from decodescope.analyzer.attribution.replays import batch_of
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.report import Attribution, Source
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.captures import (
    MARKER,
    Node,
    attributed,
    capture_of,
    captured,
    kernels,
    model,
    module,
    paths_of,
    replays,
)
from tests.helpers.kineto_events import Event, trace_of

FULL = model(3)


def below_marker(analysis: Analysis) -> list[str]:
    """Each op's path below the step marker, "" where the replay is not attributed."""
    trace, ranges = analysis.trace, analysis.ranges
    known = [ranges.paths[node] if node >= 0 else "" for node in ranges.op_node.tolist()]
    pairs = zip(known, ranges.reference_op.tolist(), strict=True)
    assert len(known) == len(trace.ops)
    return [path.removeprefix(MARKER).strip("/") if at >= 0 else "" for path, at in pairs]


def with_capture(events: list[Event], *captures: Trace) -> Analysis:
    return analyze(trace_of(*events), Given(captures))


def why_unused(analysis: Analysis) -> list[str]:
    findings = analysis.report.health.findings
    return [one.message for one in findings if one.code == "capture_not_used"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("node_ids", [True, False])
def test_a_whole_graph_gets_the_paths_of_its_capture(named: bool, node_ids: bool) -> None:
    profile = capture_of(captured(FULL, named=named, around="capture_32_FULL"))
    events = [*replays(kernels(FULL), node_ids=node_ids), *replays(kernels(FULL), at=5_000)]
    analysis = with_capture(events, profile)
    assert below_marker(analysis) == paths_of(FULL) * 2
    assert attributed(analysis) == Attribution(exact=2 * len(FULL), partial=0, none=0)
    assert replay_sources(analysis.trace, analysis.ranges.reference_op) == {"capture": 28}
    assert why_unused(analysis) == []


def test_without_a_step_or_a_range_the_path_is_the_captures() -> None:
    analysis = with_capture(replays(kernels(FULL), marker=""), capture_of(captured(FULL)))
    assert below_marker(analysis) == paths_of(FULL)


def test_calls_in_front_and_behind_that_are_no_nodes_have_no_partner() -> None:
    nodes = model(8)
    more = [("fill", (), "aten::fill_"), *nodes, ("copy", (), "aten::copy_")]
    analysis = with_capture(replays(kernels(nodes)), capture_of(captured(more)))
    assert below_marker(analysis) == paths_of(nodes)
    assert attributed(analysis).exact == len(nodes)


def test_modules_open_around_the_launch_are_not_repeated() -> None:
    around = [module(3, 15, "Model_0"), *replays(kernels(FULL))]
    found = below_marker(with_capture(around, capture_of(captured(FULL))))
    assert found == paths_of(FULL)


def test_pieces_of_equal_kernels_are_told_apart_by_their_order() -> None:
    first, last = model(0)[:1], model(0)[1:]
    layer: list[Node] = [(name, (), f"aten::{name}") for name in ("norm", "qkv")]
    pieces = [first, layer, layer, layer, last]
    events: list[Event] = [module(0, 1_900, "Model_0")]
    for n, piece in enumerate(pieces):
        inside = [(name, (f"Piece_{n}",), op) for name, _, op in piece]
        events += captured(inside, at=10 + 200 * n, number=1 + 100 * n)
    wanted = [f"Model_0/Piece_{n}/{op}" for n, piece in enumerate(pieces) for _, _, op in piece]
    step = [kernels(piece) for piece in pieces]
    twice = [*replays(*step), *replays(*step, at=10_000)]
    assert below_marker(with_capture(twice, trace_of(*events))) == wanted * 2
    without_first = replays(*step[1:])
    found = below_marker(with_capture(without_first, trace_of(*events)))
    assert found == wanted[1:]
    # Nothing says which of the three pieces these are.
    found = below_marker(with_capture(replays(step[1]), trace_of(*events)))
    assert found == ["", ""]


def test_a_capture_of_another_batch_is_not_used_and_says_so() -> None:
    for label, used in (
        ("capture_32_FULL", True),
        ("capture_64_FULL", False),
        ("capture_16_FULL", False),
        ("capture_40_FULL", False),
    ):
        analysis = with_capture(replays(kernels(FULL)), capture_of(captured(FULL, around=label)))
        assert (below_marker(analysis) == paths_of(FULL)) == used
        assert (not any(below_marker(analysis))) == (not used)
        assert [("batch" in why) for why in why_unused(analysis)] == [True] * (not used)
        if not used:
            assert analysis.trace.reference is None
            assert analysis.report.health.status == "ok"


def test_a_batch_between_two_sizes_is_padded_to_the_next() -> None:
    marker = "execute_30_context_0(sq0)_generation_30(sq30)"
    trace = trace_of(*replays(kernels(FULL), marker=marker))
    profile = capture_of(captured(FULL, around="capture_32_FULL"))
    assert attributed(analyze(trace, Given((profile,)))).exact == len(FULL)


def test_of_several_captures_the_one_of_the_batch_is_chosen() -> None:
    sizes = (16, 32, 64)
    profiles = []
    for size in sizes:
        nodes = [(name, (f"Of{size}", *around), op) for name, around, op in FULL]
        profiles.append(capture_of(captured(nodes, around=f"capture_{size}_FULL")))
    renamed = [
        replace(one, source=replace_source(one, str(size)))
        for one, size in zip(profiles, sizes, strict=True)
    ]
    analysis = with_capture(replays(kernels(FULL)), *renamed)
    assert below_marker(analysis) == [f"Of32/{path}" for path in paths_of(FULL)]
    assert len(why_unused(analysis)) == 2
    assert analysis.trace.reference is not None
    assert len(analysis.trace.reference.ops) == len(FULL)
    # Without a batch size, equal graphs with different paths are ambiguous.
    plain = replays(kernels(FULL), marker="execute_model")
    ambiguous = with_capture(plain, *renamed)
    assert not any(below_marker(ambiguous))
    assert "several" in why_unused(ambiguous)[0]


def replace_source(trace: Trace, path: str) -> Source:
    return msgspec.structs.replace(trace.source, path=path)


@pytest.mark.parametrize("named", [True, False])
def test_a_capture_of_another_model_is_not_used(named: bool) -> None:
    other = model(3, kernels=("norm2", "gemm", "rope", "mlp"))
    analysis = with_capture(replays(kernels(FULL)), capture_of(captured(other, named=named)))
    if named:
        assert not any(below_marker(analysis))
        assert "another model" in why_unused(analysis)[0]
    longer = with_capture(replays(kernels(FULL)), capture_of(captured(model(4), named=named)))
    # A layer too many: which one it is, nothing says.
    assert not any(below_marker(longer))


def test_unnamed_kernels_need_agreeing_operators() -> None:
    nodes = [("gemm_a", (), "aten::mm"), ("soft_b", (), "aten::softmax")] * 4
    replayed = replays([name for name, _, _ in nodes])
    assert any(below_marker(with_capture(replayed, capture_of(captured(nodes, named=False)))))
    shifted = [*nodes[1:], nodes[0]]
    found = with_capture(replayed, capture_of(captured(shifted, named=False)))
    assert not any(below_marker(found))
    copies = [("Memcpy", (), "aten::copy_"), *nodes[1:]]
    found = with_capture(replayed, capture_of(captured(copies, named=False)))
    assert not any(below_marker(found))
    triton = [("triton_x", (), "triton_x"), ("triton_y", (), "triton_y")]
    profile = capture_of(captured(triton, named=False))
    assert any(below_marker(with_capture(replays(["triton_x", "triton_y"]), profile)))
    assert not any(below_marker(with_capture(replays(["triton_y", "triton_x"]), profile)))


def test_concurrent_streams_without_node_ids_are_no_certain_order() -> None:
    names = kernels(FULL)
    streams = [7 + (k in (2, 9)) for k in range(len(names))]
    profile = capture_of(captured(FULL))
    found = attributed(with_capture(replays(names, streams=streams), profile))
    assert (found.exact, found.partial) == (0, len(names))
    found = attributed(with_capture(replays(names, streams=streams, node_ids=True), profile))
    assert (found.exact, found.partial) == (len(names), 0)
    unnamed = capture_of(captured(FULL, named=False))
    assert not any(below_marker(with_capture(replays(names, streams=streams), unnamed)))


def test_a_replay_that_lost_ops_follows_the_node_ids_of_a_whole_one() -> None:
    whole = replays(kernels(FULL), node_ids=True)
    cut = [
        one
        for k, one in enumerate(replays(kernels(FULL), at=5_000, node_ids=True))
        if not 4 <= k <= 8
    ]
    analysis = with_capture([*whole, *cut], capture_of(captured(FULL)))
    wanted = paths_of(FULL)
    assert below_marker(analysis) == [*wanted, *wanted[:2], *wanted[7:]]
    assert attributed(analysis).partial == 0


def test_a_capture_that_was_cut_names_the_beginning_only() -> None:
    analysis = with_capture(replays(kernels(FULL)), capture_of(captured(FULL[:8], end=False)))
    assert below_marker(analysis) == [*paths_of(FULL)[:8], *[""] * (len(FULL) - 8)]
    assert attributed(analysis) == Attribution(exact=0, partial=8, none=len(FULL) - 8)
    shares = {one.matched for one in analysis.report.ranges if one.confidence == "partial"}
    assert [pytest.approx(8 / len(FULL))] * len(shares) == list(shares)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_op_ever_gets_the_path_of_another_layer(data: st.DataObject) -> None:
    """A stretch lost from the capture, or from the replay, costs paths and gives no wrong one."""
    layers = data.draw(st.integers(1, 30))
    motif = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=5))
    nodes = model(layers, kernels=motif)
    first = data.draw(st.integers(0, len(nodes) - 1))
    most = data.draw(st.sampled_from((0, 1, len(motif), 2 * len(motif), len(nodes))))
    after = min(first + most, len(nodes))
    kept = [k for k in range(len(nodes)) if not first <= k < after]
    every = list(range(len(nodes)))
    of_capture, of_replay = data.draw(st.sampled_from(((kept, every), (every, kept))))
    if not kept:
        return
    profile = capture_of(captured([nodes[k] for k in of_capture]))
    analysis = with_capture(replays([nodes[k][0] for k in of_replay]), profile)
    wanted = [paths_of(nodes)[k] for k in of_replay]
    pairs = zip(below_marker(analysis), wanted, strict=True)
    assert all(found in ("", path) for found, path in pairs)
    if kept == every:
        assert attributed(analysis).exact == len(nodes)


def test_an_own_reference_stays_and_the_capture_is_not_used() -> None:
    from tests.analyzer.attribution.test_replays import LAYERS, NAMES, reference, replay, step

    trace = trace_of(*step(0, replay(10, 1, NAMES)), **reference(*LAYERS))
    analysis = analyze(trace, Given((capture_of(captured(FULL)),)))
    assert attributed(analysis).exact == len(NAMES)
    assert "its own step" in why_unused(analysis)[0]


def test_the_same_file_as_trace_and_capture() -> None:
    profile = capture_of(captured(FULL))
    analysis = analyze(profile, Given((profile, profile)))
    assert why_unused(analysis) == [
        "the capture hand-made.json is not used: the trace has no graph replay"
    ]


def test_batch_of_step_names() -> None:
    assert batch_of(["execute_32_context_0(sq0)_generation_32(sq32)"]) == 32
    assert batch_of(["execute_context_1(7)_generation_3(3)"]) == 10
    assert batch_of(["outer", "step[DECODE bs=48 toks=48]", "inner"]) == 48
    assert batch_of(["execute_model", "step 7"]) is None
    assert batch_of([]) is None


def test_what_is_exported_is_read_back_with_the_same_paths(tmp_path: Path) -> None:
    other = capture_of(captured(model(5), around="capture_64_FULL"))
    profile = capture_of(captured(FULL, around="capture_32_FULL"))
    analysis = with_capture(replays(kernels(FULL)), other, profile)
    export_chrome(analysis, tmp_path / "one.json")
    again = analyze(load(tmp_path / "one.json"))
    assert attributed(again) == attributed(analysis)
    assert below_marker(again) == below_marker(analysis) == paths_of(FULL)
    assert b"Layer_2" in (tmp_path / "one.json").read_bytes()
    assert b"Layer_4" not in (tmp_path / "one.json").read_bytes()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_references_in_a_file_break_nothing(seed: int) -> None:
    from decodescope.analyzer.schema.graph_reference import (
        REFERENCE_KEY,
        CapturedGraph,
        GraphReference,
        ReferenceOp,
    )
    from tests.helpers.kineto_events import document

    draw = random.Random(seed)
    ops = [
        ReferenceOp(0, draw.choice(("norm", "", "x")), draw.choice(("a/b", "", "/")))
        for _ in range(draw.randrange(6))
    ]
    graphs = [
        CapturedGraph(draw.choice((0, 3, 2**60)), draw.choice((0, 2, 14, 2**60)), 0, "f")
        for _ in range(draw.randrange(1, 4))
    ]
    keys = {REFERENCE_KEY: msgspec.to_builtins(GraphReference(tuple(ops), tuple(graphs)))}
    trace = read_kineto_bytes(document(replays(kernels(FULL)), **keys), "x.json")
    found = attributed(analyze(trace))
    assert found.exact + found.partial + found.none == 14
