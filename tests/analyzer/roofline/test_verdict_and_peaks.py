"""Bandwidth arithmetic, datasheet look-ups and the verdict's rules at their edges."""

from collections.abc import Sequence

import msgspec
import pytest

from decodescope.analyzer.roofline.peaks import (
    bandwidth,
    datasheet_peak,
    datasheet_peak_bytes_per_s,
)
from decodescope.analyzer.roofline.roofline import captured_cost
from decodescope.analyzer.roofline.verdict import Evidence, verdict
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    CaptureInfo,
    DeviceReport,
    GapTotal,
    Observer,
    StepReport,
    Verdict,
)
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


def judged(
    window: DeviceReport | None, depth: float | None, capture: CaptureInfo | None,
    step_ns: int | None = None, steps: Sequence[StepReport] = (), profiled_ns: int | None = None,
) -> Verdict:  # fmt: skip
    ratio = profiled_ns / step_ns if profiled_ns and step_ns else None
    observer = Observer(step_ns, profiled_ns, ratio) if step_ns else None
    devices = [window] if window else []
    cost = captured_cost(capture) if capture else None
    return verdict(Evidence(devices, launches(depth), steps, capture, observer, cost=cost))


def test_a_rate_says_of_which_step_it_is() -> None:
    observer = Observer(None, 2000, None)
    cost = captured_cost(CAPTURE)
    found = verdict(Evidence([device(0)], launches(9.0), (), CAPTURE, observer, cost=cost))
    (reason,) = (one for one in found.because if "of the peak" in one)
    assert reason.startswith("a profiled step (2.00 µs) reads 2400.0 GB/s, 50.0%")


@pytest.mark.parametrize(
    ("late_ns", "depth", "capture", "step_ns", "bound"),
    [
        (151, 1.0, None, None, "launch"),
        (150, 1.0, None, None, "unknown"),
        (151, 1.5, None, None, "unknown"),
        (151, 0.0, CAPTURE, SLOW, "launch"),
        (151, 1.0, CAPTURE, FAST, "memory"),
        (0, 1.0, CAPTURE, FAST, "memory"),
        (0, 9.0, CAPTURE, 1666, "memory"),
        (0, 9.0, CAPTURE, 1667, "kernels"),
        (0, 9.0, CAPTURE, None, "unknown"),
        (500, None, CAPTURE, SLOW, "kernels"),
    ],
)
def test_the_rules_of_the_verdict(
    late_ns: int,
    depth: float | None,
    capture: CaptureInfo | None,
    step_ns: int | None,
    bound: str,
) -> None:
    found = judged(device(late_ns), depth, capture, step_ns)
    assert found.bound == bound
    assert any(f"{late_ns / 10:.1f}% of the window" in reason for reason in found.because)
    first = {"launch": "host_wait + ", "memory": "an unprofiled", "kernels": "kernels reach "}
    assert found.because[0].startswith(first.get(bound, "bandwidth unknown: "))
    assert found.next


