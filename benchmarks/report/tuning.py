"""Rows of the table of measured tiles, from the records of `tune`."""

from collections.abc import Mapping

from benchmarks.report.claims import gpu_word
from benchmarks.report.comparisons import dash
from benchmarks.report.records import Record
from decodescope.analyzer.text.formatting import duration


def tuned_rows(records: Mapping[str, Record]) -> list[list[str]]:
    """A row for each record, by GPU, model, variant and batch: these, the step before and after
    the search, their ratio within a round with the range of the rounds, the operations whose tile
    is another one after it, and the record."""
    tuned = _searches(records)
    return [_row(name, tuned[name]) for name in sorted(tuned, key=lambda name: _place(tuned[name]))]


def tuned_after(records: Mapping[str, Record], record: Record) -> list[str]:
    """The records of searches on the GPU of `record` that are newer: their tiles are not in it."""
    made = record["environment"]
    return [
        name
        for name, one in _searches(records).items()
        if one["environment"]["gpu"] == made["gpu"] and one["environment"]["date"] > made["date"]
    ]


def _searches(records: Mapping[str, Record]) -> dict[str, Record]:
    return {name: one for name, one in records.items() if name.startswith("tune-")}


def _place(record: Record) -> tuple[str, str, str, int]:
    # The first records do not name the variant: the search knew no other one.
    variant = record.get("variant", "fused")
    return gpu_word(record["environment"]["gpu"]), record["model"], variant, record["batch"]


def _row(name: str, record: Record) -> list[str]:
    gpu, model, variant, batch = _place(record)
    ratio = record["before_over_after"]
    low, high = (f"{ratio[end]:.3f}" for end in ("min", "max"))
    return [
        gpu,
        model.partition("@")[0],
        f"`{variant}`, {record['dtype']}",
        str(batch),
        duration(record["before_ns"]["median"]),
        duration(record["after_ns"]["median"]),
        f"{ratio['median']:.3f} ({dash(low, high)})",
        ", ".join(_changed(record)),
        f"`{name}.json`",
    ]


def _changed(record: Record) -> list[str]:
    """The operations that the search began with another tile than it ended with."""
    first, last = record["passes"][0], record["tiles"]
    return [one["operation"] for one in first if one["before"] != last[one["operation"]]]
