"""The work of kernels, and how close they come to the device's peaks."""

import dataclasses

import numpy as np
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.roofline.roofline import UNKNOWN, op_work
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp
from decodescope.analyzer.schema.kernel_report import KernelReport, Roofline
from decodescope.analyzer.trace import OperatorWork, Trace
from tests.helpers.kineto_events import Event, call, op, span, trace_of

H200 = [{"id": 0, "name": "NVIDIA H200"}]
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
    "unprofiled_step_ns": None,
    "decodescope_version": "0",
}


def with_work(trace: Trace, *rows: tuple[int, int, int]) -> Trace:
    """`rows` are (external id, bytes, FLOPs), sorted."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return dataclasses.replace(trace, work=OperatorWork(*columns.T))


def products(*lengths: int, name: str = "gemm", **keys: object) -> Trace:
    """One product for each length, with external ids from 101, one after the other."""
    events: list[Event] = [span(0, 9, "decode_step")]
    for number, length in enumerate(lengths, start=1):
        at = 1000 * number
        events += [
            call(number, number, number),
            op(at, at + length, number, name=name, **{"External id": 100 + number}),
        ]
    return trace_of(*events, deviceProperties=H200, **keys)


def kernel(trace: Trace, name: str = "gemm") -> KernelReport:
    return next(k for k in analyze(trace).report.kernels if k.name == name)


def roofline(trace: Trace, name: str = "gemm") -> Roofline:
    found = kernel(trace, name).roofline
    assert found is not None
    return found


def test_bytes_and_flops_over_the_time_of_the_calls_that_have_them() -> None:
    trace = with_work(products(100, 300, 50), (101, 240_000, 480_000), (102, 480_000, 960_000))
    found = roofline(trace)
    assert (found.calls, found.total_ns) == (2, 400)
    assert (found.bytes, found.flops) == (720_000, 1_440_000)
    assert found.bytes_per_s == pytest.approx(720_000 / 400e-9)
    assert found.flops_per_s == pytest.approx(1_440_000 / 400e-9)
    assert found.limit == "memory"
    assert found.share_of_limit == pytest.approx(720_000 / 4.8e12 / 400e-9)
    assert kernel(trace).count == 3


def test_the_longer_of_both_limits_counts() -> None:
    work = (101, 480, 9_895_000)
    found = roofline(with_work(products(100, decodescope=CAPTURE), work))
    assert found.limit == "compute"
    assert found.share_of_limit == pytest.approx(10 / 100)
    measured = {**CAPTURE, "measured_peak_bytes_per_s": 2.4e10}
    found = roofline(with_work(products(100, decodescope=measured), work))
    assert found.limit == "memory"
    assert found.share_of_limit == pytest.approx(20 / 100)


def test_without_a_dtype_memory_limits_only_where_it_does_at_the_slowest_dtype() -> None:
    """An H200 does 67 TFLOP/s in fp32 and reads 4.8 TB/s: as long for 13.96 FLOPs as for 1 byte."""
    below = roofline(with_work(products(100), (101, 1000, 13_950)))
    assert below.limit == "memory"
    assert below.share_of_limit == pytest.approx(1000 / 4.8e12 / 100e-9)
    above = roofline(with_work(products(100), (101, 1000, 13_960)))
    assert (above.limit, above.share_of_limit) == (None, None)


def test_without_a_peak_nothing_limits() -> None:
    unknown = dataclasses.replace(products(100), device_names={})
    found = roofline(with_work(unknown, (101, 480, 960)))
    assert (found.limit, found.share_of_limit) == (None, None)
    assert found.bytes_per_s == pytest.approx(4.8e9)


def test_a_kernel_that_took_no_time_has_no_share() -> None:
    found = roofline(with_work(products(0), (101, 480, 960)))
    assert (found.total_ns, found.bytes_per_s, found.share_of_limit) == (0, 0.0, None)


def test_an_operators_work_counts_once_for_its_longest_kernel() -> None:
    ids = {"External id": 7}
    trace = trace_of(
        call(0, 1, 1),
        op(10, 20, 1, name="zero", cat="gpu_memset", **ids),
        call(1, 2, 2),
        op(20, 50, 2, name="gemm", **ids),
        call(2, 3, 3),
        op(50, 59, 3, name="reduce", **ids),
        call(3, 4, 4),
        op(60, 160, 4, name="other", **{"External id": 8}),
        deviceProperties=H200,
    )
    known = with_work(trace, (7, 1000, 2000))
    assert roofline(known).bytes == 1000
    assert [kernel(known, name).roofline for name in ("reduce", "other")] == [None, None]


def test_a_trace_without_shapes_has_no_rooflines() -> None:
    assert kernel(products(100)).roofline is None
    assert kernel(with_work(products(100), (105, 1, 1))).roofline is None


def test_an_op_of_a_replay_has_the_work_of_its_partner_in_the_reference() -> None:
    rows = (
        ReferenceOp(stream=7, name="a", path="decode_step", bytes=None, flops=None),
        ReferenceOp(stream=7, name="gemm", path="decode_step", bytes=640, flops=1280),
    )
    trace = dataclasses.replace(products(100, 200, 300), reference=GraphReference(rows))
    found = op_work(trace, np.array([1, 0, -1]))
    assert found.bytes.tolist() == [640, UNKNOWN, UNKNOWN]
    assert found.flops.tolist() == [1280, UNKNOWN, UNKNOWN]
    own = op_work(with_work(trace, (103, 11, 22)), np.array([1, 0, -1]))
    assert own.bytes.tolist() == [640, UNKNOWN, 11]