@pytest.mark.parametrize(
    ("variant", "less"),
    [
        ("fused+graph", "FP8 or INT8 weights, K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+kv_fp8_e5m2", "FP8 or INT8 weights, a shorter KV cache"),
        ("fused+graph+fp8_e4m3", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+int8+head16", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("torchao-fp8", "K and V in FP8 (+kv_fp8_e4m3), a shorter KV cache"),
        ("fused+w8a8+kv_fp8_e4m3", "a shorter KV cache"),
    ],
)
def test_advice_leaves_out_what_a_memory_bound_step_does_already(variant: str, less: str) -> None:
    capture = msgspec.structs.replace(CAPTURE, variant=variant)
    found = judged(device(0), 9, capture, FAST)
    assert found.bound == "memory"
    assert found.next == (
        f"only fewer bytes make it faster: {less}; a larger batch reads the weights once for more "
        "tokens",
    )


def with_flops(step_share: float, **changes: object) -> CaptureInfo:
    """A capture whose step of `SLOW` ns does that share of an H200's bf16 peak."""
    flops = round(step_share * 989.5e12 * SLOW / 1e9)
    return msgspec.structs.replace(CAPTURE, flops_per_step=flops, **changes)


def test_arithmetic_at_most_of_its_peak_is_compute_bound() -> None:
    found = judged(device(0), 9, with_flops(0.601), SLOW)
    assert found.bound == "compute"
    assert "60.1% of the dense bf16 peak (NVIDIA H200 datasheet), at least 60%" in found.because[0]
    below = judged(device(0), 9, with_flops(0.599), SLOW)
    assert below.bound == "kernels"
    assert any("59.9% of the dense bf16 peak" in reason for reason in below.because)


def test_of_two_bounds_the_one_nearer_to_its_peak_counts() -> None:
    assert judged(device(350), 1, with_flops(0.7), SLOW).bound == "compute"
    measured = with_flops(0.7, measured_peak_bytes_per_s=5e11)
    assert judged(device(0), 9, measured, SLOW).bound == "memory"


def test_arithmetic_without_a_peak_decides_nothing_and_says_so() -> None:
    found = judged(device(0), 9, with_flops(0.9, dtype="int4"), SLOW)
    assert found.bound == "kernels"
    assert any("no int4 peak known for NVIDIA H200" in reason for reason in found.because)


def test_kernels_below_the_bandwidth_say_what_they_reach_and_where_the_rest_is() -> None:
    window = device(100)
    window.gaps["graph_internal"] = GapTotal(9, 100, 20)
    window = msgspec.structs.replace(window, busy_ns=800, idle_ns=200)
    found = judged(window, 1, CAPTURE, 3571)
    assert found.bound == "kernels"
    assert found.because[0] == (
        "kernels reach 35% of the bandwidth while they run; 10% of the window is idle inside the "
        "graph; 5% of the window is waiting for the host; 5% of the window is idle after launch "
        "calls"
    )
    assert any("programmatic dependent launch" in advice for advice in found.next)


def test_exposed_communication_that_is_the_largest_part_is_the_bound() -> None:
    window = msgspec.structs.replace(device(200), busy_ns=800, exposed_communication_ns=401)
    found = judged(window, 1, None)
    assert found.bound == "communication"
    assert any("401 ns, 40.1% of the window, the largest part" in one for one in found.because)
    assert "ranks" in found.next[0]
    less = msgspec.structs.replace(window, exposed_communication_ns=400)
    assert judged(less, 1, None).bound == "launch"


@pytest.mark.parametrize(
    ("busy_ns", "bytes_per_s", "bound"),
    [(790, 1e9, "launch"), (800, 1e9, "kernels"), (990, 1e9, "kernels"), (700, 7.3e8, "memory")],
)
def test_a_distorted_window_is_judged_by_the_unprofiled_step(
    busy_ns: int, bytes_per_s: float, bound: str
) -> None:
    """An unprofiled step of 1,000 ns, profiled 2.73 times as long and 60 % idle for the host. It
    needs 533 ns at the peak in the last case. 50 ns are idle inside the graph in either."""
    capture = msgspec.structs.replace(
        CAPTURE, bytes_per_step=533, measured_peak_bytes_per_s=bytes_per_s
    )
    window = device(1638, window_ns=2730)
    gaps = {"graph_internal": 50, "host_wait": 2730 - busy_ns - 50}
    steps = [StepReport(0, "decode_step", 2730, 2730, busy_ns, 2730 - busy_ns, 1, 80, gaps)]
    found = judged(window, 1, capture, 1000, steps, 2730)
    assert found.bound == bound
    said = " · ".join(found.because)
    assert "profiled steps took 2.73 times as long as unprofiled ones" in said
    assert f"unprofiled step (1.00 µs) and the busy time of a profiled one ({busy_ns} ns)" in said
    late_ns = 1000 - busy_ns - min(50, 1000 - busy_ns)
    assert f"idle for the host: {late_ns} ns, {late_ns / 10:.1f}% of the unprofiled step" in said
    trusted = judged(window, 1, capture, 1000, steps, 1250)
    assert trusted.bound == ("memory" if bound == "memory" else "launch")


@pytest.mark.parametrize(
    ("label", "advice"),
    [("python", "CUDA graph"), ("sync", ".item()"), ("allocation", "KV cache"),
     ("memcpy_api", "pinned"), ("other_api", "module loads")],
)  # fmt: skip
def test_a_launch_bound_step_is_advised_by_what_the_host_does(label: str, advice: str) -> None:
    window = device(600)
    window.host_wait[label] = GapTotal(1, 301, 301)
    window.host_wait["python"] = GapTotal(1, 299 if label != "python" else 600, 299)
    window.gaps["launch_latency"] = GapTotal(0, 0, 0)
    window.gaps["host_wait"] = GapTotal(2, 600, 301)
    assert advice in judged(window, 1, None).next[0]


def test_a_launch_bound_graph_is_not_advised_to_become_one() -> None:
    graphs = msgspec.structs.replace(launches(1), calls=3, graph_launches=2)
    found = verdict(Evidence([device(600)], graphs, (), None, None))
    assert found.next == (
        "the step is a graph: launch the next replay before this one ends, without reading its "
        "token",
    )


def test_idle_time_of_unknown_cause_asks_for_the_hosts_calls() -> None:
    window = device(0)
    window.gaps["unlinked"] = GapTotal(3, 151, 90)
    window = msgspec.structs.replace(window, busy_ns=849, idle_ns=151)
    found = judged(window, None, None)
    assert found.bound == "unknown"
    assert found.because[-1].endswith("idle before ops whose launch call is not in the trace")
    assert found.next[0].startswith("record the host's API calls too")
    window.gaps["unlinked"] = GapTotal(3, 150, 90)
    assert "API calls" not in " ".join(judged(window, None, None).next)


def test_a_measured_peak_replaces_the_datasheets() -> None:
    assert judged(device(0), 1, CAPTURE, SLOW).bound == "kernels"
    measured = msgspec.structs.replace(CAPTURE, measured_peak_bytes_per_s=8e11)
    found = judged(device(0), 1, measured, SLOW)
    assert found.bound == "memory"
    assert "60.0% of the peak (measured)" in found.because[0]


def test_what_is_unknown_comes_with_what_would_make_it_known() -> None:
    unknown = msgspec.structs.replace(CAPTURE, device_name="Somebody's GPU")
    found = judged(device(0), 1, unknown, FAST)
    assert found.bound == "unknown"
    assert "no peak known for Somebody's GPU" in found.because[0]
    assert found.because[-1] == "the GPU is busy 100% of the window"
    assert found.next == (
        "record the step with `decodescope run --trace FILE`, which notes the measured peak of the "
        "GPU",
    )
    foreign = judged(device(0), 1, None, None)
    assert foreign.bound == "unknown"
    assert "the bytes of a step" in foreign.next[0]


def test_no_window_and_no_gpu() -> None:
    assert judged(None, None, None).because == ("no GPU activity in this trace",)
    on_cpu = msgspec.structs.replace(CAPTURE, device="cpu")
    found = judged(device(900), None, on_cpu, FAST)
    assert (found.bound, found.next) == ("unknown", ("run it on a GPU: `--device cuda`",))
