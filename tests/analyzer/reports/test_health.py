"""Status and findings: whether the figures of a trace can be trusted."""

import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.report import Health
from tests.helpers.kineto_events import Event, call, op, span, trace_of

CAPTURE = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "model": "m",
    "weights": "random",
    "variant": "eager",
    "dtype": "bf16",
    "batch": 1,
    "context": 4,
    "position": 4,
    "steps": 2,
    "bytes_per_step": 48_000,
    "decodescope_version": "0",
}
STEPS = (span(0, 100, "decode_step"), span(100, 200, "decode_step"))


def health(*events: Event, **keys: object) -> Health:
    return analyze(trace_of(*events, **keys)).report.health


def messages(found: Health, code: str) -> list[str]:
    return [finding.message for finding in found.findings if finding.code == code]


@pytest.mark.parametrize(("unprofiled", "reported"), [(79, True), (80, False), (None, False)])
def test_a_distorted_window_says_so(unprofiled: int | None, reported: bool) -> None:
    capture = {**CAPTURE, "unprofiled_step_ns": unprofiled}
    work = [call(1, 2, 1), op(10, 20, 1), call(101, 102, 2), op(110, 120, 2)]
    found = health(*STEPS, *work, decodescope=capture)
    (*said,) = messages(found, "distorted_window")
    assert bool(said) == reported
    assert found.status == "ok"
    if reported:
        assert "a profiled step took 1.27 times as long" in said[0]


@pytest.mark.parametrize(("batch", "reported"), [(1, False), (16, True)])
def test_a_batch_says_how_evenly_its_experts_are_used(batch: int, reported: bool) -> None:
    balance = {"experts": 128, "distinct": 81.53, "busiest_share": 0.031}
    capture = {**CAPTURE, "batch": batch, "unprofiled_step_ns": None, "experts": balance}
    found = health(*STEPS, call(1, 2, 1), op(10, 20, 1), decodescope=capture)
    said = "the step before the window used 81.5 of 128 experts a layer, the busiest 3.1 % of"
    assert [said in message for message in messages(found, "experts")] == [True] * reported
    assert found.status == "ok"


def test_graph_launches_whose_ops_are_missing_are_counted() -> None:
    launches = [call(10 * i, 10 * i + 1, i, name="cudaGraphLaunch") for i in range(1, 4)]
    found = health(*STEPS, *launches, op(40, 50, 2))
    (said,) = messages(found, "graph_launch_without_ops")
    assert said.startswith("2 of 3 graph launches have no GPU op")
    assert found.status == "degraded"


def test_calls_that_overlap_in_part_on_one_thread_mean_a_clock_that_jumped() -> None:
    nested = [call(0, 10, 1), call(2, 8, 2, name="cuLaunchKernel"), op(20, 30, 1)]
    apart = [call(10, 20, 3), call(5, 15, 4, tid=2)]
    assert messages(health(*STEPS, *nested, *apart), "overlapping_calls") == []
    found = health(*STEPS, *nested, *apart, call(15, 25, 5))
    (said,) = messages(found, "overlapping_calls")
    assert said.startswith("1 of 5 API calls begin inside another")
    assert found.status == "degraded"


def test_kernel_launches_without_a_kernel_are_counted() -> None:
    """A driver call below a runtime call is one launch; what is recorded into a graph never ran."""
    ran = [call(0, 10, 1), call(2, 8, 1, name="cuLaunchKernel"), op(20, 30, 1)]
    capturing = [
        call(30, 31, 7, name="cudaStreamBeginCapture_v10000"),
        call(32, 33, 8),
        call(34, 35, 9, tid=2),
        op(50, 60, 9),
        call(36, 37, 10, name="cudaStreamEndCapture"),
    ]
    assert messages(health(*STEPS, *ran, *capturing), "launches_without_ops") == []
    cut = [
        call(70, 71, 11),
        call(72, 73, 12, name="cudaLaunchCooperativeKernel"),
        call(74, 75, 13, name="cudaMemcpyAsync"),
        call(76, 77, 14, name="cudaGraphLaunch"),
    ]
    found = health(*STEPS, *ran, *capturing, *cut)
    (said,) = messages(found, "launches_without_ops")
    assert said.startswith("2 of 4 kernel launches have no kernel")
    assert "CUPTI" not in said
    assert found.status == "degraded"


@pytest.mark.parametrize(
    ("name", "most"), [("cudaLaunchKernel", True), ("cudaGraphLaunch", True), ("cudaFree", False)]
)
def test_no_bound_is_named_where_most_launches_lost_their_kernels(name: str, most: bool) -> None:
    """A window in which CUPTI kept the copies and no kernel looks like a host that was late."""
    copies = [call(90, 91, 40, name="cudaMemcpyAsync"), op(92, 93, 40, name="Memcpy DtoH")]
    kept = [call(20, 21, 41), op(25, 30, 41)]
    lost = [call(30 + number, 31 + number, number, name=name) for number in range(2, 5)]
    report = analyze(trace_of(*copies, *kept, *lost)).report
    assert bool(messages(report.health, "lost_kernels")) == most
    assert (report.answer.bound == "unknown") == most
    assert ("kernels of most launches are missing" in report.answer.because[0]) == most
    # What fills the window decides all the same.
    busy = analyze(trace_of(*copies, *kept, *lost, call(94, 95, 50), op(96, 9_000, 50))).report
    assert busy.answer.bound == "kernels"
    few = analyze(trace_of(*copies, *kept, lost[0])).report
    assert messages(few.health, "lost_kernels") == []
    assert few.answer.bound != "unknown"


def test_launches_lost_at_the_head_of_the_window_are_a_fault_of_cupti() -> None:
    found = health(*STEPS, call(0, 1, 1), call(2, 3, 2), call(4, 5, 3), op(20, 30, 3))
    (said,) = messages(found, "launches_without_ops")
    assert said.startswith("2 of 3 kernel launches have no kernel")
    assert said.endswith(
        "CUPTI of CUDA 12.6 Update 2 to 13.1 loses some, above all at the head of a window"
    )


def test_replays_with_fewer_ops_than_others_of_their_graph_are_counted() -> None:
    def replay(at: int, graph: int, nodes: int) -> list[Event]:
        ops = [
            op(at + 3 * n, at + 3 * n + 2, at, **{"graph node id": graph << 32 | n})
            for n in range(1, nodes + 1)
        ]
        return [call(at, at + 1, at, name="cudaGraphLaunch"), *ops]

    whole = [*replay(10, 7, 5), *replay(40, 7, 5), *replay(80, 8, 2), *replay(120, 8, 2)]
    assert messages(health(*STEPS, *whole), "incomplete_replays") == []
    found = health(*STEPS, *whole, *replay(140, 7, 3), *replay(160, 7, 4), *replay(180, 8, 1))
    (said,) = messages(found, "incomplete_replays")
    assert said.startswith("3 of 7 graph launches have fewer ops than others of their graph (4 in")
    assert found.status == "degraded"
