"""Rows of the tables of kernels, GEMMs and formats, from their records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median

from benchmarks.counters.counter_check import SLOWER
from benchmarks.report.comparisons import dash, with_interval
from benchmarks.report.records import Record
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    duration,
    microseconds,
    percent,
    rate,
    significant,
)

GEMM_PEERS = ("cublas_bf16", "scaled_mm_tensorwise", "scaled_mm_rowwise", "plain_triton")
# What `scaling` varies, and the list of its record.
AXES = {"batch": "batches", "context": "contexts", "model": "models"}
_OURS = ("w8a8", "w8a16", "int8")
_FORMATS = {
    "bf16": "bf16",
    "fp8_e4m3": "E4M3",
    "fp8_e4m3+head16": "E4M3, lm_head in bf16",
    "fp8_e5m2": "E5M2",
    "fp8_e5m2_cast": "E5M2 without scales",
    "int8": "INT8",
    "int8+head16": "INT8, lm_head in bf16",
    "int4": "INT4 (groups of 128)",
    "int4+head16": "INT4, lm_head in bf16",
    "int4+embedding16": "INT4, embedding table in bf16",
    "int4_g32": "INT4 (groups of 32)",
    "int4_asym": "INT4 with zero points",
    "mxfp4": "MXFP4",
    "nvfp4": "NVFP4",
    "w8a8": "W8A8",
    "w8a8+head16": "W8A8, lm_head in bf16",
    "kv_fp8_e4m3": "K and V in E4M3",
    "kv_fp8_e5m2": "K and V in E5M2",
    "fp8_e4m3+kv_fp8_e4m3": "weights, K and V in E4M3",
}
QUALITY_WAYS = ("rounding", "forward", "steps")
_GROWING = ("fp8_e4m3", "int8", "w8a8", "kv_fp8_e4m3")


def fixed_words(record: Record, over: str) -> list[str]:
    """What was the same for all values of a record of `scaling`, where it says so."""
    return [
        axis_text(record[axis]) if axis == "model" else f"{axis} {axis_text(record[axis])}"
        for axis in reversed(AXES)
        if axis != over and axis in record
    ]


def axis_text(value: str | int) -> str:
    """One value of an axis."""
    return value.partition("@")[0] if isinstance(value, str) else f"{value:,}"


def gemm_cells(size: Record) -> list[str]:
    """One number of tokens: the peers' times in µs, ours with and without overlap, how many times
    as fast W8A8 is as each peer, and the widest range of these ratios, relative to its median."""
    gemms = {gemm["name"]: gemm for gemm in size["gemms"]}
    times = {name: microseconds(gemm["times"]["median_ns"]) for name, gemm in gemms.items()}
    ratios = [gemms["w8a8"]["speedups"][peer] for peer in GEMM_PEERS]
    spread = max((ratio["max"] - ratio["min"]) / ratio["median"] for ratio in ratios)
    return [
        *(times[peer] for peer in GEMM_PEERS),
        *(f"{times[name]} ({times[name + '_pdl']})" for name in _OURS),
        *(significant(ratio["median"]) for ratio in ratios),
        f"{spread * 100:.1f} %",
    ]


def all_reduce_names(bench: Record) -> list[str]:
    """The ways of a record of `allreduce`."""
    return [way["name"] for way in bench["sizes"][0]["ways"]]


def all_reduce_cells(size: Record) -> list[str]:
    """One size of a message: the time of each way in µs, with ours ÷ that of each other."""
    own, *others = size["ways"]
    times = [microseconds(way["rounds_ns"]["median"]) for way in (own, *others)]
    ratios = [f" ({significant(way['own_share']['median'])})" for way in others]
    return [time + ratio for time, ratio in zip(times, ["", *ratios], strict=True)]


def rank_records(records: Mapping[str, Record]) -> list[Record]:
    """The records of `ranks`, the largest model last."""
    of_ranks = [record for name, record in records.items() if name.startswith("ranks-")]
    return sorted(of_ranks, key=lambda record: record["figures"][0]["bytes_per_step"])


def communication_cells(figures: Record) -> list[str]:
    """Transfer and wait of one step on the rank that has most of both, of a case of `ranks`."""
    communication = figures["communication"]
    if communication is None or communication["skew"] is None:
        return ["", ""]
    most = max(communication["ranks"], key=lambda rank: rank["communication_ns"])
    steps = communication["skew"]["steps"]
    return [duration(most[name] / steps) for name in ("transfer_ns", "wait_ns")]


def rounds_text(spread: Record) -> str:
    """tokens/s by the median of its rounds, with their range where there are several."""
    median_per_s = rate(spread["median"])
    if len(spread["rounds"]) == 1:
        return f"{median_per_s} (1 round)"
    return f"{median_per_s} ({rate(spread['min'])} to {rate(spread['max'])})"


def quality_rows(record: Record) -> list[list[str]]:
    """The cost of each format that was scored: change of perplexity in each way, KL, top-1."""
    found = {one["format"]: one for one in record["formats"]}
    return [
        [
            words,
            *(_perplexity(found[name].get(way)) for way in QUALITY_WAYS),
            _scaled(found[name]["steps"]["fp32"], "kl", 1e3, "{:.2f}"),
            _scaled(found[name]["steps"]["fp32"], "top1_agreement", 100, "{:.1f}"),
        ]
        for name, words in _FORMATS.items()
        if name in found
    ]


def _scaled(figures: Record, name: str, unit: float, form: str) -> str:
    """A figure in parts of `unit`, with its interval."""
    interval = figures[f"{name}_interval"]
    ends = {end: interval[end] * unit for end in ("low", "high")}
    return with_interval(figures[name] * unit, ends, form)


def growth_positions(record: Record) -> list[int]:
    """The first position of each bin of the error's growth."""
    growth = record["formats"][0]["steps"]["growth"]
    first, width = growth["first_position"], growth["positions_per_bin"]
    return [first + width * index for index in range(len(growth["kl"]))]


