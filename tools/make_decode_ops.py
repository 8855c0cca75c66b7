"""Records the GPU ops of decode steps for the tests of layers and roles, on a GPU.

`python -m tools.make_decode_ops -o tests/data/decode_ops.json.gz` writes, for each case, the ops of
one step in the order of their launches: kernel name, stream, ns and range path. The paths are the
truth that the tests compare with; what the tests read from is the names alone.

The cases are every variant of decodescope at two shapes, and models of transformers with random
weights and few layers (`tools.foreign_models`), recorded as others record theirs: torch.profiler
with Python stacks, whose `nn.Module` events are the paths.
"""

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from decodescope.analyzer import analyze, load
from decodescope.variants.machine.environment import environment
from decodescope.variants.registry import available_variants
from tools.foreign_models import CASES, record

MODELS = ("llama-3.2-1b", "llama-3.1-8b")


class StepOps(msgspec.Struct):
    """One step: `ops` holds [index in `names`, stream, ns, index in `paths`]."""

    case: str
    names: list[str]
    paths: list[str]
    ops: list[tuple[int, int, int, int]]


def step_ops(case: str, path: Path) -> StepOps:
    """The median step of a trace; ops in the order of their launches, those of a graph by node."""
    analysis = analyze(load(path))
    ops, ranges = analysis.trace.ops, analysis.ranges
    step = analysis.median_step
    names: dict[str, int] = {}
    paths: dict[str, int] = {}
    rows = []
    chosen = [i for i, one in enumerate(analysis.steps.op_step.tolist()) if one == step]
    for i in sorted(chosen, key=lambda i: (ops.launch[i], ops.graph_node_id[i], ops.start_ns[i])):
        node = int(ranges.op_node[i])
        name = names.setdefault(analysis.trace.names[ops.name[i]], len(names))
        place = paths.setdefault(ranges.paths[node] if node >= 0 else "", len(paths))
        rows.append((name, int(ops.stream[i]), int(ops.length_ns[i]), place))
    return StepOps(case, list(names), list(paths), rows)


def record_own(case: str, path: Path) -> None:
    """`decodescope run` of a case "MODEL VARIANT"."""
    model, variant = case.split()
    options = ["--model", f"{model}@random", "--variant", variant, "--tokens", "16"]
    command = [sys.executable, "-m", "decodescope", "run", *options, "--trace", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    variants = [one.name for one in available_variants("cuda") if one.unavailable is None]
    own = [f"{model} {variant}" for model in MODELS for variant in variants]
    steps: list[StepOps] = []
    for case in (case for case in (*CASES, *own) if arguments.only in case):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json.gz")
            (record if case in CASES else record_own)(case, path)
            steps.append(step_ops(case, path))
        sys.stderr.write(f"{case}: {len(steps[-1].ops)} ops\n")
        document = {"environment": environment(), "steps": steps}
        with gzip.GzipFile(arguments.output, "wb", 9, mtime=0) as file:
            file.write(msgspec.json.encode(document))


if __name__ == "__main__":
    main()
