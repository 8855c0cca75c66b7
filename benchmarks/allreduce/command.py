"""`allreduce`: all-reduces by the size of their message."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import json_option, number_option, output_option


@click.command("allreduce")
@number_option(
    "--ranks",
    type=click.IntRange(2, 64),
    default=None,
    help="Processes. [default: one for each GPU, two on one GPU]",
)
@number_option(
    "--bytes",
    "sizes",
    type=click.IntRange(1024, 1 << 26),
    multiple=True,
    help="Bytes of a message; may be given several times. [default: 4 KB to 2 MB]",
)
@json_option
@output_option
def command(as_json: bool, output: Path | None, ranks: int | None, sizes: tuple[int, ...]) -> None:
    """Our all-reduce beside NCCL's and those of PyTorch's symmetric memory, in CUDA graphs.

    Starts its ranks itself, one for each GPU of this host. Each result is compared with float64,
    then all take turns in the same rounds. On one GPU only ours runs, and shows that it works.
    """
    check_writable(output, "-o", [])
    from decodescope.variants.machine.environment import require_gpu

    require_gpu("allreduce")
    import torch

    from benchmarks.allreduce.bench import SIZES, run_all_reduce_bench
    from benchmarks.allreduce.result_table import all_reduce_table

    result = run_all_reduce_bench(ranks or max(2, torch.cuda.device_count()), sizes or SIZES)
    report_result(output, result, all_reduce_table, as_json)
    if result.errors:
        raise DecodescopeError("allreduce: " + "; ".join(result.errors))
