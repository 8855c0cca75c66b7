"""`bench kernels`: the fused step's kernels, measured on this GPU."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.files import check_writable, write_atomically
from decodescope.cli_options import FILE
from decodescope.terminal_io import (
    json_bytes,
    library_output_to_stderr,
    print_json,
    print_rich,
    progress,
    say,
)

if TYPE_CHECKING:
    from decodescope.variants.bench.report import BlockBenchmark, KernelBenchmark

_MODEL, _BLOCK_MODEL = "llama-3.2-1b@random", "qwen2.5-0.5b@random"
_CONTEXT = 1024


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
    help=f"Tokens in the KV cache. [default: {_CONTEXT}, with --block 64, 128, 256 and 512]",
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
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="Write the JSON to a file.")
def bench_kernels(
    model: str | None,
    batch: int,
    context: int | None,
    dtype: str | None,
    block: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Time and bandwidth of each kernel of the fused step, from cold memory; needs a GPU.

    Every kernel is compared with its float64 reference first; where one is wrong, no time is given
    and the command fails.
    """
    check_writable(output, "-o")
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


def _measured(
    model: str | None, batch: int, context: int | None, dtype: str | None, block: bool
) -> "KernelBenchmark | BlockBenchmark":
    from decodescope.variants.bench.needs import require_gpu
    from decodescope.variants.workload import DecodeWorkload, parse_dtype

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


def _print_table(result: "KernelBenchmark | BlockBenchmark") -> None:
    from decodescope.variants.bench.report import KernelBenchmark
    from decodescope.variants.bench.result_tables import block_table, kernel_table

    if isinstance(result, KernelBenchmark):
        print_rich(kernel_table(result))
    else:
        print_rich(block_table(result))
