"""Kernels of two reports, matched by name."""

from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.comparing.pair_changes import KernelChange, kernel_changes
from decodescope.analyzer.schema.comparison_report import Change
from decodescope.analyzer.schema.kernel_report import KernelReport
from decodescope.analyzer.schema.report import Report
from tests.helpers.comparison_reports import step_of, window_of

TIMES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**9))


def report(times_ns: dict[str, int], steps: int = 2, **changes: object) -> Report:
    kernels = tuple(
        KernelReport(name, 4, total_ns, total_ns // 4, 0.0, attributed_ns=total_ns // 2)
        for name, total_ns in times_ns.items()
    )
    made = tuple(step_of(index, 100, {}) for index in range(steps))
    return window_of(made, kernels=kernels, **changes)


def test_kernels_are_compared_per_step_and_the_largest_change_is_first() -> None:
    base = report({"mm": 1000, "add": 300, "gone": 40})
    other = report({"mm": 900, "add": 300, "new": 5000}, steps=1)
    assert kernel_changes(base, other) == (
        KernelChange("new", Change(None, 4.0), Change(None, 5000.0)),
        KernelChange("mm", Change(2.0, 4.0), Change(500.0, 900.0)),
        KernelChange("add", Change(2.0, 4.0), Change(150.0, 300.0)),
        KernelChange("gone", Change(2.0, None), Change(20.0, None)),
    )


def test_where_ops_overlap_on_a_side_both_are_compared_by_attributed_time() -> None:
    base = report({"mm": 1000}, steps=1)
    other = report({"mm": 800}, steps=1, kernels_ranked_by="attributed_ns")
    assert kernel_changes(base, other)[0].ns == Change(500.0, 400.0)


def test_steps_are_not_compared_with_a_whole_trace() -> None:
    assert kernel_changes(report({"mm": 1000}), report({"mm": 1000}, steps=0)) == ()
    assert len(kernel_changes(report({"mm": 1}, steps=0), report({"mm": 2}, steps=0))) == 1


@given(TIMES, TIMES, st.integers(1, 4), st.integers(1, 4))
def test_the_changes_add_up(
    base: dict[str, int], other: dict[str, int], before: int, after: int
) -> None:
    rows = kernel_changes(report(base, before), report(other, after))
    wanted = sum(other.values()) / after - sum(base.values()) / before
    assert abs(sum(row.ns.moved for row in rows) - wanted) <= 1e-6 * (
        1 + sum(other.values()) + sum(base.values())
    )
    assert {row.name for row in rows} == base.keys() | other.keys()
    moved = [abs(row.ns.moved) for row in rows]
    assert moved == sorted(moved, reverse=True)
