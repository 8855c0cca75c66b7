"""`block`: one attention block, eager and fused."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import (
    checkpoint_files,
    dtype_option,
    json_option,
    number_option,
    output_option,
)
from decodescope.cli.output import library_output_to_stderr, progress


@click.command("block")
@click.option(
    "--model",
    metavar="M",
    default="qwen2.5-0.5b@random",
    show_default=True,
    help="A hub id, a checkpoint folder, or PRESET@random; only its shapes count.",
)
@number_option("--batch", default=1, show_default=True)
@number_option("--context", help="Tokens in the KV cache. [default: 64, 128, 256 and 512]")
@dtype_option(help="[default: bf16 and fp16]")
@json_option
@output_option
def command(
    as_json: bool,
    output: Path | None,
    model: str,
    batch: int,
    context: int | None,
    dtype: str | None,
) -> None:
    """One attention block against transformers' modules, with and without CUDA graphs; needs a GPU.

    Every block is first compared with the same block in float32; if the fused one is wrong, it gets
    no time and the command fails.
    """
    check_writable(output, "-o", checkpoint_files(model))
    from decodescope.variants.machine.environment import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype

    DecodeWorkload(batch, 1 if context is None else context, 1)
    require_gpu("block")
    from benchmarks.block.block_bench import CACHE_LENGTHS, DTYPES, run_block_bench
    from benchmarks.block.result_table import block_table

    lengths = CACHE_LENGTHS if context is None else (context,)
    dtypes = DTYPES if dtype is None else (parse_dtype(dtype),)
    with progress() as show, library_output_to_stderr():
        result = run_block_bench(model, batch, lengths, dtypes, show)
    report_result(output, result, block_table, as_json)
    if result.errors:
        raise DecodescopeError("block: " + "; ".join(result.errors))
