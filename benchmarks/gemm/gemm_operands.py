"""What the GEMMs of `gemm` multiply: the same random weights and activations for all."""

from functools import cached_property

import torch

from benchmarks.gemm.gemm_tiles import MAX_SPLITS
from benchmarks.kernels.operands import SEED
from decodescope.kernels.host.tile import padded_tokens
from decodescope.kernels.host.weights import NarrowFormat, WeightMatrix, quantized_rows
from decodescope.kernels.host.workspace import Workspace, new_workspace

OUT_DTYPE = torch.bfloat16

# The most rows of W that a tile may have past the end.
_PADDING = 256


class GemmOperands:
    """`copies` random matrices W [rows, columns] in each format, and x [tokens, columns].

    Weights preserve the size of activations. Each copy has its own numbers and memory; those of
    the other formats are the same matrices rounded. x is bfloat16, and E4M3 with a scale for each
    token. One workspace serves all kernels.
    """

    def __init__(self, rows: int, columns: int, tokens: int, copies: int, device: str) -> None:
        self.rows = rows
        self.columns = columns
        self.device = device
        generator = torch.Generator(device).manual_seed(SEED)
        std = columns**-0.5

        def normal(*shape: int) -> torch.Tensor:
            return torch.empty(shape, dtype=OUT_DTYPE, device=device).normal_(generator=generator)

        self.x = normal(tokens, columns)
        self.narrow_x, scale = quantized_rows(self.x, "fp8_e4m3")
        assert scale is not None
        self.x_scale = scale
        self.dense = [normal(rows, columns).mul_(std) for _ in range(copies)]
        self._narrow = {
            name: [WeightMatrix(*quantized_rows(one, name)) for one in self.dense]
            for name in _FORMATS
        }

    def narrow(self, format: NarrowFormat) -> list[WeightMatrix]:
        """The copies of W in a narrow format."""
        return self._narrow[format]

    @cached_property
    def workspace(self) -> Workspace:
        """Room for the partial sums of any tile that is measured."""
        rows = self.rows + _PADDING
        floats = MAX_SPLITS * rows * padded_tokens(len(self.x))
        return new_workspace(floats, rows, self.device)

    def out(self, tokens: int) -> torch.Tensor:
        """An output [tokens, rows], not written yet."""
        return torch.empty(tokens, self.rows, dtype=OUT_DTYPE, device=self.device)


_FORMATS: tuple[NarrowFormat, ...] = ("fp8_e4m3", "int8")
