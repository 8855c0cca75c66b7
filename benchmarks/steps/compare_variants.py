"""`decodescope compare` of variants of one model, and what their windows leave unexplained.

Writes benchmarks/results/compare-<model>.json: the rounds' tokens/s, the ratio with its interval,
accuracy, and for each variant's profiled window the launches, the idle time by class and inside
graphs, the time in which GPU ops overlap, the unlinked share of the idle time, and how many GPU ops
have a range path, by confidence. Prints the figures of a token.
"""

import shlex
import tempfile
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import rich_click as click
from rich.table import Table

from benchmarks.harness.processes import printed_json
from benchmarks.harness.records import RESULTS, write_record
from benchmarks.harness.tables import figures_table, share_cell
from decodescope.analyzer.io.output_paths import check_writable, is_stdout, output_path
from decodescope.analyzer.text.formatting import milliseconds, number, rate
from decodescope.cli.options import number_option
from decodescope.cli.output import print_table

RUN_FIELDS = (
    "variant",
    "round",
    "tokens_per_s",
    "step_ns",
    "launch_calls_per_step",
    "gpu_ops_per_step",
    "gpu_idle_fraction",
    "bytes_per_step",
    "bandwidth",
    "answer",
)


@dataclass(frozen=True, slots=True)
class Compared:
    """What `decodescope compare` runs; None leaves an option to its default."""

    model: str
    variants: str
    repeats: int
    batch: int | None = None
    context: int | None = None
    tokens: int | None = None

    @property
    def options(self) -> list[str]:
        """The options of `decodescope compare`, which are those of this command."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        words = [(f"--{name}", str(value)) for name, value in given if value is not None]
        return list(chain.from_iterable(words))


def compared(options: Compared, out: Path | None) -> dict[str, Any]:
    """The JSON of one `decodescope compare`, which writes its files to `out`."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(out or scratch).resolve())
        return printed_json("compare", *options.options, "--out", folder, partial=True)


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
        "answer": report["answer"],
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


def recorded_command(options: Compared) -> str:
    """The command that measures this again, without its output files."""
    return shlex.join(["python", "-m", "benchmarks", "compare-variants", *options.options])


@click.command("compare-variants")
@click.option("--model", metavar="M", default="llama-3.2-1b@random", show_default=True)
@click.option("--variants", metavar="A,B,...", default="eager,compiled", show_default=True)
@number_option("--repeats", default=5, show_default=True)
@number_option("--batch", help="As of decodescope compare.")
@number_option("--context", help="As of decodescope compare.")
@number_option("--tokens", help="As of decodescope compare.")
@click.option("--out", type=Path, metavar="FOLDER", help="Keep traces, Markdown and HTML here.")
@click.option(
    "-o", "--output", metavar="FILE", type=output_path, help="Instead of compare-<model>.json."
)
def command(out: Path | None, output: Path | None, **given: Any) -> None:
    """`decodescope compare` of variants, with the windows' launches, idle time and overlap."""
    options = Compared(**given)
    name = options.model.replace("@", "-").replace("/", "-")
    path = output or RESULTS / f"compare-{name}.json"
    check_writable(path, "-o")
    found = compared(options, out)
    comparison = found["comparison"]
    record = {
        "model": options.model,
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
    write_record(path, record, recorded_command(options))
    if not is_stdout(path):
        print_table(record, token_table)
