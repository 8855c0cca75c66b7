"""The points, ceilings and moments that the limit is drawn from are those of the report."""

import msgspec
import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.roofline_model import roofline_model
from decodescope.analyzer.reports.step_figures import live_bandwidth, window_bandwidth
from decodescope.analyzer.text.formatting import bytes_size, duration
from tests.helpers import scripted
from tests.helpers.read_once import analysed_once


def recorded(variant):
    path = next(path for path in bundled_recordings() if path.stem.endswith(f"-{variant}"))
    return analysed_once(path).report


@pytest.fixture(scope="module")
def eager():
    return recorded("eager")


def test_points_are_the_kernels_with_known_work(eager):
    model = roofline_model(eager)
    parts = {part.kernel: part for part in eager.answer.parts if part.bytes is not None}
    known = {kernel.name: kernel.roofline or parts.get(kernel.name) for kernel in eager.kernels}
    drawn = [name for name, work in known.items() if work is not None and work.flops]
    assert [point.name for point in model.points] == drawn
    assert model.unknown == list(known.values()).count(None)
    for point, kernel in pairs(model, eager):
        assert point.intensity * kernel.roofline.bytes_per_s == pytest.approx(point.flops_per_s)
        assert point.ns == kernel.total_ns
    assert model.points[0].family == "matmul"


def pairs(model, report):
    """The points of the kernels whose shapes say their work, with these kernels."""
    points = {point.name: point for point in model.points}
    shaped = [kernel for kernel in report.kernels if kernel.roofline and kernel.roofline.flops]
    assert shaped
    return [(points[kernel.name], kernel) for kernel in shaped]


def test_a_kernel_without_shapes_has_the_work_of_its_parts():
    report = recorded("fused+graph")
    assert all(kernel.roofline is None for kernel in report.kernels)
    model = roofline_model(report)
    points = {point.name: point for point in model.points}
    assert model.unknown == 0
    assert points.keys() == {
        part.kernel for part in report.answer.parts if part.kernel and part.flops
    }
    for name, point in points.items():
        own = [part for part in report.answer.parts if part.kernel == name]
        moved, flops, ns, limit_ns = (
            sum(getattr(part, key) for part in own) for key in ("bytes", "flops", "ns", "limit_ns")
        )
        assert point.intensity == pytest.approx(flops / moved)
        assert point.flops_per_s == pytest.approx(flops / ns * 1e9)
        assert point.share_of_limit == pytest.approx(limit_ns / ns)
    cost = msgspec.structs.replace(report.step_cost, source="guess")
    guessed = roofline_model(msgspec.structs.replace(report, step_cost=cost))
    assert (guessed.points, guessed.unknown) == ((), len(report.kernels))


def test_no_point_is_over_its_roof_by_more_than_its_share_says(eager):
    model = roofline_model(eager)
    bandwidth, compute = model.bandwidths[0].per_s, model.computes[0].per_s
    for point, _ in pairs(model, eager):
        roof = min(bandwidth * point.intensity, compute)
        assert point.flops_per_s / roof == pytest.approx(point.share_of_limit)


def test_the_whole_step_is_a_point_of_its_own(eager):
    step, cost = roofline_model(eager).step, eager.step_cost
    assert step is not None
    assert step.ns == eager.answer.unprofiled_step_ns
    assert step.intensity == pytest.approx(cost.flops_per_step / cost.bytes_per_step)
    unknown = msgspec.structs.replace(cost, flops_per_step=None)
    assert roofline_model(msgspec.structs.replace(eager, step_cost=unknown)).step is None


def test_ceilings_name_their_source(eager):
    model = roofline_model(eager)
    assert [one.label for one in model.bandwidths] == ["measured", "datasheet"]
    assert [one.label for one in model.computes] == ["datasheet bf16"]
    sheet_only = msgspec.structs.replace(eager, step_cost=None)
    model = roofline_model(sheet_only)
    assert [one.label for one in model.bandwidths] == ["datasheet"]
    assert {"datasheet bf16", "datasheet fp32"} <= {one.label for one in model.computes}
    assert roofline_model(msgspec.structs.replace(sheet_only, devices=())).computes == ()


def test_the_bandwidth_is_of_the_unprofiled_step(eager):
    cost, step_ns = eager.step_cost, eager.answer.unprofiled_step_ns
    used = window_bandwidth(eager)
    assert used.achieved_bytes_per_s == pytest.approx(cost.bytes_per_step * 1e9 / step_ns)
    answer = msgspec.structs.replace(eager.answer, unprofiled_step_ns=None)
    profiled = window_bandwidth(msgspec.structs.replace(eager, answer=answer))
    assert profiled.mbu == pytest.approx(used.mbu * step_ns / eager.answer.step_ns)
    stats = scripted.stats(1)
    live = live_bandwidth(stats, scripted.hello())
    assert live.achieved_bytes_per_s == pytest.approx(
        stats.bytes_per_step * 1e9 / stats.step_p50_ns
    )
    assert live_bandwidth(None, scripted.hello()) is None
    assert window_bandwidth(msgspec.structs.replace(eager, step_cost=None)) is None


def test_the_limit_names_its_bytes_and_its_peak(eager):
    answer, cost = eager.answer, eager.step_cost
    (reason,) = (one for one in answer.because if one.startswith("the limit is"))
    assert (answer.bound, answer.because[-1]) == ("host", reason)
    assert reason.startswith(f"the limit is {duration(answer.limit_ns)}, ")
    assert reason.endswith(
        f"({bytes_size(cost.bytes_per_step)} at {bytes_size(cost.peak_bytes_per_s)}/s, measured)"
    )
