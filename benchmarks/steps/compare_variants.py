"""`decodescope compare` of variants of one model, and what their windows leave unexplained.

Writes benchmarks/results/compare-<model>.json: the rounds' tokens/s, the ratio with its interval,
accuracy, and for each variant's profiled window the launches, the idle time by class and inside
graphs, the time in which GPU ops overlap, the unlinked share of the idle time, and how many GPU ops
have a range path, by confidence. Prints the figures of a token.
"""

import argparse
import shlex
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.harness.common import (
    RESULTS,
    figures_table,
    printed_json,
    share_cell,
    write_record,
)
from decodescope.analyzer.io.output_paths import (
    check_writable,
    is_stdout,
    output_path,
)
from decodescope.analyzer.text.formatting import milliseconds, number, rate
from decodescope.cli.ending import end_with
from decodescope.cli.output import print_table

RUN_FIELDS = (
    "variant", "round", "tokens_per_s", "step_ns", "launch_calls_per_step", "gpu_ops_per_step",
    "gpu_idle_fraction", "bytes_per_step", "bandwidth", "observer", "waterfall", "verdict",
)  # fmt: skip


def what_is_compared(arguments: argparse.Namespace) -> list[str]:
    """The options that `decodescope compare` and this script share."""
    options = ["--model", arguments.model, "--variants", arguments.variants]
    options += ["--repeats", str(arguments.repeats)]
    for name in ("batch", "context", "tokens"):
        if (value := getattr(arguments, name)) is not None:
            options += [f"--{name}", str(value)]
    return options


def compared(arguments: argparse.Namespace) -> dict[str, Any]:
    """The JSON of one `decodescope compare`, which writes its files to `arguments.out`."""
    command = ["compare", *what_is_compared(arguments)]
    with tempfile.TemporaryDirectory() as scratch:
        out = str(Path(arguments.out or scratch).resolve())
        return printed_json(*command, "--out", out, partial=True)


def launch_summary(launches: dict[str, Any]) -> dict[str, Any]:
    """The window's launch calls by API, and what its graphs hold."""
    names = ("calls", "by_api", "graph_launches", "gpu_ops_per_graph_launch")
    return {name: launches[name] for name in names}


def idle_share_of_graph_span(report: dict[str, Any]) -> float | None:
    """Idle time between ops of one graph launch ÷ (that + busy time); None without graphs."""
    if not report["launches"]["graph_launches"]:
        return None
    device = report["devices"][0]
    idle_ns = device["gaps"]["graph_internal"]["total_ns"]
    return float(idle_ns / (idle_ns + device["busy_ns"]))


def window_summary(report: dict[str, Any]) -> dict[str, Any]:
    """What one profiled window leaves idle, by class, and what is unexplained."""
    device = report["devices"][0]
    idle_ns = device["idle_ns"]
    by_class = {name: total["total_ns"] for name, total in device["gaps"].items()}
    assert sum(by_class.values()) == idle_ns
    return {
        "window_ns": device["window_ns"],
        "busy_ns": device["busy_ns"],
        "overlap_ns": device["overlap_ns"],
        "overlap_share_of_busy": device["overlap_ns"] / device["busy_ns"],
        "idle_ns": idle_ns,
        "idle_ns_by_class": by_class,
        "launches": launch_summary(report["launches"]),
        "idle_share_of_graph_span": idle_share_of_graph_span(report),
        "host_wait_ns_by_label": {n: t["total_ns"] for n, t in device["host_wait"].items()},
        "unlinked_share_of_idle": by_class["unlinked"] / idle_ns if idle_ns else 0.0,
        "kernel_floor_ns": device["kernel_floor_ns"],
        "kernel_floor_estimated": device["kernel_floor_estimated"],
        "attribution": report["attribution"],
        "observer": report["observer"],
        "verdict": report["verdict"],
        "health": report["health"],
        "largest_gaps": report["largest_gaps"][:3],
    }


def token_table(record: dict[str, Any]) -> Table:
    """One row for each variant: the figures of a token."""
    columns = ("tokens/s", "range", "step ms", "launches", "GPU ops", "idle in graph", "overlap")
    table = figures_table(record["model"], "variant", *columns, names=1)
    for variant in record["variants"]:
        name = variant["variant"]
        runs = [run for run in record["runs"] if run["variant"] == name]
        speeds, window = [run["tokens_per_s"] for run in runs], record["windows"][name]
        table.add_row(
            name,
            rate(variant["mean"]),
            f"{rate(min(speeds))} to {rate(max(speeds))}",
            milliseconds(median(run["step_ns"]["p50"] for run in runs)),
            number(runs[-1]["launch_calls_per_step"]),
            number(runs[-1]["gpu_ops_per_step"]),
            share_cell(window["idle_share_of_graph_span"]),
            share_cell(window["overlap_share_of_busy"]),
        )
    return table


def recorded_command(arguments: argparse.Namespace) -> str:
    """The command that measures this again, without its output files."""
    command = ["python", "-m", "benchmarks.steps.compare_variants", *what_is_compared(arguments)]
    return shlex.join(command)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="eager,compiled")
    parser.add_argument("--repeats", type=int, default=5)
    for option in ("--batch", "--context", "--tokens"):
        parser.add_argument(option, type=int, help="as of decodescope compare")
    parser.add_argument("--out", type=Path, help="keep traces, Markdown and HTML here")
    parser.add_argument("-o", "--output", type=output_path, help="instead of compare-<model>.json")
    arguments = parser.parse_args()
    name = arguments.model.replace("@", "-").replace("/", "-")
    path = arguments.output or RESULTS / f"compare-{name}.json"
    check_writable(path, "-o")
    found = compared(arguments)
    comparison = found["comparison"]
    record = {
        "model": arguments.model,
        "variants": comparison["variants"],
        "standings": comparison["standings"],
        "pairs": [
            {key: value for key, value in pair.items() if key != "ranges"}
            for pair in comparison["pairs"]
        ],
        "findings": comparison["findings"],
        "windows": {name: window_summary(report) for name, report in found["windows"].items()},
        "runs": [{key: run[key] for key in RUN_FIELDS} for run in found["runs"]],
        "environment": found["runs"][0]["environment"],
    }
    write_record(path, record, recorded_command(arguments))
    if not is_stdout(path):
        print_table(record, token_table)


if __name__ == "__main__":
    end_with(main)
