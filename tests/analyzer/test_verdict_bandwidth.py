"""Bandwidth arithmetic, datasheet look-ups and the verdict's rules at their edges."""

import msgspec
import pytest

from decodescope.analyzer.bandwidth import bandwidth, datasheet_peak, datasheet_peak_bytes_per_s
from decodescope.analyzer.gaps import HOST_WAIT_LABELS
from decodescope.analyzer.report import (
    GAP_CLASSES,
    CaptureInfo,
    DeviceReport,
    GapTotal,
    LaunchReport,
)
from decodescope.analyzer.verdict import verdict


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
