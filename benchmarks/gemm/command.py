"""`gemm`: products with FP8 and INT8 weights beside those of others."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import json_option, number_option, output_option
from decodescope.cli.output import library_output_to_stderr, progress

# Below 16 a tile of the tensor cores would be mostly padding.
_SIZE = click.IntRange(16, 262_144)


@click.command("gemm")
@number_option("--rows", type=_SIZE, default=8192, show_default=True, help="Rows of W: outputs.")
@number_option("--columns", type=_SIZE, default=8192, show_default=True, help="Columns of W.")
@number_option(
    "--tokens",
    type=click.IntRange(1, 64),
    multiple=True,
    help="Rows of x; may be given several times. [default: 1, 2, 4, 8, 16, 32 and 64]",
)
@json_option
@output_option
def command(
    as_json: bool,
    output: Path | None,
    rows: int,
    columns: int,
    tokens: tuple[int, ...],
) -> None:
    """Products with FP8 and INT8 weights beside cuBLAS, torch._scaled_mm and a plain Triton GEMM.

    Finds tiles for each number of tokens and keeps them, compares every result with float64, then
    times all in the same rounds, from cold memory in CUDA graphs; needs a GPU.
    """
    from decodescope.variants.machine.environment import require_gpu

    check_writable(output, "-o", [])
    require_gpu("gemm")
    from benchmarks.gemm.gemm_bench import TOKENS, run_gemm_bench
    from benchmarks.gemm.result_table import gemm_table

    with progress() as show, library_output_to_stderr():
        result = run_gemm_bench(rows, columns, sorted(set(tokens)) or TOKENS, show)
    report_result(output, result, gemm_table, as_json)
    if result.errors:
        raise DecodescopeError("gemm: " + "; ".join(result.errors))
