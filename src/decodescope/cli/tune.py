"""`tune`: the fastest tiles of the fused step on this GPU, kept for later runs."""

from pathlib import Path

import rich_click as click

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import write_json
from decodescope.analyzer.io.output_paths import check_writable, is_stdout
from decodescope.cli.options import (
    DEFAULT_TOKENS,
    check_ep,
    checkpoint_files,
    dtype_option,
    json_option,
    number_option,
    output_option,
)
from decodescope.cli.output import (
    library_output_to_stderr,
    print_result,
    progress,
    progress_option,
    say_written,
)


@click.command()
@click.option(
    "--model",
    metavar="M",
    default="llama-3.2-1b@random",
    show_default=True,
    help="A hub id, a checkpoint folder, or PRESET@random; only its shapes count.",
)
@number_option("--batch", default=1, show_default=True)
# The default context of `run`: tiles are chosen for its KV cache.
@number_option("--context", default=128, show_default=True, help="Tokens in the KV cache.")
@number_option(
    "--tokens",
    default=DEFAULT_TOKENS,
    show_default=True,
    help="New tokens that the KV cache has room for, as in the later runs.",
)
@dtype_option(default="bf16", show_default=True)
@click.option(
    "--variant",
    metavar="V",
    default="fused",
    show_default=True,
    help="A fused variant: its formats of weights, K and V are measured, such as fused+fp8_e4m3.",
)
@number_option(
    "--tp", default=1, show_default=True, help="Tune the part that one of N ranks has, on one GPU."
)
@click.option("--ep", is_flag=True, help="With --tp: a rank's part has whole experts.")
@json_option
@output_option
@progress_option
def tune(
    as_json: bool,
    output: Path | None,
    model: str,
    batch: int,
    context: int,
    tokens: int,
    dtype: str,
    variant: str,
    tp: int,
    ep: bool,
) -> None:
    """Find the fastest tiles for the whole fused step and keep them for later runs; needs a GPU.

    Measures the kernels without measured tiles on this GPU, or all kernels if every one has some.
    """
    check_writable(output, "-o", checkpoint_files(model))
    check_ep(ep, tp)
    from decodescope.variants.machine.environment import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype
    from decodescope.variants.registry import find_variant

    spec = find_variant(variant).spec
    if spec is None:
        raise InputError(
            f"--variant {variant}: only fused kernels are measured; choose a fused variant"
        )
    workload = DecodeWorkload(batch, context, tokens, parse_dtype(dtype))
    require_gpu("tune")
    from decodescope.variants.tuning.report import tune_table
    from decodescope.variants.tuning.tile_tuning import run_tuning

    with progress() as show, library_output_to_stderr():
        result = run_tuning(model, workload, spec.formats, tp, ep, show)
    if output is not None:
        write_json(output, result)
        say_written(output, "json")
    if not is_stdout(output):
        print_result(result, tune_table, as_json)
