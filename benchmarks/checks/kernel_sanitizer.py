"""Runs every kernel under compute-sanitizer: memcheck (bounds) and racecheck (shared memory).

Writes benchmarks/results/kernel-sanitizer.json. Models are checked side by side, each in processes
of its own. Each kernel is launched at small shapes that no tile divides, in every dtype and format,
at batch 1 and 33, with and without overlap (PDL), and once more at a position past the end of every
cache, where it must write nothing. With --run it only launches the kernels, for a sanitizer that is
started by hand:
compute-sanitizer --tool memcheck python -m benchmarks kernel-sanitizer --run
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gemm.gemm_contenders import tuned_gemms
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.harness.processes import require_cuda
from benchmarks.harness.records import RESULTS, ROOT, write_record
from benchmarks.kernels.kernel_cases import kernel_cases
from benchmarks.kernels.operands import Operands
from decodescope.analyzer.errors import MissingRequirement
from decodescope.cli.options import FILE
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.model_parts import fused_model
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tiles import default_tiles

TOOLS = ("memcheck", "racecheck")
DEFAULT_PATH = Path("/usr/local/cuda/bin/compute-sanitizer")
COMMAND = "benchmarks kernel-sanitizer"
BATCHES = (1, 33)
CONTEXT = 301
PAST_THE_END = 10_000
# Room that a process is given: its context, small tensors and the sanitizer's records.
PROCESS_BYTES = 2 << 30

_SMALL: dict[str, Any] = {
    "vocab_size": 1009,
    "hidden_size": 330,
    "intermediate_size": 523,
    "num_hidden_layers": 1,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 80,
    "max_position_embeddings": 1024,
}
_BIASED = _SMALL | {
    "model_type": "llama",
    "hidden_size": 333,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "attention_bias": True,
    "mlp_bias": True,
}
# Rows of whole words, which narrow weights are loaded as in tiles of 64 rows.
_WORDS = _SMALL | {"model_type": "qwen2", "hidden_size": 336, "intermediate_size": 528}
_QK_NORMED = _SMALL | {"model_type": "qwen3", "head_dim": 48}
_WINDOWED = _SMALL | {"model_type": "mistral", "sliding_window": 77}

_MIXTURE = _SMALL | {
    "model_type": "qwen3_moe",
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 37,
}
_CAPPED = _SMALL | {"model_type": "gemma2", "sliding_window": 77}
_PARALLEL = _SMALL | {
    "model_type": "cohere2",
    "sliding_window": 77,
    "layer_types": ["sliding_attention"],
}

# Not every pair: each one compiles all kernels.
MODELS = (
    (_BIASED, torch.float32, "fused"),
    (_BIASED, torch.bfloat16, "fused"),
    (_QK_NORMED, torch.float16, "fused"),
    (_QK_NORMED, torch.bfloat16, "fused"),
    (_WINDOWED, torch.bfloat16, "fused"),
    (_BIASED, torch.bfloat16, "fused+fp8_e4m3+kv_fp8_e4m3"),
    (_QK_NORMED, torch.float16, "fused+int8+embedding8"),
    (_WORDS, torch.bfloat16, "fused+int8"),
    (_WORDS, torch.bfloat16, "fused+w8a8"),
    (_BIASED, torch.bfloat16, "fused+w8a8+head16"),
    (_WINDOWED, torch.bfloat16, "fused+fp8_e5m2_cast+head16+kv_fp8_e5m2"),
    (_BIASED, torch.bfloat16, "fused+int4_asym"),
    (_WORDS, torch.bfloat16, "fused+mxfp4"),
    (_QK_NORMED, torch.float16, "fused+nvfp4+head16"),
    (_MIXTURE, torch.bfloat16, "fused"),
    (_MIXTURE, torch.bfloat16, "fused+fp8_e4m3"),
    (_CAPPED, torch.bfloat16, "fused"),
    (_PARALLEL, torch.bfloat16, "fused"),
)

# Each runs in a process of its own: one for each model, and one for the GEMMs of `gemm`.
PARTS = range(len(MODELS) + 1)


class PastTheEnd(Operands):
    """Operands of a step that is replayed after the caches are full."""

    def position(self, value: int) -> torch.Tensor:
        """A position that no cache, table or token buffer has."""
        return super().position(PAST_THE_END)


class Ran(NamedTuple):
    """What a process launched, the errors found (None if it did not finish), and how it ended."""

    launches: int | None
    errors: int | None
    exit_code: int


def meta_parts(fields: dict[str, Any], dtype: torch.dtype, spec: VariantSpec) -> FusedModel:
    """The shapes of a model with this configuration, stored as `spec` says."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    if (quantization := quantization_of(spec)) is not None:
        quantize_model("a model", model, quantization)
    return fused_model(model)


def tiles_to_try(parts: FusedModel, batch: int, spec: VariantSpec) -> Iterator[StepTiles]:
    """The default tiles, and tiles whose programs share outputs."""
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    shapes = step_shapes(parts, batch, CONTEXT + 1, spec)
    tiles = default_tiles(shapes, multiprocessors)
    yield tiles
    splits: dict[TiledOperation, int] = {"attention": 3, "o": 2, "down": 3}
    splitting = {
        name: replace(tile, splits=splits.get(name, tile.splits)) for name, tile in tiles.items()
    }
    yield splitting
    if batch > 1 and parts.hidden % 16 == 0:
        for name in shapes.operations:
            if name == "attention":
                continue
            wide = replace(splitting[name], rows=64, columns=64)
            splitting = {**splitting, name: wide}
        yield splitting


