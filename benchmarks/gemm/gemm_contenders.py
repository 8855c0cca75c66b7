"""The GEMMs that `gemm` measures: ours, a plain one in Triton, and those of torch.

Each computes x W^T for the first tokens of the same x. torch's are called as a user would call
them: cuBLAS in bfloat16, and `torch._scaled_mm` in E4M3 with one scale for the tensor or one for
each row, with its faster, less exact sums.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.gemm.gemm_operands import OUT_DTYPE, GemmOperands
from benchmarks.gemm.gemm_tiles import (
    Candidate,
    GemmWork,
    plain_candidates,
    split_candidates,
    unsplit_candidates,
)
from benchmarks.gemm.plain_gemm import PlainGemm
from benchmarks.gemm.split_k_gemm import SplitKGemm, split_k_gemm_reference
from benchmarks.harness.errors import relative_error
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.tile import MIN_DOT
from decodescope.kernels.host.weights import FORMATS, WeightMatrix
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu
from decodescope.variants.steps.fused.tiling.tile_table import GemmKind

Launch = Callable[[bool], object]
Result = Callable[[], torch.Tensor]

# bfloat16 outputs: half a unit in the last place, and sums of exact products in float32. FP8
# products are added with about 14 bits: over the whole inner dimension by torch's fast sums and a
# plain GEMM, over one block at most by ours.
TOLERANCE = 8e-3
FAST_SUMS_TOLERANCE = 3e-2


@dataclass(frozen=True, slots=True)
class Contender:
    """A GEMM on every copy of the weights: `launches[i](pdl)` runs it once on copy i.

    With `overlaps` a launch may start before the previous one has ended (PDL). `result` runs it on
    copy 0 and returns its output, whose float64 reference `reference` computes.
    `bytes_moved` is what one launch must read and write.
    """

    name: str
    launches: Sequence[Launch]
    result: Result
    reference: Result
    bytes_moved: int
    tolerance: float = TOLERANCE
    candidate: Candidate | None = None
    overlaps: bool = False
    note: str | None = None

    def error(self) -> float:
        """The relative error of copy 0 against float64."""
        return relative_error(self.result(), self.reference())


@dataclass(frozen=True, slots=True)
class Tuned:
    """A GEMM of ours, whose tile is chosen among candidates first.

    `operations` makes its operation on each copy; with `overlaps` it is also measured with PDL.
    """

    name: str
    candidates: tuple[Candidate, ...]
    operations: Callable[[Candidate], list[KernelOperation]]
    tolerance: float = TOLERANCE
    overlaps: bool = False

    def contender(self, candidate: Candidate, pdl: bool = False) -> Contender:
        """The GEMM with one candidate."""
        operations = self.operations(candidate)
        first = operations[0]

        def result() -> torch.Tensor:
            first.out.fill_(float("nan"))
            first.launch(pdl)
            return first.out

        return Contender(
            name=overlapped(self.name) if pdl else self.name,
            launches=[one.launch for one in operations],
            result=result,
            reference=lambda: first.reference(0)[0],
            bytes_moved=first.bytes_moved(0),
            tolerance=self.tolerance,
            candidate=candidate,
            overlaps=pdl,
        )


def overlapped(name: str) -> str:
    """The name of a GEMM that is launched with PDL."""
    return f"{name}_pdl"


def tuned_gemms(
    operands: GemmOperands, tokens: int, gpu: TargetGpu, folder: Path | None
) -> tuple[Tuned, ...]:
    """The split-K GEMM in three forms, its FP8 form without splits, and a plain Triton GEMM.

    `folder` keeps the tiles of earlier runs.
    """
    split = [
        Tuned(
            name,
            split_candidates(work_of(operands, tokens, kind), gpu, folder),
            partial(_split_operations, operands, kind, tokens),
            overlaps=True,
        )
        for name, kind in SPLIT_KINDS.items()
    ]
    fp8 = SPLIT_KINDS["w8a8"]
    unsplit = unsplit_candidates(work_of(operands, tokens, fp8), gpu)
    plain = partial(_plain_operations, operands, tokens)
    return (
        *split,
        Tuned("w8a8_unsplit", unsplit, partial(_split_operations, operands, fp8, tokens)),
        Tuned("plain_triton", plain_candidates(tokens), plain, FAST_SUMS_TOLERANCE),
    )


SPLIT_KINDS: dict[str, GemmKind] = {
    "w8a8": "gemm_w8a8",
    "w8a16": "gemm_w8a16",
    "int8": "gemm_int8",
}


def work_of(operands: GemmOperands, tokens: int, kind: GemmKind) -> GemmWork:
    """What one of the split-K GEMMs does."""
    return GemmWork(kind, operands.rows, operands.columns, tokens)


def _split_operations(
    operands: GemmOperands, kind: GemmKind, tokens: int, candidate: Candidate
) -> list[KernelOperation]:
    x, scale = operands.x[:tokens], None
    if kind == "gemm_w8a8":
        x, scale = operands.narrow_x[:tokens], operands.x_scale[:tokens]
    weights = operands.narrow("int8" if kind == "gemm_int8" else "fp8_e4m3")
    out, space = operands.out(tokens), operands.workspace
    return [SplitKGemm(x, scale, weight, out, candidate.tile, space) for weight in weights]


def _plain_operations(
    operands: GemmOperands, tokens: int, candidate: Candidate
) -> list[KernelOperation]:
    x, scale = operands.narrow_x[:tokens], operands.x_scale[:tokens]
    out, block = operands.out(tokens), candidate.token_block or MIN_DOT
    weights = operands.narrow("fp8_e4m3")
    return [PlainGemm(x, scale, weight, out, candidate.tile, block) for weight in weights]


def cublas(dtype: torch.dtype, operands: GemmOperands, tokens: int) -> Contender:
    """cuBLAS on the same matrices in a dtype of 16 bits."""
    x, weights = operands.x[:tokens].to(dtype), [one.to(dtype) for one in operands.dense]
    out = operands.out(tokens).to(dtype)
    calls = [partial(torch.mm, x, one.T, out=out) for one in weights]
    return Contender(
        name=f"cublas_{FORMATS[dtype]}",
        launches=[_without_pdl(call) for call in calls],
        result=calls[0],
        reference=lambda: x.double() @ weights[0].double().T,
        bytes_moved=x.nbytes + weights[0].nbytes + out.nbytes,
    )


def _scaled_mm(rowwise: bool, operands: GemmOperands, tokens: int) -> Contender:
    weights = operands.narrow("fp8_e4m3")
    x, x_scale = operands.narrow_x[:tokens], operands.x_scale[:tokens, None]
    scales = [_scale(weight) for weight in weights]
    if not rowwise:
        # The elements are those of the row-wise form; what they stand for does not matter.
        x_scale, scales = x_scale.mean(), [scale.mean() for scale in scales]

    def calls(rows: int) -> list[Result]:
        padded = torch.zeros(rows, operands.columns, dtype=x.dtype, device=x.device)
        padded.view(torch.uint8)[:tokens] = x.view(torch.uint8)
        given = x_scale
        if rowwise:
            given = torch.ones(rows, 1, device=x.device)
            given[:tokens] = x_scale
        return [
            partial(_multiply, padded, weight.data.T, given, scale)
            for weight, scale in zip(weights, scales, strict=True)
        ]

    multiplied, note = calls(tokens), None
    try:
        multiplied[0]()
    except RuntimeError:
        padded_rows = -(-tokens // MIN_DOT) * MIN_DOT
        multiplied, note = calls(padded_rows), f"x is padded to {padded_rows} rows"
    moved = weights[0].data.nbytes + scales[0].nbytes + x_scale.nbytes + x.nbytes
    reference = WeightMatrix(weights[0].data, scales[0].reshape(-1).expand(operands.rows).clone())
    return Contender(
        name="scaled_mm_rowwise" if rowwise else "scaled_mm_tensorwise",
        launches=[_without_pdl(call) for call in multiplied],
        result=lambda: multiplied[0]()[:tokens],
        reference=lambda: split_k_gemm_reference(x, x_scale.reshape(-1).expand(tokens), reference),
        bytes_moved=moved + tokens * operands.rows * OUT_DTYPE.itemsize,
        tolerance=FAST_SUMS_TOLERANCE,
        note=note,
    )


def _scale(weight: WeightMatrix) -> torch.Tensor:
    assert weight.scale is not None
    return weight.scale[None, :]


def _multiply(
    x: torch.Tensor, transposed: torch.Tensor, x_scale: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    return torch._scaled_mm(
        x, transposed, scale_a=x_scale, scale_b=scale, out_dtype=OUT_DTYPE, use_fast_accum=True
    )


def _without_pdl(call: Result) -> Launch:
    return lambda pdl: call()


# Whoever torch lacks, or whose shape it refuses, raises when it is made or called.
TORCH_PEERS: dict[str, Callable[[GemmOperands, int], Contender]] = {
    "cublas_bf16": partial(cublas, torch.bfloat16),
    "scaled_mm_tensorwise": partial(_scaled_mm, False),
    "scaled_mm_rowwise": partial(_scaled_mm, True),
}
