"""`bench`: the analyzer measured on this machine; the fused step's kernels and GEMMs on a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.io.output_paths import check_writable
from decodescope.cli.group import Group
from decodescope.cli.options import (
    DEFAULT_TOKENS,
    FILE,
    checkpoint_files,
    dtype_option,
    file_option,
    json_option,
    number_option,
    output_option,
)
from decodescope.cli.output import (
    library_output_to_stderr,
    progress,
    say,
    write_result,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from decodescope.variants.bench.report import BlockBenchmark, KernelBenchmark, TuneBenchmark

    Benchmark = KernelBenchmark | BlockBenchmark | TuneBenchmark

_MODEL, _BLOCK_MODEL = "llama-3.2-1b@random", "qwen2.5-0.5b@random"
_CONTEXT = 1024
# Below 16 a tile of the tensor cores would be mostly padding.
_VARIANT = "fused"
_SIZE = click.IntRange(16, 262_144)
# The default context of `run`: tiles are chosen for its KV cache.
_TUNE_CONTEXT = 128


@click.group(cls=Group)
def bench() -> None:
    """Measure decodescope itself, or its kernels; the result includes its environment."""


@bench.command("analyzer")
@json_option
@output_option
@number_option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
@number_option(
    "--events",
    type=click.IntRange(min=1000),
    default=230_000,
    show_default=True,
    help="How many events the trace has.",
)
@number_option(
    "--ranks",
    type=click.IntRange(min=2, max=1024),
    help="Also measure the files of so many ranks of one run, of 200,000 events each.",
)
@click.option(
    "--peer",
    metavar="PYTHON",
    type=FILE,
    help="A Python that has HolisticTraceAnalysis, to measure on the same file.",
)
def bench_analyzer(
    as_json: bool,
    output: Path | None,
    repeats: int,
    events: int,
    ranks: int | None,
    peer: Path | None,
) -> None:
    """Time and memory to read and analyse a large trace (230,000 events are 62 MB)."""
    from decodescope.analyzer.bench.benchmark import run_analyzer_benchmark
    from decodescope.analyzer.bench.result_table import benchmark_table
    from decodescope.analyzer.recordings.bundled import bundled_recordings

    most_events = max(bundled_recordings(), key=lambda path: path.stat().st_size)
    check_writable(output, "-o", [most_events, peer])
    result = run_analyzer_benchmark(most_events, repeats, events, peer, ranks)
    write_result(output, result, benchmark_table, as_json)


@dataclass(frozen=True, slots=True)
class _KernelOptions:
    """What `bench kernels` measures; None is the default of the chosen measurement."""

    model: str | None
    batch: int
    context: int | None
    dtype: str | None
    block: bool
    tune: bool
    tokens: int | None
    table: Path | None
    variant: str

    def check(self) -> None:
        """Raises InputError: options that contradict each other, or a table that cannot be
        written."""
        if self.block and self.tune:
            raise InputError("--block and --tune: give one of the two")
        if self.block and self.variant != _VARIANT:
            raise InputError(f"--variant {self.variant}: not with --block, which has no formats")
        for name, value in (("--tokens", self.tokens), ("--table", self.table)):
            if value is not None and not self.tune:
                raise InputError(f"{name} {value}: only with --tune")
        check_writable(self.table, "--table", checkpoint_files(self.model))


@bench.command("kernels")
@click.option(
    "--model",
    metavar="M",
    help="A hub id, a checkpoint folder, or PRESET@random; only its shapes count. "
    f"[default: {_MODEL}, with --block {_BLOCK_MODEL}]",
)
@number_option("--batch", default=1, show_default=True)
@number_option(
    "--context",
    help=f"Tokens in the KV cache. [default: {_CONTEXT}, with --block 64, 128, 256 and 512, with "
    f"--tune {_TUNE_CONTEXT}]",
)
@dtype_option(help="[default: bf16, with --block bf16 and fp16]")
@click.option(
    "--block",
    is_flag=True,
    help="Measure one attention block against transformers' modules, with and without CUDA graphs.",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Find the fastest tiles for the whole fused step and keep them for later runs: for the "
    "kernels without measured tiles on this GPU, or for all kernels if every one has some.",
)
@number_option(
    "--tokens",
    help="With --tune: new tokens that the KV cache has room for, as in the later runs. "
    f"[default: {DEFAULT_TOKENS}]",
)
@file_option(
    "--table",
    help="With --tune: a table of tiles to add the results to, such as the bundled one.",
)
@click.option(
    "--variant",
    metavar="V",
    default=_VARIANT,
    show_default=True,
    help="A fused variant: its formats of weights, K and V are measured, such as fused+fp8_e4m3.",
)
@json_option
@output_option
def bench_kernels(as_json: bool, output: Path | None, **options: Any) -> None:
    """Time and bandwidth of each kernel of the fused step, from cold memory; needs a GPU.

    Every kernel is first compared with its float64 reference; if one is wrong, it gets no time and
    the command fails. With --tune the whole step is timed instead, with one tile after another.
    """
    chosen = _KernelOptions(**options)
    chosen.check()
    check_writable(output, "-o", [chosen.table, *checkpoint_files(chosen.model)])
    result, table = _benchmark(chosen)
    write_result(output, result, table, as_json)
    if result.errors:
        raise DecodescopeError("bench kernels: " + "; ".join(result.errors))


def _benchmark(
    chosen: _KernelOptions,
) -> "tuple[Benchmark, Callable[[Any], RenderableType]]":
    from decodescope.variants.bench.result_tables import block_table, kernel_table, tune_table
    from decodescope.variants.machine.environment import require_gpu
    from decodescope.variants.model.workload import DecodeWorkload, parse_dtype
    from decodescope.variants.registry import find_variant

    spec = find_variant(chosen.variant).spec
    if spec is None:
        raise InputError(
            f"--variant {chosen.variant}: only fused kernels are measured; choose a fused variant"
        )
    context, tokens = _CONTEXT, 1
    if chosen.tune:
        context = _TUNE_CONTEXT
        tokens = DEFAULT_TOKENS if chosen.tokens is None else chosen.tokens
    context = context if chosen.context is None else chosen.context
    workload = DecodeWorkload(chosen.batch, context, tokens, parse_dtype(chosen.dtype or "bf16"))
    require_gpu("kernels")
    with progress(say if chosen.tune else None) as show, library_output_to_stderr():
        if chosen.tune:
            from decodescope.variants.bench.tile_tuning import run_tuning

            model, table = chosen.model or _MODEL, chosen.table
            return run_tuning(model, workload, spec.formats, table, show), tune_table
        if not chosen.block:
            from decodescope.variants.bench.kernel_bench import run_kernel_bench

            model = chosen.model or _MODEL
            return run_kernel_bench(model, workload, spec.formats, show), kernel_table
        from decodescope.variants.bench.block_bench import CACHE_LENGTHS, DTYPES, run_block_bench

        lengths = CACHE_LENGTHS if chosen.context is None else (chosen.context,)
        dtypes = DTYPES if chosen.dtype is None else (workload.dtype,)
        model = chosen.model or _BLOCK_MODEL
        return run_block_bench(model, chosen.batch, lengths, dtypes, show), block_table


@bench.command("gemm")
@number_option("--rows", type=_SIZE, default=8192, show_default=True, help="Rows of W: outputs.")
@number_option("--columns", type=_SIZE, default=8192, show_default=True, help="Columns of W.")
@number_option(
    "--tokens",
    type=click.IntRange(1, 64),
    multiple=True,
    help="Rows of x; may be given several times. [default: 1, 2, 4, 8, 16, 32 and 64]",
)
@file_option("--table", help="A table of tiles to add the results to, such as the bundled one.")
@json_option
@output_option
def bench_gemm(
    as_json: bool,
    output: Path | None,
    rows: int,
    columns: int,
    tokens: tuple[int, ...],
    table: Path | None,
) -> None:
    """Products with FP8 and INT8 weights beside cuBLAS, torch._scaled_mm and a plain Triton GEMM.

    Finds tiles for each number of tokens and keeps them, compares every result with float64, then
    times all in the same rounds, from cold memory in CUDA graphs; needs a GPU.
    """
    from decodescope.variants.machine.environment import require_gpu

    check_writable(table, "--table", [])
    check_writable(output, "-o", [table])
    require_gpu("gemm")
    from decodescope.variants.bench.gemm_bench import TOKENS, run_gemm_bench
    from decodescope.variants.bench.result_tables import gemm_table

    with progress(say) as show, library_output_to_stderr():
        result = run_gemm_bench(rows, columns, sorted(set(tokens)) or TOKENS, table, show)
    write_result(output, result, gemm_table, as_json)
    if result.errors:
        raise DecodescopeError("bench gemm: " + "; ".join(result.errors))


@bench.command("claims")
@click.option("--only", "names", metavar="NAME", multiple=True, help="Only this claim; repeatable.")
@click.option("--list", "listed", is_flag=True, help="Only list the claims and their sources.")
@click.option(
    "--gpt-fast",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="A checkout of gpt-fast, to measure beside ours.",
)
@json_option
@output_option
def bench_claims(
    as_json: bool, output: Path | None, names: tuple[str, ...], listed: bool, gpt_fast: Path | None
) -> None:
    """Published figures of the field, measured again side by side; needs a GPU.

    Every result is checked before it is timed, all contestants take turns in the same rounds, and
    no ratio is given whose check failed.
    """
    check_writable(output, "-o", [])
    if gpt_fast is not None and not (gpt_fast / "model.py").is_file():
        raise InputError(f"--gpt-fast {gpt_fast}: no checkout of gpt-fast (it has no model.py)")
    from decodescope.variants.machine.environment import require_gpu, require_run_packages

    require_run_packages()
    from decodescope.variants.claims.catalog import chosen_claims

    claims = chosen_claims(names)
    if listed:
        for claim in claims:
            click.echo(f"{claim.name}: {claim.title} ({claim.source.title}, {claim.source.url})")
        return
    require_gpu("claims")
    from decodescope.variants.claims.bench import run_claims
    from decodescope.variants.claims.table import claims_table

    with progress(say) as show, library_output_to_stderr():
        result = run_claims(claims, gpt_fast, show)
    write_result(output, result, claims_table, as_json)
    if result.errors:
        raise DecodescopeError("bench claims: " + "; ".join(result.errors))
