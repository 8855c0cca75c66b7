"""One kernel's launches against a plain count, and the kernels of a range."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.attribution.range_tree import folded_name
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.kernel_launches import (
    UNKNOWN_NS,
    groupings,
    kernel_group,
    kernel_groups,
    kernel_launches,
    kernel_profile,
    kernels_within,
    op_groups,
)
from tests.helpers.kineto_events import DATA, call, op, span, trace_of
from tests.helpers.read_once import analysed_once

OURS = ("cpu_two_blocks", "h200_compiled_replays", "h200_compiled_ungraphed", "h200_graph_replays")
TRACES = [DATA / f"{name}.json.gz" for name in OURS]


def analysis_of(rows: list[tuple[str, int, int, bool]]) -> Analysis:
    """Two ranges "a" and "b" in a step; each row is a kernel with its length, the gap before it,
    and whether its call is in the trace."""
    events: list[Any] = [
        span(0, 1_000_000, "decode_step"),
        span(10, 500, "a"),
        span(500, 900_000, "b"),
    ]
    at = 1_000
    for number, (name, length, gap, linked) in enumerate(rows, 1):
        at += gap
        if linked:
            events.append(call(20 + 10 * number, 25 + 10 * number, number))
        events.append(op(at, at + length, number, name=name, grid=[number % 3 + 1, 1, 1]))
        at += length
    return analyze(trace_of(*events))


ROWS = st.lists(
    st.tuples(st.sampled_from("kmn"), st.integers(1, 50), st.integers(0, 20), st.booleans()),
    min_size=1,
    max_size=80,
)


@given(ROWS)
def test_launches_are_what_a_plain_count_finds(rows: list[tuple[str, int, int, bool]]) -> None:
    analysis = analysis_of(rows)
    at, started = 0, []
    for _, length, gap, _ in rows:
        at += gap
        started.append(at)
        at += length
    for name in "kmn":
        mine = [number for number, row in enumerate(rows) if row[0] == name]
        found = kernel_launches(analysis, name)
        assert found.op.tolist() == mine
        assert found.at_ns.tolist() == [started[number] - started[0] for number in mine]
        assert found.length_ns.tolist() == [rows[number][1] for number in mine]
        assert found.gap_ns.tolist() == [rows[number][2] if number else 0 for number in mine]
        called = [20 + 10 * (number + 1) for number in mine]
        begin = [1_000 + started[number] for number in mine]
        linked = [rows[number][3] for number in mine]
        assert found.latency_ns.tolist() == [
            ns - c if known else UNKNOWN_NS
            for ns, c, known in zip(begin, called, linked, strict=True)
        ]
        assert found.queue_ns.tolist() == [
            ns - c - 5 if known and ns >= c + 5 else UNKNOWN_NS
            for ns, c, known in zip(begin, called, linked, strict=True)
        ]


@given(ROWS)
def test_the_kernels_of_ranges_add_up_to_those_of_the_window(
    rows: list[tuple[str, int, int, bool]],
) -> None:
    analysis = analysis_of([(name, length, gap, True) for name, length, gap, _ in rows])
    whole = {one.name: one for one in analysis.report.kernels}
    assert kernels_within(analysis, "decode_step") == analysis.report.kernels
    parts = [kernels_within(analysis, f"decode_step/{range_}") for range_ in "ab"]
    for name, report in whole.items():
        mine = [one for part in parts for one in part if one.name == name]
        assert sum(one.count for one in mine) == report.count
        assert sum(one.total_ns for one in mine) == report.total_ns
        assert sum(one.attributed_ns for one in mine) == report.attributed_ns
    rank = "attributed_ns" if analysis.overlapping else "total_ns"
    for part in parts:
        ranked = [getattr(one, rank) for one in part]
        assert ranked == sorted(ranked, reverse=True)
    for path, part in zip("ab", parts, strict=True):
        if part:
            assert sum(one.share for one in part) == pytest.approx(1)
        for one in part:
            launches = kernel_launches(analysis, one.name, f"decode_step/{path}")
            assert len(launches) == one.count
            assert launches.length_ns.sum() == one.total_ns


SUMS = ("count", "total_ns", "attributed_ns", "short_calls")


@pytest.mark.parametrize(
    "path", [*TRACES, *bundled_recordings()], ids=lambda path: path.name.split(".")[0]
)
def test_groups_of_kernels_are_the_sums_of_their_rows(path: Path) -> None:
    analysis = analysed_once(str(path))
    trace, node = analysis.trace, analysis.ranges.op_node
    ops = np.flatnonzero(analysis.main_ops & (trace.ops.kind == trace.kernel_kind))
    for by in groupings(analysis):
        groups = kernel_groups(analysis, by)
        of_each, _ = op_groups(analysis, by)
        for group in groups:
            for figure in SUMS:
                figures = [getattr(kernel, figure) for kernel in group.kernels]
                assert getattr(group.report, figure) == sum(figures)
            known = [kernel.roofline for kernel in group.kernels if kernel.roofline is not None]
            assert (group.report.roofline is None) == (not known)
            if group.report.roofline is not None:
                assert group.report.roofline.bytes == sum(roof.bytes for roof in known)
            alone = kernel_group(analysis, by, group.report.name, None)
            assert alone is not None
            assert alone == msgspec.structs.replace(
                group.report, share=alone.share, attributed_share=alone.attributed_share
            )
            assert alone.share == pytest.approx(group.report.share)
            mine = ops[of_each[ops] == group.number]
            assert len(mine) == group.report.count
            assert int(trace.ops.length_ns[mine].sum()) == group.report.total_ns
        for kernel in analysis.report.kernels:
            rows = [row for group in groups for row in group.kernels if row.name == kernel.name]
            for figure in SUMS:
                assert sum(getattr(row, figure) for row in rows) == getattr(kernel, figure)
    numbers, names = op_groups(analysis, "role")
    structure = analysis.structure
    assert [names[number] for number in numbers] == [ROLES[r] for r in structure.role]
    numbers, names = op_groups(analysis, "layer")
    for layer, number in set(zip(structure.layer.tolist(), numbers.tolist(), strict=True)):
        assert names[number] == (f"layer.{layer}" if layer >= 0 else "outside of layers")
    (numbers, names), tree = op_groups(analysis, "module"), analysis.ranges.tree
    for own, number in set(zip(node.tolist(), numbers.tolist(), strict=True)):
        chain = tree.chain(own)
        while chain and (
            tree.operator[chain[-1]]
            or tree.inferred[chain[-1]]
            or tree.names[chain[-1]] == "(graph replay)"
        ):
            chain.pop()
        path_of = "/".join(tree.names[one] for one in chain)
        assert names[number] == (folded_name(path_of) if chain else "no range")


@given(ROWS)
def test_a_profile_has_the_extremes_the_shapes_and_the_ranges(
    rows: list[tuple[str, int, int, bool]],
) -> None:
    analysis = analysis_of(rows)
    # Ops whose call is missing belong to no step; without any step, the whole trace counts.
    counted = [row for row in rows if row[3]] or rows
    for report in analysis.report.kernels:
        profile = kernel_profile(analysis, report.name)
        assert profile is not None
        assert profile.lengths is not None
        lengths = [row[1] for row in counted if row[0] == report.name]
        assert (profile.lengths.min, profile.lengths.max) == (min(lengths), max(lengths))
        assert profile.report == report
        assert sum(times for _, times in profile.shapes) == report.count
        assert profile.shapes[0][0] == report.shape or (
            profile.shapes[0][1] == dict(profile.shapes)[report.shape]  # type: ignore[index]
        )
        known = sum(row[3] for row in counted if row[0] == report.name)
        assert sum(one.launches for one in profile.ranges) == known


def test_an_unknown_kernel_or_range_has_nothing() -> None:
    analysis = analysis_of([("k", 5, 0, True)])
    assert kernel_profile(analysis, "zz") is None
    assert kernel_profile(analysis, "k", "no/such/range") is None
    assert kernels_within(analysis, "no/such/range") == ()
    assert len(kernel_launches(analysis, "a")) == 0
    empty = analyze(trace_of(span(0, 10, "decode_step")))
    assert len(kernel_launches(empty, "k")) == 0
    assert np.array_equal(kernel_launches(analysis, "k").op, [0])
