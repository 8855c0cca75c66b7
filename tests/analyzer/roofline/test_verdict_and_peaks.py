"""Bandwidth arithmetic, datasheet look-ups and the verdict's rules at their edges."""

import msgspec
import pytest

from decodescope.analyzer.roofline.peaks import (
    bandwidth,
    datasheet_peak,
    datasheet_peak_bytes_per_s,
)
from decodescope.analyzer.roofline.verdict import verdict
from decodescope.analyzer.schema.launch_report import LaunchReport
from decodescope.analyzer.schema.report import GAP_CLASSES, CaptureInfo, DeviceReport, GapTotal
from decodescope.analyzer.timing.host_waits import HOST_WAIT_LABELS


@pytest.mark.parametrize(
    ("name", "gigabytes_per_s"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA H100 NVL", 3900),
        ("NVIDIA B200", 8000),
        ("NVIDIA A100-SXM4-40GB", 1555),
        ("NVIDIA A100-PCIE-40GB", 1555),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA A100 80GB PCIe", 1935),
        ("NVIDIA L4", 300),
        ("NVIDIA L40S", 864),
        ("NVIDIA A10", 600),
        ("NVIDIA A10G", 600),
        ("Tesla T4", 320),
        ("Tesla V100-SXM2-16GB", 900),
        ("NVIDIA GeForce RTX 3090", 936),
        ("NVIDIA GeForce RTX 4090", 1008),
        ("NVIDIA GeForce RTX 5090", 1792),
        ("AMD Instinct MI300X", 5300),
    ],
)
def test_datasheet_peaks(name: str, gigabytes_per_s: int) -> None:
    peak = datasheet_peak(name)
    assert peak is not None
    assert peak.bytes_per_s == gigabytes_per_s * 1e9
    assert "NVIDIA" in peak.source or "AMD" in peak.source


@pytest.mark.parametrize(
    ("name", "dtype", "teraflops"),
    [
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H200", "fp8", 1979),
        ("NVIDIA H200", "fp32", 67),
        ("NVIDIA H200 NVL", "fp16", 835.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "fp8", None),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("NVIDIA A10G", "bf16", None),
        ("AMD Instinct MI300X", "fp8", 2614.9),
        ("Somebody's GPU", "bf16", None),
    ],
)
def test_datasheet_peaks_of_arithmetic(name: str, dtype: str, teraflops: float | None) -> None:
    sheet = datasheet_peak(name)
    peak = sheet.flops_per_s.get(dtype) if sheet else None
    assert peak == (None if teraflops is None else pytest.approx(teraflops * 1e12))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "AMD EPYC",
        "NVIDIA A100-PG509-200",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "H2000",
        "L400",
    ],
)
def test_no_peak_is_given_for_a_device_that_is_not_certain(name: str) -> None:
    assert datasheet_peak_bytes_per_s(name) is None


def test_mbu_is_of_the_measured_peak_where_there_is_one() -> None:
    both = bandwidth(2_400_000_000, 1_000_000, 4e12, 4.8e12)
    assert (both.achieved_bytes_per_s, both.mbu, both.mbu_of) == (2.4e12, 0.6, "measured")
    sheet = bandwidth(2_400_000_000, 1_000_000, None, 4.8e12)
    assert (sheet.mbu, sheet.mbu_of) == (0.5, "datasheet")
    neither = bandwidth(2_400_000_000, 1_000_000, None, None)
    assert (neither.mbu, neither.mbu_of) == (None, None)
    assert bandwidth(5, 0, None, 1.0).mbu == 0.0


def device(late_ns: int, window_ns: int = 1000) -> DeviceReport:
    gaps = dict.fromkeys(GAP_CLASSES, GapTotal(0, 0, 0))
    half = late_ns // 2
    gaps["host_wait"] = GapTotal(1, half, half)
    gaps["launch_latency"] = GapTotal(1, late_ns - half, late_ns - half)
    return DeviceReport(
        device=0, name="NVIDIA H200", gpu_ops=2, kernels=2, window_ns=window_ns,
        busy_ns=window_ns - late_ns, idle_ns=late_ns, overlap_ns=0, gaps=gaps,
        host_wait=dict.fromkeys(HOST_WAIT_LABELS, GapTotal(0, 0, 0)),
        kernel_floor_ns=None, kernel_floor_estimated=False,
    )  # fmt: skip


def launches(depth: float | None) -> LaunchReport:
    return LaunchReport(
        calls=1, by_api={}, graph_launches=0, gpu_ops_per_graph_launch=(), api_ns=None,
        queue_ns=None, launch_latency_ns=None, median_queue_depth=depth,
    )  # fmt: skip


