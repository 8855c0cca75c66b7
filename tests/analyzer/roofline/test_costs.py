"""The least time of work, and `--peak`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.step_work import RoleWork
from decodescope.analyzer.modelling.weight_formats import weight_format
from decodescope.analyzer.roofline.peaks import DatasheetPeak, datasheet_peak, parse_peak
from decodescope.analyzer.roofline.roofline import (
    UNKNOWN,
    Limit,
    OpWork,
    compute_dtype,
    limited_work,
    limits_by_shapes,
    product_dtype,
)
from tests.helpers.kineto_events import op, trace_of

PEAK = DatasheetPeak(4e12, "a sheet", {"bf16": 1e15, "fp8": 2e15})


def limit(work: RoleWork, peak: DatasheetPeak | None, dtype: str = "bf16") -> Limit | None:
    limited = limited_work(work, peak, dtype)
    assert (limited.bytes, limited.flops) == (work.bytes, work.flops)
    return limited.limit


def test_the_slower_of_memory_and_arithmetic_decides() -> None:
    assert limit(RoleWork(4_000_000, 0, 0, 1_000_000), PEAK) == Limit(1000, "memory")
    assert limit(RoleWork(4_000_000, 0, 0, 2_000_000_000), PEAK) == Limit(2000, "compute")
    assert limit(RoleWork(1_000_000, 2_000_000, 1_000_000), PEAK) == Limit(1000, "memory")
    assert limit(RoleWork(0, 0, 0, 2_000_000_000), PEAK, "fp8") == Limit(1000, "compute")


def test_an_unknown_rate_is_the_highest_known_one_and_none_leaves_memory() -> None:
    assert limit(RoleWork(0, 0, 0, 2_000_000_000), PEAK, "fp16") == Limit(1000, "compute")
    bandwidth = DatasheetPeak(4e12, "--peak", {})
    assert limit(RoleWork(4, 0, 0, 10**15), bandwidth) == Limit(0, "memory")


def test_no_peak_gives_no_limit_and_no_work_takes_no_time() -> None:
    assert limit(RoleWork(4, 0, 0, 4), None) is None
    assert limit(RoleWork(4, 0, 0, 4), DatasheetPeak(0.0, "none", {})) is None
    assert limit(RoleWork(), PEAK) == Limit(0, "memory")


def test_units_for_four_bits_are_twice_as_fast_where_there_are_any() -> None:
    work = RoleWork(0, 0, 0, 9 * 10**15)
    found = [
        limit(work, datasheet_peak(name), "fp4")
        for name in ("NVIDIA B200", "NVIDIA GB200", "AMD Instinct MI355X", "NVIDIA H100 80GB HBM3")
    ]
    # An H100 has none: its fastest units have 8 bits.
    assert [one.ns for one in found if one] == pytest.approx(
        [1e9, 0.9e9, 0.894e9, 9e9 / 1.979], rel=1e-3
    )


@pytest.mark.parametrize("seed", range(4))
def test_limits_by_shapes_are_those_of_each_op(seed: int) -> None:
    """Against a loop over the ops."""
    rng = np.random.default_rng(seed)
    names = ["gemm_e4m3", "sm90_gemm_bf16", "gemm_of_something"]
    events = [
        op(10 * index, 10 * index + int(rng.integers(1, 10)), name=str(rng.choice(names)))
        for index in range(60)
    ]
    trace = trace_of(*events)
    moved, flops = rng.integers(0, 40_000, 60), rng.integers(0, 20_000_000, 60)
    moved[rng.random(60) < 0.2] = UNKNOWN
    part, ns, ops = rng.integers(0, 3, 60), trace.ops.length_ns, np.arange(60)
    # Of a fourth part, little is known.
    part[:20], moved[:19] = 3, UNKNOWN
    expected: dict[int, list[float]] = {}
    for index in range(60):
        if moved[index] == UNKNOWN:
            continue
        rate = 1e15 if "bf16" in trace.names[trace.ops.name[index]] else 2e15
        least = max(moved[index] / 4e12, flops[index] / rate) * 1e9
        if part[index] < 3:
            expected.setdefault(int(part[index]), []).append(min(least, float(ns[index])))
    works = limits_by_shapes(trace, OpWork(moved, flops), ops, ns, part, PEAK)
    assert works.keys() == expected.keys()
    for number, each in expected.items():
        found = works[number].limit
        assert found is not None
        assert found.ns == int(sum(each)) <= ns[part == number].sum()
        assert works[number].bytes == moved[(part == number) & (moved != UNKNOWN)].sum()
    without = limits_by_shapes(trace, OpWork(moved, flops), ops, ns, part, None)
    assert all(work.limit is None and work.bytes for work in without.values())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("nvjet_sm90_tst_64x8", "bf16"),
        ("nvjet_sm100_qqtst_128x256", "fp8"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA", "bf16"),
        ("Cijk_Alik_Bljk_F8BS_BH", "fp8"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256", "fp4"),
        ("cutlass_80_tensorop_s16816gemm_f16_128x64", "bf16"),
        ("ampere_sgemm_128x64_tn", None),
        ("", None),
    ],
)
def test_dtypes_of_products_by_name(name: str, dtype: str | None) -> None:
    assert product_dtype(name) == dtype


def test_the_matrix_units_that_weights_can_use() -> None:
    assert compute_dtype(weight_format("fp8"), "bf16") == "fp8"
    assert compute_dtype(weight_format("int4"), "fp16") == "fp16"
    assert compute_dtype(weight_format("mxfp4"), "bf16") == "fp4"
    assert compute_dtype(weight_format("bf16"), "bf16") == "bf16"


@pytest.mark.parametrize(
    ("text", "gigabytes_per_s", "teraflops"),
    [
        ("4682GB/s", 4682, {}),
        ("5.3TB/s", 5300, {}),
        ("5.3 TB/s", 5300, {}),
        ("300gb/s", 300, {}),
        ("4682GBps", 4682, {}),
        ("1.6e3GB/s", 1600, {}),
        ("1TiB/s", 1099.511627776, {}),
        ("5.3TB/s,1307TFLOP/s", 5300, dict.fromkeys(("bf16", "fp16", "fp8", "fp32"), 1307)),
        ("1.3PFLOPS, 5.3TB/s", 5300, dict.fromkeys(("bf16", "fp16", "fp8", "fp32"), 1300)),
        ("5.3TB/s,bf16=1307.4TFLOP/s,fp8=2614.9TFLOPS", 5300, {"bf16": 1307.4, "fp8": 2614.9}),
        (
            "5.3TB/s,fp8=2000TFLOP/s,1000TFLOP/s",
            5300,
            {"bf16": 1000, "fp16": 1000, "fp8": 2000, "fp32": 1000},
        ),
    ],
)
def test_given_peaks(text: str, gigabytes_per_s: float, teraflops: dict[str, float]) -> None:
    found = parse_peak(text)
    assert found.bytes_per_s == pytest.approx(gigabytes_per_s * 1e9)
    assert found.flops_per_s == pytest.approx({k: v * 1e12 for k, v in teraflops.items()})
    assert found.source == "--peak"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5.3",
        "TB/s",
        "5.3TB",
        "-5TB/s",
        "0GB/s",
        "1e99TB/s",
        "nanTB/s",
        "infTB/s",
        "5.3TB/s,5.3TB/s",
        "1307TFLOP/s",
        "5.3TB/s,fp4=1TFLOP/s",
        "bf16=5.3TB/s",
        "5.3Tb/s",
        "5.3TB/s;1PFLOP/s",
        "5.3TB/s,",
        "\x1b[2J",
        "9" * 400 + "GB/s",
        "5.3TB/h",
        "\uff15TB/s\n",
    ],
)
def test_other_peaks_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="4682GB/s") as error:
        parse_peak(text)
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@given(st.floats(1e-2, 1e4))
def test_a_given_bandwidth_is_that_bandwidth(terabytes: float) -> None:
    found = parse_peak(f"{terabytes:.6f}TB/s")
    assert found.bytes_per_s == pytest.approx(terabytes * 1e12, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gigabytes_per_s", "bf16_teraflops"),
    [
        ("AMD Instinct MI355X", 8000, 2516.6),
        ("AMD Instinct MI350X", 8000, 2306.9),
        ("AMD Instinct MI325X", 6000, 1307.4),
        ("AMD Instinct MI300X VF", 5300, 1307.4),
        ("AMD Instinct MI300A", 5300, 980.6),
        # Each die is a device.
        ("AMD Instinct MI250X", 1638.4, 191.5),
        ("AMD Instinct MI250X/MI250", 1638.4, 191.5),
        ("AMD Instinct MI210", 1638.4, 181),
        ("AMD Instinct MI100", 1228.8, 92.3),
    ],
)
def test_amd_devices(name: str, gigabytes_per_s: float, bf16_teraflops: float) -> None:
    peak = datasheet_peak(name)
    assert peak is not None
    assert peak.bytes_per_s == pytest.approx(gigabytes_per_s * 1e9)
    assert peak.flops_per_s["bf16"] == pytest.approx(bf16_teraflops * 1e12)
    assert peak.source.startswith("AMD Instinct")


def test_a_device_without_a_name_has_no_peak() -> None:
    assert datasheet_peak("") is None
    assert datasheet_peak("AMD Instinct MI308X") is None
