"""`decodescope run` of several variants, interleaved (A B A B ...), with the ratios of each round.

Writes benchmarks/results/decode-<model>.json: every run's report without its token ids, the median
tokens/s of each variant, and its ratio to the first variant round by round.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from decodescope.analyzer.files import write_atomically

RESULTS = Path(__file__).resolve().parent / "results"
LONG_FIELDS = ("prompt_token_ids", "output_token_ids", "output_text")


def run_report(model: str, variant: str) -> dict[str, Any]:
    """The JSON of one `decodescope run`, without its tokens."""
    command = [sys.executable, "-m", "decodescope", "run", "--json"]
    command += ["--model", model, "--variant", variant]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return {key: value for key, value in report.items() if key not in LONG_FIELDS}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.2-1b@random")
    parser.add_argument("--variants", default="eager,compiled")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    variants = arguments.variants.split(",")
    runs: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for _ in range(arguments.repeats):
        for variant in variants:
            runs[variant].append(run_report(arguments.model, variant))
            sys.stderr.write(f"{variant}: {runs[variant][-1]['tokens_per_s']:.1f} tokens/s\n")
    rates = {variant: [run["tokens_per_s"] for run in of] for variant, of in runs.items()}
    environments = [run.pop("environment") for of in runs.values() for run in of]
    record = {
        "command": f"python benchmarks/decode_runs.py {' '.join(sys.argv[1:])}".strip(),
        "model": arguments.model,
        "median_tokens_per_s": {name: statistics.median(of) for name, of in rates.items()},
        "ratio_to_first": {
            name: [rate / first for rate, first in zip(of, rates[variants[0]], strict=True)]
            for name, of in rates.items()
        },
        "runs": runs,
        "environment": environments[0],
    }
    name = arguments.model.replace("@", "-").replace("/", "-")
    path = RESULTS / f"decode-{name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


if __name__ == "__main__":
    main()
