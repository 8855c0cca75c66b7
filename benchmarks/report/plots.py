"""Every plot of docs/results.md, by the name of its file, from the records."""

from collections import defaultdict
from collections.abc import Mapping

from benchmarks.report import comparisons
from benchmarks.report.drawing import Bar, Series, bars_file, lines_file
from benchmarks.report.measured import AXES, axis_text, fixed_words, rank_records
from benchmarks.report.records import Record
from decodescope.analyzer.text.formatting import rate

LIMIT = "bytes of a step ÷ read peak"

_GEMMS = {
    "cublas_bf16": "cuBLAS bf16",
    "scaled_mm_tensorwise": "_scaled_mm tensor-wise",
    "scaled_mm_rowwise": "_scaled_mm row-wise",
    "plain_triton": "plain Triton",
    "w8a8": "W8A8",
    "w8a16": "W8A16",
    "int8": "INT8",
}


def plots(records: Mapping[str, Record]) -> dict[str, str]:
    """The SVG files."""
    return {
        "variants.svg": variants(records),
        **{
            f"{over}-scaling.svg": scaling(records[f"{over}-scaling"], over, plural)
            for over, plural in AXES.items()
            if f"{over}-scaling" in records
        },
        **({"ranks.svg": ranks(records)} if rank_records(records) else {}),
        "gemm-8192.svg": gemm(records["gemm-8192"]),
    }


def variants(records: Mapping[str, Record]) -> str:
    """tokens/s of every variant at batch 1, as the share of each model's limit is easy to see."""
    bars = [
        _rate_bar(records[f"compare-{model}-random{part}"], rates, model)
        for model in ("llama-3.2-1b", "llama-3.1-8b")
        for part in ("", "-narrow")
        for rates in records[f"compare-{model}-random{part}"]["variants"]
        if not (part and rates["variant"] == "fused+graph")
    ]
    title = "tokens/s at batch 1; dashed: reading the step's bytes once at the measured read peak"
    return bars_file(title, "tokens/s", bars)


def scaling(record: Record, over: str, plural: str) -> str:
    """tokens/s over batch sizes, contexts or models, beside what the read peak allows."""
    peak, points = record["measured_peak_bytes_per_s"], record[plural]
    words = ", ".join(fixed_words(record, over))
    title = f"{record['variant']} over {plural}, {words}"
    batches = [point.get("batch", record.get("batch", 1)) for point in points]
    limits = [
        batch * peak / point["bytes_per_step"] for batch, point in zip(batches, points, strict=True)
    ]
    if over == "model":
        bars = [_scaling_bar(point, limit) for point, limit in zip(points, limits, strict=True)]
        return bars_file(title, "tokens/s", bars)
    values = [point[over] for point in points]
    found = [point["tokens_per_s"]["median"] for point in points]
    series = (
        Series("measured", tuple(zip(values, found, strict=True))),
        Series(LIMIT, tuple(zip(values, limits, strict=True)), limit="measured"),
    )
    return lines_file(title, over, "tokens/s", series, values)


def ranks(records: Mapping[str, Record]) -> str:
    """tokens/s of each model and variant that ran on several numbers of GPUs."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in rank_records(records):
        for one in record["figures"]:
            name = f"{axis_text(record['model'])} {one['variant']}"
            found[name].append((one["ranks"], one["tokens_per_s"]["median"]))
    series = [Series(name, tuple(points)) for name, points in found.items() if len(points) > 1]
    sizes = sorted({ranks for one in series for ranks, _ in one.points})
    return lines_file("tokens/s over ranks, batch 1", "ranks", "tokens/s", series, sizes)


def _scaling_bar(point: Record, limit: float) -> Bar:
    rates, name = point["tokens_per_s"], axis_text(point["model"])
    text = f"{rate(rates['median'])} of {rate(limit)}"
    group = "dashed: " + LIMIT
    return Bar(group, name, rates["median"], rates["min"], rates["max"], limit, text)


def gemm(record: Record) -> str:
    """Time of a GEMM by number of tokens."""
    rows, columns = record["rows"], record["columns"]
    series = [
        Series(
            words,
            tuple(
                (size["tokens"], one["times"]["median_ns"] / 1e3)
                for size in record["sizes"]
                for one in size["gemms"]
                if one["name"] == name and one["times"]
            ),
        )
        for name, words in _GEMMS.items()
    ]
    least = rows * columns / record["measured_peak_bytes_per_s"] * 1e6
    tokens = [size["tokens"] for size in record["sizes"]]
    limit = tuple((token, least) for token in (min(tokens), max(tokens)))
    title = f"x Wᵀ with W {rows:,} x {columns:,} by tokens"
    bound = Series("8-bit weights ÷ read peak", limit, limit="measured")
    return lines_file(title, "tokens", "µs of a launch", (*series, bound), tokens)


def _rate_bar(record: Record, rates: Record, model: str) -> Bar:
    limit = comparisons.limit_per_s(record, rates["variant"])
    rounds = rates["tokens_per_s"]
    text = f"{rate(rates['mean'])} of {rate(limit)}"
    return Bar(model, rates["variant"], rates["mean"], min(rounds), max(rounds), limit, text)