def growth_rows(record: Record) -> list[list[str]]:
    """KL of the steps by position, in 10⁻³ nats."""
    found = {one["format"]: one for one in record["formats"]}
    return [
        [_FORMATS[name], *(_two_digits(kl * 1e3) for kl in found[name]["steps"]["growth"]["kl"])]
        for name in _GROWING
    ]


def noise_percents(record: Record) -> list[float]:
    """The noise of simulated gates, in order."""
    return list(dict.fromkeys(one["noise_percent"] for one in record["simulated"]))


def noise_shapes(record: Record) -> list[str]:
    """The shapes of the noise of simulated gates with the first sizes of sides."""
    first = record["simulated"][0]["traces"]
    shapes = (one["shape"] for one in record["simulated"] if one["traces"] == first)
    return list(dict.fromkeys(shapes))


def most_false_alarms(record: Record) -> float:
    """The largest share of false alarms of these shapes."""
    first = record["simulated"][0]["traces"]
    alarms: list[float] = [
        one["false_alarms"] for one in record["simulated"] if one["traces"] == first
    ]
    return max(alarms)


def found_rows(record: Record) -> list[list[str]]:
    """In per cent by noise, how often a slower side was found in the first shape of noise: a row
    for each size of sides."""
    shape = record["simulated"][0]["shape"]
    rows: dict[str, list[str]] = {}
    for one in record["simulated"]:
        if one["shape"] == shape:
            traces = "{}, {}".format(*one["traces"])
            rows.setdefault(traces, []).append(percent(one["found"]))
    return [[traces, *cells] for traces, cells in rows.items()]


def cold_kernels(record: Record) -> list[Record]:
    """The kernels of a step whose operands are too large for the cache."""
    return [one for one in record["kernels"] if one["cold"]]


def span(blocks: Sequence[Record], dtype: str, ratio: str) -> str:
    """The range of a ratio's medians over the cache lengths of a dtype."""
    found = [one["times"][ratio]["median"] for one in blocks if one["dtype"] == dtype]
    return dash(significant(min(found)), significant(max(found)))


