"""`decodescope compare` of variants of one model, and what their windows leave unexplained.

Writes benchmarks/results/compare-<model>.json: the rounds' tokens/s, the ratio with its interval,
accuracy, and for each variant's profiled window the idle time by class, the share of it that is
unlinked, and how many GPU ops have a range path of which confidence.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from decodescope.analyzer.files import write_atomically

RESULTS = Path(__file__).resolve().parent / "results"
RUN_FIELDS = (
    "variant", "round", "tokens_per_s", "step_ns", "launch_calls_per_step", "gpu_ops_per_step",
    "gpu_idle_fraction", "bytes_per_step", "bandwidth", "observer", "waterfall", "verdict",
)  # fmt: skip


def compared(arguments: argparse.Namespace) -> dict[str, Any]:
    """The JSON of one `decodescope compare`; what it writes goes to `arguments.out`."""
    command = [sys.executable, "-m", "decodescope", "compare", "--json"]
    command += ["--model", arguments.model, "--variants", arguments.variants]
    command += ["--repeats", str(arguments.repeats)]
    with tempfile.TemporaryDirectory() as scratch:
        command += ["--out", str(arguments.out or scratch)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def window_summary(report: dict[str, Any]) -> dict[str, Any]:
    """What one profiled window leaves idle, by class, and what is unexplained."""
    device = report["devices"][0]
    idle_ns = device["idle_ns"]
    by_class = {name: total["total_ns"] for name, total in device["gaps"].items()}
    assert sum(by_class.values()) == idle_ns
    return {
        "window_ns": device["window_ns"],
        "idle_ns": idle_ns,
        "idle_ns_by_class": by_class,
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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="eager,compiled")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep traces, Markdown and HTML here")
    arguments = parser.parse_args()
    found = compared(arguments)
    comparison = found["comparison"]
    record = {
        "command": f"python benchmarks/compare_variants.py {' '.join(sys.argv[1:])}".strip(),
        "model": arguments.model,
        "variants": comparison["variants"],
        "pairs": [
            {key: value for key, value in pair.items() if key != "ranges"}
            for pair in comparison["pairs"]
        ],
        "findings": comparison["findings"],
        "windows": {name: window_summary(report) for name, report in found["windows"].items()},
        "runs": [{key: run[key] for key in RUN_FIELDS} for run in found["runs"]],
        "environment": found["runs"][0]["environment"],
    }
    name = arguments.model.replace("@", "-").replace("/", "-")
    path = RESULTS / f"compare-{name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


if __name__ == "__main__":
    main()