def launch_part(part: int) -> int:
    """Launch the kernels of one of `PARTS` in every way; returns the number of launches."""
    overlaps = can_overlap(torch.device("cuda"))
    if part == len(MODELS):
        return launch_gemms(overlaps)
    fields, dtype, variant = MODELS[part]
    spec = VariantSpec.parse(variant)
    parts = meta_parts(fields, dtype, spec)
    launches = 0
    for batch in BATCHES:
        for tiles, kind in product(tiles_to_try(parts, batch, spec), (Operands, PastTheEnd)):
            operands = kind(parts, batch, CONTEXT, tiles, "cuda", spec)
            for case in kernel_cases(operands):
                copy = case.copies(1)[0]
                for pdl in (False, True) if overlaps else (False,):
                    copy.launch(pdl)
                    launches += 1
            torch.cuda.synchronize()
    return launches


def launch_gemms(overlaps: bool) -> int:
    """Launch the GEMMs of `gemm`, with rows of whole 16 bytes and of others."""
    gpu, launches = this_target_gpu(), 0
    for columns, tokens in product((333, 336), (3, 33)):
        operands = GemmOperands(101, columns, tokens, 1, "cuda")
        for tuned in tuned_gemms(operands, tokens, gpu, None):
            ways = (False, True) if overlaps and tuned.overlaps else (False,)
            for candidate, pdl in product((tuned.candidates[0], tuned.candidates[-1]), ways):
                tuned.operations(candidate)[0].launch(pdl)
                launches += 1
        torch.cuda.synchronize()
    return launches


def run_part(under: tuple[str, ...], part: int) -> Ran:
    """Launch one part in a process of its own, under another command."""
    command = [*under, sys.executable, "-m", *COMMAND.split(), "--run", str(part)]
    # torch's allocator returns parts of large blocks, whose ends memcheck would not see.
    variables = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=ROOT, check=False
    )
    output = done.stdout + done.stderr
    launches = re.search(r"^launches: (\d+)$", output, re.MULTILINE)
    errors = error_count(output) if launches else None
    if done.returncode or (under and errors != 0):
        sys.stderr.write(f"part {part}: {output[-4000:]}\n")
    return Ran(int(launches[1]) if launches else None, errors, done.returncode)


def outcome(tool: str, runs: Sequence[Ran]) -> dict[str, Any]:
    """One tool's sums over all parts; null where a part could not finish."""
    return {
        "tool": tool,
        "command": f"compute-sanitizer --tool {tool} python -m {COMMAND} --run",
        "errors": total([run.errors for run in runs]),
        "launches": total([run.launches for run in runs]),
        "exit_code": max((run.exit_code for run in runs), key=abs),
    }


def total(counts: Sequence[int | None]) -> int | None:
    """The sum; None if a count is missing."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def error_count(output: str) -> int | None:
    """The errors and hazards that a sanitizer's summary counts; None without a summary."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error", output)
    hazards = re.search(r"RACECHECK SUMMARY: (\d+) hazard", output)
    found = [int(match[1]) for match in (summary, hazards) if match]
    return max(found) if found else None


def processes_at_once() -> int:
    """As many as have a core and room on the GPU each."""
    memory_bytes = torch.cuda.get_device_properties(0).total_memory
    return max(1, min(os.cpu_count() or 1, memory_bytes // PROCESS_BYTES))


def version(sanitizer: Path) -> str | None:
    """The sanitizer's version; None if it prints none."""
    done = subprocess.run([str(sanitizer), "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+\.\d+[\d.]*", done.stdout)
    return found[0] if found else None


@click.command("kernel-sanitizer")
@click.option("--run", is_flag=True, help="Only launch the kernels, and check nothing.")
@click.option("--sanitizer", type=FILE, metavar="FILE", help="Where compute-sanitizer is.")
@click.argument("parts", type=click.IntRange(0, PARTS[-1]), nargs=-1)
def command(run: bool, sanitizer: Path | None, parts: tuple[int, ...]) -> int:
    """Every kernel under compute-sanitizer's memcheck and racecheck; 1 if a tool found an error.

    PARTS are the models whose kernels --run launches, all by default.
    """
    require_cuda("kernel-sanitizer")
    if run:
        launches = [launch_part(part) for part in parts or PARTS]
        sys.stderr.write(f"launches: {sum(launches)}\n")
        return 0
    program = Path(sanitizer or shutil.which("compute-sanitizer") or DEFAULT_PATH)
    if not program.is_file():
        raise MissingRequirement("kernel-sanitizer: no compute-sanitizer; name it with --sanitizer")
    with ThreadPoolExecutor(processes_at_once()) as pool:
        # An unchecked run compiles the kernels once: both tools find them in Triton's cache.
        if any(run.exit_code for run in pool.map(partial(run_part, ()), PARTS)):
            return 1
        under = {tool: (str(program), "--tool", tool) for tool in TOOLS}
        runs = {tool: pool.map(partial(run_part, under[tool]), PARTS) for tool in TOOLS}
        outcomes = [outcome(tool, list(parts)) for tool, parts in runs.items()]
    record = {
        "sanitizer_version": version(program),
        "tools": outcomes,
    }
    write_record(RESULTS / "kernel-sanitizer.json", record, f"python -m {COMMAND}")
    return 0 if all(one["errors"] == 0 for one in outcomes) else 1