CAPTURE = CaptureInfo(
    device="cuda", device_name="NVIDIA H200", model="m", weights="random", variant="eager",
    dtype="bf16", batch=1, context=4, position=4, steps=2, bytes_per_step=4_800_000,
    unprofiled_step_ns=None, decodescope_version="0",
)  # fmt: skip
FAST, SLOW = 1000, 10_000


@pytest.mark.parametrize(
    ("late_ns", "depth", "capture", "step_ns", "bound"),
    [
        (151, 1.0, None, None, "launch"),
        (150, 1.0, None, None, "unknown"),
        (151, 1.5, None, None, "unknown"),
        (151, 0.0, CAPTURE, SLOW, "launch"),
        (151, 1.0, CAPTURE, FAST, "mixed"),
        (0, 1.0, CAPTURE, FAST, "memory"),
        (0, 9.0, CAPTURE, 1666, "memory"),
        (0, 9.0, CAPTURE, 1667, "mixed"),
        (0, 9.0, CAPTURE, None, "unknown"),
        (500, None, CAPTURE, SLOW, "unknown"),
    ],
)
def test_the_rules_of_the_verdict(
    late_ns: int,
    depth: float | None,
    capture: CaptureInfo | None,
    step_ns: int | None,
    bound: str,
) -> None:
    found = verdict([device(late_ns)], launches(depth), capture, step_ns)
    assert found.bound == bound
    assert f"{late_ns / 10:.1f}% of the window" in found.because[0]


def with_flops(step_share: float, **changes: object) -> CaptureInfo:
    """A capture whose step of `SLOW` ns does that share of an H200's bf16 peak."""
    flops = round(step_share * 989.5e12 * SLOW / 1e9)
    return msgspec.structs.replace(CAPTURE, flops_per_step=flops, **changes)


def test_arithmetic_at_most_of_its_peak_is_compute_bound() -> None:
    found = verdict([device(0)], launches(9), with_flops(0.601), SLOW)
    assert found.bound == "compute"
    assert "60.1% of the dense bf16 peak (NVIDIA H200 datasheet), at least 60%" in found.because[-1]
    below = verdict([device(0)], launches(9), with_flops(0.599), SLOW)
    assert below.bound == "mixed"
    assert any("59.9% of the dense bf16 peak" in reason for reason in below.because)


def test_two_bounds_at_once_are_mixed() -> None:
    assert verdict([device(500)], launches(1), with_flops(0.7), SLOW).bound == "mixed"
    measured = with_flops(0.7, measured_peak_bytes_per_s=5e11)
    assert verdict([device(0)], launches(9), measured, SLOW).bound == "mixed"


def test_arithmetic_without_a_peak_decides_nothing_and_says_so() -> None:
    found = verdict([device(0)], launches(9), with_flops(0.9, dtype="int4"), SLOW)
    assert found.bound == "mixed"
    assert any("no int4 peak known for NVIDIA H200" in reason for reason in found.because)


def test_a_window_that_nothing_bounds_says_what_dominates() -> None:
    busy = verdict([device(140)], launches(9), CAPTURE, SLOW)
    assert busy.bound == "mixed"
    assert busy.because[-1] == (
        "kernels are busy 86.0% of the window but a step reads at 10.0% of the peak: "
        "the kernels themselves are inefficient"
    )
    idle = verdict([device(700)], launches(9), CAPTURE, SLOW)
    assert idle.bound == "mixed"
    assert "idle 70.0% of the window, most of it host_wait (35.0% " in idle.because[-1]


def test_a_measured_peak_replaces_the_datasheets() -> None:
    assert verdict([device(0)], launches(1), CAPTURE, SLOW).bound == "mixed"
    measured = msgspec.structs.replace(CAPTURE, measured_peak_bytes_per_s=8e11)
    found = verdict([device(0)], launches(1), measured, SLOW)
    assert found.bound == "memory"
    assert "60.0% of the peak (measured)" in found.because[-1]


def test_an_unknown_device_has_no_bandwidth() -> None:
    unknown = msgspec.structs.replace(CAPTURE, device_name="Somebody's GPU")
    found = verdict([device(0)], launches(1), unknown, FAST)
    assert found.bound == "unknown"
    assert "no peak known for Somebody's GPU" in found.because[-1]


def test_no_window_and_no_gpu() -> None:
    assert verdict([], launches(None), None, None).because == ("no GPU activity in this trace",)
    on_cpu = msgspec.structs.replace(CAPTURE, device="cpu")
    assert verdict([device(900)], launches(None), on_cpu, FAST).bound == "unknown"
