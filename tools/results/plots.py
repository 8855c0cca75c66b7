"""Every plot of docs/results.md, by the name of its file, from the records."""

from collections.abc import Mapping

from decodescope.analyzer.formatting import rate
from tools.results import comparisons
from tools.results.drawing import Bar, Series, bars_file, lines_file
from tools.results.records import Record

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
        "batch-scaling.svg": batch_scaling(records["batch-scaling"]),
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


def batch_scaling(record: Record) -> str:
    """tokens/s by batch size beside what the read peak allows."""
    peak = record["measured_peak_bytes_per_s"]
    found = [(one["batch"], one["tokens_per_s"]["median"]) for one in record["batches"]]
    limit = [
        (one["batch"], one["batch"] * peak / one["bytes_per_step"]) for one in record["batches"]
    ]
    return lines_file(
        f"{record['variant']} of {record['model'].partition('@')[0]} by batch size",
        "batch",
        "tokens/s",
        (
            Series("measured", tuple(found)),
            Series("bytes of a step ÷ read peak", tuple(limit), limit="measured"),
        ),
        [batch for batch, _ in found],
    )


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
