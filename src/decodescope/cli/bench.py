"""`bench kernels`: the fused step's kernels, measured on this GPU."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.files import check_writable, write_atomically
from decodescope.cli.options import FILE
from decodescope.cli.terminal_io import (
    json_bytes,
    library_output_to_stderr,
    print_json,
    print_rich,
    progress,
    say,
)

if TYPE_CHECKING:
    from decodescope.variants.bench.report import BlockBenchmark, KernelBenchmark, TuneBenchmark

    Benchmark = KernelBenchmark | BlockBenchmark | TuneBenchmark

_MODEL, _BLOCK_MODEL = "llama-3.2-1b@random", "qwen2.5-0.5b@random"
_CONTEXT = 1024
# Those of `run`, whose KV cache is what tiles are chosen for.
_TUNE_CONTEXT, _TUNE_TOKENS = 128, 128


@click.command("kernels")
@click.option(
    "--model",
    metavar="M",
    help="A hub id, a checkpoint folder, or PRESET@random; only its shapes count. "
    f"[default: {_MODEL}, with --block {_BLOCK_MODEL}]",
)
@click.option("--batch", metavar="N", type=int, default=1, show_default=True)
@click.option(
    "--context",
    metavar="N",
    type=int,
    help=f"Tokens in the KV cache. [default: {_CONTEXT}, with --block 64, 128, 256 and 512, with "
    f"--tune {_TUNE_CONTEXT}]",
)
@click.option(
    "--dtype",
    type=click.Choice(["bf16", "fp16", "fp32"]),
    help="[default: bf16, with --block bf16 and fp16]",
)
@click.option(
    "--block",
    is_flag=True,
    help="One attention block against transformers' modules, with and without CUDA graphs.",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Find the fastest tiles for the whole fused step, and keep them for later runs: of the "
    "kernels that have none measured here, or of all if all have.",
)
@click.option(
    "--tokens",
    metavar="N",
    type=int,
    help="With --tune: new tokens that the KV cache has room for, as those of the run to come. "
    f"[default: {_TUNE_TOKENS}]",
)
@click.option(
    "--table",
    metavar="FILE",
    type=FILE,
    help="With --tune: a table of tiles to add them to, such as the one that is shipped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write the JSON to a file.")
def bench_kernels(
    model: str | None,
    batch: int,
    context: int | None,
    dtype: str | None,
    block: bool,
    tune: bool,
    tokens: int | None,
    table: Path | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Time and bandwidth of each kernel of the fused step, from cold memory; needs a GPU.

    Every kernel is compared with its float64 reference first; where one is wrong, no time is given
    and the command fails. With --tune the whole step is timed instead, with one tile after the
    other.
    """
    _check_options(block, tune, tokens, table)
    check_writable(output, "-o")
    if tune:
        result = _tuned(model, batch, context, tokens, dtype, table)
    else:
        result = _measured(model, batch, context, dtype, block)
    if output is not None:
        write_atomically(output, msgspec.json.format(json_bytes(result)) + b"\n")
        say(f"wrote {output}")
    if as_json:
        print_json(result)
    else:
        _print_table(result)
    if result.errors:
        raise DecodescopeError("bench kernels: " + "; ".join(result.errors))


def _check_options(block: bool, tune: bool, tokens: int | None, table: Path | None) -> None:
    if block and tune:
        raise InputError("--block and --tune: give one of the two")
    for name, value in (("--tokens", tokens), ("--table", table)):
        if value is not None and not tune:
            raise InputError(f"{name} {value}: only with --tune")
    check_writable(table, "--table")


def _tuned(
    model: str | None,
    batch: int,
    context: int | None,
    tokens: int | None,
    dtype: str | None,
    table: Path | None,
) -> "Benchmark":
    from decodescope.variants.bench.needs import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype

    workload = DecodeWorkload(
        batch,
        _TUNE_CONTEXT if context is None else context,
        _TUNE_TOKENS if tokens is None else tokens,
        parse_dtype(dtype or "bf16"),
    )
    require_gpu()
    with progress(say) as show, library_output_to_stderr():
        from decodescope.variants.bench.tile_tuning import run_tuning

        return run_tuning(model or _MODEL, workload, table, show)


def _measured(
    model: str | None, batch: int, context: int | None, dtype: str | None, block: bool
) -> "Benchmark":
    from decodescope.variants.bench.needs import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype

    chosen = parse_dtype(dtype or "bf16")
    workload = DecodeWorkload(
        batch, _CONTEXT if context is None else context, new_tokens=1, dtype=chosen
    )
    require_gpu()
    with progress() as show, library_output_to_stderr():
        if not block:
            from decodescope.variants.bench.kernel_bench import run_kernel_bench

            return run_kernel_bench(model or _MODEL, workload, show)
        from decodescope.variants.bench.block_bench import CACHE_LENGTHS, DTYPES, run_block_bench

        lengths = CACHE_LENGTHS if context is None else (context,)
        dtypes = DTYPES if dtype is None else (chosen,)
        return run_block_bench(model or _BLOCK_MODEL, batch, lengths, dtypes, show)


def _print_table(result: "Benchmark") -> None:
    from decodescope.variants.bench.report import KernelBenchmark, TuneBenchmark
    from decodescope.variants.bench.result_tables import block_table, kernel_table, tune_table

    if isinstance(result, KernelBenchmark):
        print_rich(kernel_table(result))
    elif isinstance(result, TuneBenchmark):
        print_rich(tune_table(result))
    else:
        print_rich(block_table(result))