def span_of_rounds(blocks: Sequence[Record], dtype: str, ratio: str) -> str:
    """The range of a ratio over all rounds and cache lengths of a dtype."""
    found = [one["times"][ratio] for one in blocks if one["dtype"] == dtype]
    low, high = min(one["min"] for one in found), max(one["max"] for one in found)
    return dash(significant(low), significant(high))


def worst_cosine(blocks: Sequence[Record], dtype: str) -> str:
    """How far the fused block's cosine is from 1 at most."""
    return f"{max(1 - one['fused_cosine'] for one in blocks if one['dtype'] == dtype):.1e}"


def page_p99_s(record: Record) -> list[float]:
    """From a key to the last of its paint, p99: the median of the runs, by page."""
    names = [name for name in record["runs"][0] if name.endswith("_painted_p99_s")]
    return [median(run[name] for run in record["runs"]) for name in names]


@dataclass(frozen=True, slots=True)
class CountedSpans:
    """Least and most over the variants of a record of the hardware's counters: `read`, bytes that
    DRAM read ÷ claimed bytes; `offset_ns`, what the counter adds to a kernel that does nothing.

    Of the `slower_kernels`, which are slower under Nsight Compute, among all `kernels`: `slower`,
    their part of a variant's traced time; the most that an SM was busy beyond the traced duration,
    as a share of it; and the most that launches of the same kernel, at the same place among its
    launches, differ by between the traces of two variants, which are two processes."""

    read: tuple[float, float]
    offset_ns: tuple[float, float]
    slower: tuple[float, float]
    kernels: int
    slower_kernels: int
    most_busy_beyond: float
    most_between_traces: float


def counted_spans(record: Record) -> CountedSpans:
    """The spans of a record, over the variants that were counted."""
    variants = [one for one in record["variants"] if "refused" not in one]
    rows = [row for one in variants for row in _counted_rows(record, one)]
    slower = [row for row in rows if row["why"] == SLOWER]

    def span(values: list[float]) -> tuple[float, float]:
        return min(values), max(values)

    return CountedSpans(
        span([one["dram_read_bytes"] / one["claimed_bytes"] for one in variants]),
        span([(one["ncu_ns"] - one["ncu_less_offset_ns"]) / one["kernels"] for one in variants]),
        span(
            [
                sum(why["share"] for why in one["reasons"] if why["reason"] == SLOWER)
                for one in variants
            ]
        ),
        len(rows),
        len(slower),
        max((row["ncu_busy_ns"] / row["trace_ns"] - 1 for row in slower), default=0.0),
        max((_between_traces(rows, row["kernel"]) for row in slower), default=0.0),
    )


def _counted_rows(record: Record, variant: Record) -> list[Record]:
    """The rows of a variant by their columns, with its name and the kernel's."""
    names = variant["joined"]["names"]
    rows = [dict(zip(record["columns"], row, strict=True)) for row in variant["joined"]["rows"]]
    return [{**row, "variant": variant["variant"], "kernel": names[row["name"]]} for row in rows]


def _between_traces(rows: Sequence[Record], kernel: str) -> float:
    """The most that traced launches of `kernel` differ by between variants with as many of them."""
    launches: dict[str, list[float]] = {}
    for row in rows:
        if row["kernel"] == kernel:
            launches.setdefault(row["variant"], []).append(row["trace_ns"])
    return max(
        (
            max(abs(a / b - 1) for a, b in zip(one, other, strict=True))
            for one, other in permutations(launches.values(), 2)
            if len(one) == len(other)
        ),
        default=0.0,
    )


def _perplexity(figures: Record | None) -> str:
    if figures is None:
        return UNKNOWN
    against = figures["fp32"]
    interval = against["ratio_interval"]
    half = (interval["high"] - interval["low"]) / 2
    return f"{(against['perplexity_ratio'] - 1) * 100:+.3f} ± {half * 100:.3f}"


def _two_digits(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
