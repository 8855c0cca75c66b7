"""INT8 weights against float16 ones, by tokens: half the memory, and the time of x W^T.

Ours are kernels for 1 to 64 tokens. A longer prompt is multiplied by weights that are converted to
float16 first, as decodescope's own prefill does. Bytes and bound are those of INT8 weights and
float16 products.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.entrants import cost_of, keeping_results, pytorch
from benchmarks.claims.prefill.source import (
    FFN,
    HIDDEN,
    SOURCE,
    TOKENS,
    TOLERANCE,
    drawn,
    fastest_of_ours,
    generator,
)
from benchmarks.claims.racing import Entrant, Racing, Tensors, Work, entrant_of
from benchmarks.claims.report import Race, Row
from benchmarks.claims.rows import share_of_peak, speed_up
from benchmarks.gemm.gemm_tiles import MAX_SPLITS, Candidate, GemmWork, split_candidates
from benchmarks.gemm.gemm_tuner import ranked
from benchmarks.gemm.split_k_gemm import SplitKGemm
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.text.formatting import bytes_size, percent
from decodescope.kernels.host.operation import KernelOperation, Launch
from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.kernels.host.weights import WeightMatrix, quantized_rows
from decodescope.kernels.host.workspace import MAX_BATCH, new_workspace
from decodescope.kernels.ops.dequantize_rows import DequantizeRows
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.variants.steps.fused.tiling.shapes import StepShapes
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu, this_target_gpu
from decodescope.variants.steps.fused.tiling.tiles import tile_candidates
from decodescope.variants.tuning.report import RoundSpread

CUBLAS, INT_MM, CONVERTED = "cublas_fp16", "int_mm", "converted_weights"

# By tokens, float16's time ÷ that of the source's Triton kernel, and ÷ that with torch._int_mm.
_TRITON = {1: 0.091 / 0.094, 32: 0.092 / 0.094, 2048: 0.760 / 1.352}
_WITH_INT_MM = {32: 0.092 / 0.367, 2048: 0.760 / 0.732}
# 480 of 1,555 GB/s, its Triton kernel at one token.
_SHARE_AT_1 = 0.31
# INT8 elements and a float32 scale for each row, "45 MB".
_NARROW_BYTES = FFN * HIDDEN + 4 * FFN
# torch._int_mm takes more.
_FEWEST_INT_MM = 17
# Activations rounded to 8 bits with a scale for each token.
_INT8_X_TOLERANCE = 2e-2
# Of each kernel; more tiles are not worth the wait for their compilation.
_TRIED = 12
# The most rows of W that a tile may have past the end.
_PADDING = 256


class Products:
    """W [rows, columns] in float16 and in INT8, in as many copies as keep them from the cache."""

    def __init__(self, racing: Racing, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self._draw = generator()
        count = racing.copies(Work(rows * columns))
        self.dense = [drawn(self._draw, rows, columns) * columns**-0.5 for _ in range(count)]
        self.narrow = [WeightMatrix(*quantized_rows(one, "int8")) for one in self.dense]
        padded = rows + _PADDING
        floats = MAX_SPLITS * padded_tokens(MAX_BATCH) * padded
        self.workspace = new_workspace(floats, padded, self._draw.device)

    def x(self, tokens: int) -> torch.Tensor:
        """Activations [tokens, columns]."""
        return drawn(self._draw, tokens, self.columns)

    def out(self, x: torch.Tensor) -> torch.Tensor:
        """A result of x, not written yet."""
        return x.new_empty(len(x), self.rows)


def measure_int8(
    setup: Setup,
    rows: int = FFN,
    columns: int = HIDDEN,
    sizes: Sequence[int] = (1, 32, TOKENS),
    gpu: TargetGpu | None = None,
) -> Measured:
    """All products, from few to many tokens."""
    products = Products(setup.racing, rows, columns)
    target = gpu or this_target_gpu()
    races = {}
    for tokens in sizes:
        setup.say(_tokens(tokens))
        races[tokens] = _race(setup.racing, products, tokens, target)
    shown = [row for tokens, race in races.items() for row in _rows(setup, race, tokens)]
    return Measured((_memory(products), *shown), tuple(races.values()), _NOTES)


def _race(racing: Racing, products: Products, tokens: int, gpu: TargetGpu) -> Race:
    x, weight = products.x(tokens), products.narrow[0]
    moved = weight.bytes_read + x.nbytes + products.out(x).nbytes
    work = Work(moved, 2 * tokens * products.rows * products.columns, "fp16")
    entrants = [_cublas(products, x)]
    if tokens <= MAX_BATCH:
        entrants += _kernels(products, x, racing, gpu)
    else:
        entrants.append(_converted(products, x))
    if tokens >= _FEWEST_INT_MM:
        entrants.append(_int_mm(products, x))
    size = f"{_tokens(tokens)}, W {products.rows:,} x {products.columns:,}"
    return racing.race(size, work, entrants)


def _cublas(products: Products, x: torch.Tensor) -> Entrant:
    def multiplied(weight: torch.Tensor) -> Tensors:
        return (F.linear(x, weight),)

    reference = (x.double() @ products.dense[0].double().T,)
    calls = [partial(multiplied, one) for one in products.dense]
    # The sums of splits may be rounded as well as the result.
    return pytorch(CUBLAS, "F.linear in float16", calls, reference, 2)


def _converted(products: Products, x: torch.Tensor) -> Entrant:
    """As `fused_step.weights_on` and a linear layer, but with a W of its own for each copy."""
    conversions = [
        DequantizeRows(narrow, torch.empty_like(dense))
        for narrow, dense in zip(products.narrow, products.dense, strict=True)
    ]

    def multiplied(convert: Launch, weight: torch.Tensor) -> Tensors:
        convert()
        return (F.linear(x, weight),)

    calls = [partial(multiplied, one.launch(), one.out) for one in conversions]
    for one in conversions:
        one.out.fill_(float("nan"))
    reference = (linear_reference(x, products.narrow[0]),)
    # Weights, sums of splits and the result are rounded.
    entrant = pytorch(CONVERTED, "our prefill: W to float16, cuBLAS", calls, reference, 3)
    # In Triton's interpreter, a kernel runs operators of PyTorch, which `pytorch` would count.
    product = cost_of(partial(F.linear, x, conversions[0].out))
    return dataclasses.replace(
        entrant,
        ours=True,
        traffic_bytes=product.bytes_moved + conversions[0].bytes_moved(0),
        launches=product.launches + 1,
    )


def _int_mm(products: Products, x: torch.Tensor) -> Entrant:
    """As the source: activations to INT8 by PyTorch, then cuBLAS, then a compiled scaling."""
    scaled = torch.compile(_scaled, dynamic=True)

    def summed(weight: WeightMatrix) -> tuple[torch.Tensor, torch.Tensor]:
        largest = x.abs().amax(dim=1, keepdim=True).clamp(min=1e-5)
        narrow = (x * (127 / largest)).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(narrow, weight.data.T), largest

    def multiplied(weight: WeightMatrix) -> Tensors:
        return (scaled(*summed(weight), weight.scale),)

    weight = products.narrow[0]
    calls = [partial(multiplied, one) for one in products.narrow]
    cost = cost_of(partial(summed, weight))
    compiled = (*summed(weight), weight.scale, products.out(x))
    return Entrant(
        INT_MM,
        "activations to INT8, torch._int_mm, scaled by compiled PyTorch",
        keeping_results(calls),
        calls[0],
        lambda: (linear_reference(x, weight),),
        _INT8_X_TOLERANCE,
        traffic_bytes=cost.bytes_moved + sum(one.nbytes for one in compiled if one is not None),
        launches=cost.launches + 1,
    )


def _scaled(sums: torch.Tensor, largest: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    assert scale is not None
    return (sums.float() * (largest.float() / 127) * scale).half()


def _kernels(
    products: Products, x: torch.Tensor, racing: Racing, gpu: TargetGpu
) -> Iterator[Entrant]:
    """Ours for decode steps, each with the fastest of its tiles."""
    rows, columns, tokens = products.rows, products.columns, len(x)
    outs = [products.out(x) for _ in products.narrow]
    work = GemmWork("gemm_int8", rows, columns, tokens)
    split = [one.tile for one in split_candidates(work, gpu, cache_folder())]

    def linears(tile: Tile) -> list[KernelOperation]:
        copies = zip(products.narrow, outs, strict=True)
        return [Linear(x, weight, out, tile) for weight, out in copies]

    def splits(tile: Tile) -> list[KernelOperation]:
        copies = zip(products.narrow, outs, strict=True)
        space = products.workspace
        return [SplitKGemm(x, None, weight, out, tile, space) for weight, out in copies]

    unsplit = tile_candidates("head", _shapes(rows, columns, tokens), gpu)
    for tiles, made in ((unsplit, linears), (split, splits)):
        tried = [Candidate(tile) for tile in tiles[:_TRIED]]
        tile = ranked(tried, lambda one: made(one.tile), racing.clock)[0].candidate.tile  # noqa: B023
        what = f"{tile.rows} x {tile.columns}, {tile.num_warps} warps, {tile.splits} splits"
        yield entrant_of(made(tile), what, TOLERANCE)


def _shapes(rows: int, columns: int, tokens: int) -> StepShapes:
    """A step whose head is this product, for the candidates of its tile."""
    return StepShapes(
        hidden=columns,
        heads=1,
        kv_heads=1,
        head_dim=64,
        intermediate=rows,
        vocab=rows,
        batch=tokens,
        capacity=1,
        activation_bytes=2,
        weight_bytes=1,
        head_bytes=1,
        kv_bytes=2,
        int8=True,
    )


def _memory(products: Products) -> Row:
    narrow, dense = products.narrow[0].bytes_read, products.dense[0].nbytes
    return Row(
        f"weights of {products.rows:,} x {products.columns:,} in INT8",
        "bytes",
        float(_NARROW_BYTES),
        RoundSpread.of([float(narrow)]),
        higher_is_better=False,
        explanation=f"{percent(narrow / dense)} % of the {bytes_size(dense)} of float16: a byte an "
        "element, and a float32 scale a row",
    )


def _rows(setup: Setup, race: Race, tokens: int) -> Iterator[Row]:
    ours = fastest_of_ours(race)
    what = f"{_tokens(tokens)}, INT8 over float16"
    yield speed_up(f"{what}, {ours.name}", race, CUBLAS, ours.name, _TRITON.get(tokens))
    if tokens == 1:
        yield share_of_peak(
            f"{what}: share of the datasheet's bandwidth",
            race,
            ours.name,
            _SHARE_AT_1,
            ours.bytes_moved or 0,
            setup.datasheet_bytes_per_s,
        )
    if tokens >= _FEWEST_INT_MM:
        published = _WITH_INT_MM.get(tokens)
        yield speed_up(f"{what}, torch._int_mm", race, CUBLAS, INT_MM, published)


def _tokens(tokens: int) -> str:
    return f"{tokens:,} token{'' if tokens == 1 else 's'}"


_NOTES = (
    "Of the source's ~1.0 x, 0.97 x is its Triton kernel at 1 token, and 1.04 x torch._int_mm at "
    "2,048 tokens; its Triton kernel is 0.56 x there.",
    "Our INT8 products are for decode steps of 1 to 64 tokens. For a prompt, one launch converts W "
    "to float16 and cuBLAS multiplies, which stands beside the source's Triton kernel.",
    "INT8 results are checked against float64 products of the same quantised weights. "
    "torch._int_mm rounds activations to 8 bits as well, hence its tolerance.",
)

INT8_GEMM = Claim(
    "int8-gemm",
    "INT8 weights: half the memory at about 1.0 x the time of float16",
    SOURCE,
    measure_int8,
)
