"""Bandwidth arithmetic and datasheet look-ups."""

import pytest

from decodescope.analyzer.roofline.peaks import (
    bandwidth,
    datasheet_peak,
    datasheet_peak_bytes_per_s,
)


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
