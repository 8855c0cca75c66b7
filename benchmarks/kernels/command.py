"""`kernels`: each kernel of the fused step."""

from pathlib import Path

import rich_click as click

from benchmarks.harness.records import report_result
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.options import (
    checkpoint_files,
    dtype_option,
    json_option,
    number_option,
    output_option,
)
from decodescope.cli.output import library_output_to_stderr, progress


@click.command("kernels")
@click.option(
    "--model",
    metavar="M",
    default="llama-3.2-1b@random",
    show_default=True,
    help="A hub id, a checkpoint folder, or PRESET@random; only its shapes count.",
)
@number_option("--batch", default=1, show_default=True)
@number_option("--context", default=1024, show_default=True, help="Tokens in the KV cache.")
@dtype_option(default="bf16", show_default=True)
@click.option(
    "--variant",
    metavar="V",
    default="fused",
    show_default=True,
    help="A fused variant: its formats of weights, K and V are measured, such as fused+fp8_e4m3.",
)
@json_option
@output_option
def command(
    as_json: bool,
    output: Path | None,
    model: str,
    batch: int,
    context: int,
    dtype: str,
    variant: str,
) -> None:
    """Time and bandwidth of each kernel of the fused step, from cold memory; needs a GPU.

    Every kernel is first compared with its float64 reference; if one is wrong, it gets no time and
    the command fails.
    """
    check_writable(output, "-o", checkpoint_files(model))
    from decodescope.variants.machine.environment import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype
    from decodescope.variants.registry import find_variant

    spec = find_variant(variant).spec
    if spec is None:
        raise InputError(
            f"--variant {variant}: only fused kernels are measured; choose a fused variant"
        )
    workload = DecodeWorkload(batch, context, 1, parse_dtype(dtype))
    require_gpu("kernels")
    from benchmarks.kernels.kernel_bench import run_kernel_bench
    from benchmarks.kernels.result_table import kernel_table

    with progress() as show, library_output_to_stderr():
        result = run_kernel_bench(model, workload, spec.formats, show)
    report_result(output, result, kernel_table, as_json)
    if result.errors:
        raise DecodescopeError("kernels: " + "; ".join(result.errors))
