"""Paths of graph replays, from a reference, on traces made by hand and on a recorded pair."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.attribution.range_tree import GRAPH_REPLAY
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.analyzer.schema.graph_reference import REFERENCE_KEY, GraphReference, ReferenceOp
from decodescope.analyzer.schema.report import Attribution, Report
from decodescope.analyzer.trace import OperatorWork
from tests.helpers.kineto_events import DATA, Event, call, codes, op, span, trace_of

ROOT = "decode_step/model"
LAYERS = [
    (7, f"{kind}_{n % 2}", f"{ROOT}/layer.{n}/{kind}") for n in range(3) for kind in ("norm", "mm")
]


def reference(*rows: tuple[int, str, str]) -> dict[str, object]:
    return {
        REFERENCE_KEY: msgspec.to_builtins(GraphReference(tuple(ReferenceOp(*r) for r in rows)))
    }


def replay(
    at: int,
    correlation: int,
    names: list[str],
    streams: Sequence[int] = (7,) * 99,
    nodes: Sequence[int] = (-1,) * 99,
) -> list[Event]:
    """A graph launch at a time and its ops one after the other."""
    events = [call(at, at + 1, correlation, name="cudaGraphLaunch")]
    for k, name in enumerate(names):
        start = 10 * (at + k) + 1000
        more = {"graph node id": nodes[k]}
        events.append(op(start, start + 5, correlation, name=name, stream=streams[k], **more))
    return events


def step(at: int, *events: list[Event]) -> list[Event]:
    flat = [one for some in events for one in some]
    return [span(at, at + 90, "decode_step"), span(at + 5, at + 80, "model"), *flat]


def paths(analysis: Analysis) -> list[tuple[str, str]]:
    """(name, path) of every op in order of start."""
    trace, ranges = analysis.trace, analysis.ranges
    return [
        (trace.names[name], ranges.paths[node] if node >= 0 else "")
        for name, node in zip(trace.ops.name, ranges.op_node, strict=True)
    ]


def rows_of(report: Report) -> dict[str, tuple[int, int, str, float | None]]:
    return {r.path: (r.gpu_ops, r.launch_calls, r.confidence, r.matched) for r in report.ranges}


NAMES = [name for _, name, _ in LAYERS]


def test_equal_names_give_the_references_paths() -> None:
    events = [*step(0, replay(10, 1, NAMES)), *step(100, replay(110, 2, NAMES))]
    analysis = analyze(trace_of(*events, **reference(*LAYERS)))
    assert paths(analysis) == [(name, path) for _, name, path in LAYERS] * 2
    assert analysis.report.attribution == Attribution(exact=12, partial=0, none=0)
    assert analysis.ranges.reference_op.tolist() == [0, 1, 2, 3, 4, 5] * 2
    rows = rows_of(analysis.report)
    assert rows[ROOT] == (12, 2, "exact", None)
    assert rows[f"{ROOT}/layer.1"] == (4, 0, "exact", None)
    assert not any(path.endswith(GRAPH_REPLAY) for path in rows)


def test_without_a_reference_or_outside_its_marker_nothing_is_claimed() -> None:
    elsewhere = [span(0, 90, "generate"), *replay(10, 1, NAMES)]
    for events, keys in (
        (step(0, replay(10, 1, NAMES)), {}),
        (elsewhere, reference(*LAYERS)),
        (step(0, replay(10, 1, NAMES)), reference((7, "norm_0", "decode_step/other"))),
        (step(0, replay(10, 1, NAMES)), reference()),
    ):
        report = analyze(trace_of(*events, **keys)).report
        assert report.attribution == Attribution(exact=0, partial=0, none=6)
        assert report.ranges[-1].path.endswith(GRAPH_REPLAY)
        assert (report.ranges[-1].confidence, report.ranges[-1].launch_calls) == ("none", 1)


def test_copies_and_fills_match_whatever_memory_they_name() -> None:
    rows = [(7, "Memset (Device)", f"{ROOT}/a"), (7, "Memcpy DtoD (Device -> Device)", f"{ROOT}/b")]
    events = step(0, replay(10, 1, ["Memset (Unknown)", "Memcpy DtoD (Unknown -> Unknown)"]))
    report = analyze(trace_of(*events, **reference(*rows))).report
    assert report.attribution == Attribution(exact=2, partial=0, none=0)


def test_ranges_around_the_marker_stay_around_it() -> None:
    events = [span(-5, 200, "generate"), *step(0, replay(10, 1, NAMES))]
    found = paths(analyze(trace_of(*events, **reference(*LAYERS))))
    assert found == [(name, f"generate/{path}") for _, name, path in LAYERS]


def test_several_graphs_of_a_step_take_the_reference_in_turn() -> None:
    events = step(0, replay(10, 1, NAMES[:2]), replay(30, 2, NAMES[2:4]), replay(50, 3, NAMES[4:]))
    analysis = analyze(trace_of(*events, **reference(*LAYERS)))
    assert paths(analysis) == [(name, path) for _, name, path in LAYERS]
    assert rows_of(analysis.report)[ROOT] == (6, 3, "exact", None)


def test_direct_launches_between_graphs_are_landmarks_with_their_own_path() -> None:
    attention = [span(29, 40, "attention"), call(30, 31, 9), op(1300, 1305, 9, name="mm_0")]
    extra = [call(7, 8, 8), op(900, 905, 8, name="copy the inputs")]
    rows = [*LAYERS[:2], (7, "mm_0", f"{ROOT}/attention"), *LAYERS[2:4]]
    events = step(0, extra, replay(10, 1, NAMES[:2]), attention, replay(50, 3, NAMES[2:4]))
    analysis = analyze(trace_of(*events, **reference(*rows)))
    assert paths(analysis) == [
        ("copy the inputs", ROOT),
        *((name, path) for _, name, path in rows),
    ]
    assert analysis.report.attribution == Attribution(exact=6, partial=0, none=0)
    assert analysis.ranges.reference_op.tolist() == [-1, 0, 1, -1, 3, 4]


def test_a_direct_launch_that_might_be_one_of_the_graphs_leaves_a_doubt() -> None:
    extra = [call(7, 8, 8), op(900, 905, 8, name="mm_1")]
    rows = [*LAYERS[:2], (7, "between", f"{ROOT}/between"), *LAYERS[2:4]]
    between = [call(30, 31, 9), op(1300, 1305, 9, name="between")]
    events = step(0, extra, replay(10, 1, NAMES[:2]), between, replay(50, 3, NAMES[2:4]))
    report = analyze(trace_of(*events, **reference(*rows))).report
    assert report.attribution == Attribution(exact=2, partial=4, none=0)


def test_unequal_names_are_aligned_and_the_rest_is_named_as_unknown() -> None:
    names = [*NAMES[:3], "new", *NAMES[4:]]
    analysis = analyze(trace_of(*step(0, replay(10, 1, names)), **reference(*LAYERS)))
    expected = [(name, path) for _, name, path in LAYERS]
    expected[3] = ("new", f"{ROOT}/{GRAPH_REPLAY}")
    assert paths(analysis) == expected
    assert analysis.report.attribution == Attribution(exact=0, partial=5, none=1)
    rows = rows_of(analysis.report)
    assert rows[ROOT] == (6, 1, "exact", None)
    assert rows[f"{ROOT}/layer.1"] == (1, 0, "partial", pytest.approx(5 / 6))
    assert rows[f"{ROOT}/{GRAPH_REPLAY}"] == (1, 0, "none", None)


def test_an_op_of_the_reference_that_never_ran_makes_the_rest_partial() -> None:
    report = analyze(trace_of(*step(0, replay(10, 1, NAMES[:5])), **reference(*LAYERS))).report
    assert report.attribution == Attribution(exact=0, partial=5, none=0)
    assert rows_of(report)[f"{ROOT}/layer.0"] == (2, 0, "partial", 1.0)


def test_streams_are_paired_by_what_ran_on_them() -> None:
    rows = [
        (7, "a", f"{ROOT}/main"),
        (20, "x", f"{ROOT}/side"),
        (7, "b", f"{ROOT}/main"),
        (20, "y", f"{ROOT}/side"),
    ]
    names, streams = ["x", "y", "a", "b"], [3, 3, 4, 4]
    analysis = analyze(trace_of(*step(0, replay(10, 1, names, streams)), **reference(*rows)))
    assert analysis.ranges.reference_op.tolist() == [1, 3, 0, 2]
    assert analysis.report.attribution == Attribution(exact=4, partial=0, none=0)
    unequal = analyze(
        trace_of(*step(0, replay(10, 1, ["x", "a", "b"], [3, 4, 4])), **reference(*rows))
    )
    assert unequal.ranges.reference_op.tolist() == [1, 0, 2]
    assert unequal.report.attribution == Attribution(exact=0, partial=3, none=0)


def test_streams_that_could_be_taken_for_each_other_are_not_called_exact() -> None:
    rows = [(7, "a", f"{ROOT}/one"), (20, "a", f"{ROOT}/other")]
    report = analyze(
        trace_of(*step(0, replay(10, 1, ["a", "a"], [3, 4])), **reference(*rows))
    ).report
    assert report.attribution == Attribution(exact=0, partial=2, none=0)


def test_other_numbers_of_streams_are_compared_in_the_order_of_the_graphs_nodes() -> None:
    rows = [(7, name, f"{ROOT}/{name}") for name in "abcd"]
    events = step(
        0,
        replay(
            10,
            1,
            ["a", "c", "b", "d"],
            [3, 4, 3, 3],
            nodes=[2**32, 2**32 + 2, 2**32 + 1, 2**32 + 3],
        ),
    )
    analysis = analyze(trace_of(*events, **reference(*rows)))
    assert analysis.ranges.reference_op.tolist() == [0, 2, 1, 3]
    assert analysis.report.attribution == Attribution(exact=4, partial=0, none=0)


def test_equal_ops_on_more_streams_than_the_reference_has_need_the_order_of_the_nodes() -> None:
    """Ops of one name on two streams may start in either order: only the nodes identify them."""
    rows = [(7, "mm", f"{ROOT}/{part}") for part in ("query", "key")]
    names, streams, nodes = ["mm", "mm"], [3, 4], [2**32 + 1, 2**32]
    known = analyze(trace_of(*step(0, replay(10, 1, names, streams, nodes)), **reference(*rows)))
    assert known.ranges.reference_op.tolist() == [1, 0]
    assert known.report.attribution == Attribution(exact=2, partial=0, none=0)
    blind = analyze(trace_of(*step(0, replay(10, 1, names, streams)), **reference(*rows)))
    assert blind.report.attribution == Attribution(exact=0, partial=2, none=0)
    apart = [(3, "mm", f"{ROOT}/query"), (4, "mm", f"{ROOT}/key")]
    joined = analyze(
        trace_of(*step(0, replay(10, 1, names, nodes=sorted(nodes))), **reference(*apart))
    )
    assert joined.report.attribution == Attribution(exact=0, partial=2, none=0)


def test_a_cut_replay_follows_its_graphs_nodes() -> None:
    nodes = [2**32 + k for k in range(6)]
    events = [
        *step(0, replay(10, 1, NAMES[4:], nodes=nodes[4:])),
        *step(100, replay(110, 2, NAMES, nodes=nodes)),
    ]
    analysis = analyze(trace_of(*events, **reference(*LAYERS)))
    assert analysis.ranges.reference_op.tolist() == [4, 5, 0, 1, 2, 3, 4, 5]
    assert analysis.report.attribution == Attribution(exact=8, partial=0, none=0)
    blind = analyze(
        trace_of(
            *step(0, replay(10, 1, NAMES[4:])),
            *step(100, replay(110, 2, NAMES)),
            **reference(*LAYERS),
        )
    )
    assert blind.ranges.reference_op.tolist()[:2] == [0, 1]
    assert blind.report.attribution == Attribution(exact=6, partial=2, none=0)


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=8), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from((7, 8)), st.sampled_from("abc")), max_size=8),
    st.sampled_from(([7] * 8, [7, 8] * 4)),
)
@settings(deadline=None, max_examples=65)
def test_whatever_the_reference_every_op_has_one_path(
    replays: list[list[str]], rows: list[tuple[int, str]], streams: list[int]
) -> None:
    keys = reference(*((s, name, f"{ROOT}/part.{k}") for k, (s, name) in enumerate(rows)))
    events = [
        one
        for number, names in enumerate(replays)
        for one in step(100 * number, replay(100 * number + 10, number + 1, names, streams))
    ]
    analysis = analyze(trace_of(*events, **keys))
    trace, ranges = analysis.trace, analysis.ranges
    for name, node, partner in zip(
        trace.ops.name, ranges.op_node, ranges.reference_op, strict=True
    ):
        part = f"part.{partner}" if partner >= 0 else GRAPH_REPLAY
        assert ranges.paths[node] == f"{ROOT}/{part}"
        assert partner < 0 or rows[partner][1] == trace.names[name]
    for number in range(len(replays)):
        taken = ranges.reference_op[(analysis.steps.op_step == number) & (ranges.reference_op >= 0)]
        assert len(set(taken.tolist())) == len(taken)
    found = analysis.report.attribution
    assert found is not None
    assert found.exact + found.partial + found.none == len(trace.ops)
    assert found.none == (ranges.reference_op < 0).sum()


def test_a_recorded_replay_is_attributed_by_the_recorded_ungraphed_step() -> None:
    ungraphed = analyze(load(DATA / "h200_compiled_ungraphed.json.gz"))
    made = reference_from(ungraphed)
    assert len(made.ops) == 310
    assert {one.path for one in made.ops} == {ROOT, "decode_step/sampling"}
    deeper = {k: f"{ROOT}/layer.{k // 19}" for k in range(309)}
    made = reference_from(ungraphed, 0, deeper)
    trace = load(DATA / "h200_compiled_replays.json.gz")
    replayed = analyze(replace(trace, reference=made))
    assert replayed.report.attribution == Attribution(exact=622, partial=0, none=0)
    rows = rows_of(replayed.report)
    assert rows[ROOT] == (620, 4, "exact", None)
    assert rows["decode_step/sampling"] == (2, 2, "exact", None)
    assert [rows[f"{ROOT}/layer.{k}"][0] for k in range(17)] == [38] * 16 + [10]
    unattributed = analyze(trace).report.attribution
    assert unattributed == Attribution(exact=4, partial=0, none=618)


def test_the_work_of_an_operator_goes_to_its_longest_op() -> None:
    ids = [{"External id": number} for number in (5, 5, 6)]
    trace = trace_of(
        span(-9, 300, "outer"),
        *step(0),
        *step(100),
        call(110, 111, 1),
        op(1000, 1005, 1, name="split", **ids[0]),
        call(112, 113, 2),
        op(1010, 1090, 2, name="product", stream=9, **ids[1]),
        call(185, 186, 3),
        op(1100, 1110, 3, name="copy", **ids[2]),
        call(120, 121, 4, tid=2),
        op(1120, 1130, 4, name="elsewhere"),
    )
    work = OperatorWork(*(np.array([value]) for value in (5, 640, 9000)))
    analysis = analyze(replace(trace, work=work))
    assert reference_from(analysis, 1, {2: "decode_step/sampling"}).ops == (
        ReferenceOp(7, "split", ROOT),
        ReferenceOp(9, "product", ROOT, 640, 9000),
        ReferenceOp(7, "copy", "decode_step/sampling"),
        ReferenceOp(7, "elsewhere", ""),
    )
    with pytest.raises(IndexError):
        reference_from(analysis, 2)


def test_a_reference_travels_in_the_trace_file_and_a_broken_one_is_a_finding() -> None:
    good = trace_of(*step(0, replay(10, 1, NAMES)), **reference((7, "a", "decode_step")))
    assert good.reference == GraphReference((ReferenceOp(7, "a", "decode_step"),))
    huge = {"ops": [[2**63, "a", "b"]]}
    for broken in (3, {"ops": [[7, "a"]]}, {"ops": [["7", "a", "b"]]}, {}, huge):
        trace = trace_of(*step(0, replay(10, 1, NAMES)), **{REFERENCE_KEY: broken})
        assert trace.reference is None
        assert "bad_reference" in codes(trace)
