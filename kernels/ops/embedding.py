"""out = the token's row of the embedding table: the first launch of a decode step.

A row is out[k] = data[token, k] * scale[token], rounded once to the dtype of `out`. Bytes moved:
one row of the table and its scale for each sequence, the row written, and the id: batch * (hidden *
(itemsize of the table + itemsize of out) + 4 + 8). Token and position come from device memory,
where the previous step wrote them.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import as_float32
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch, parameters
from decodescope.kernels.host.weights import WeightMatrix

BLOCK = 1024
NUM_WARPS = 4


def embed_reference(table: WeightMatrix, tokens: torch.Tensor, position: int) -> torch.Tensor:
    """table[tokens[:, position]] in float64, [batch, hidden]."""
    rows = tokens[:, position]
    values = table.data.double()[rows]
    return values if table.scale is None else values * table.scale.double()[rows, None]


@triton.jit
def _embed_kernel(
    table_ptr,
    scale_ptr,
    tokens_ptr,
    position_ptr,
    out_ptr,
    vocabulary,
    hidden,
    token_columns,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    # Other kernels call these in reverse order. The step's later kernels read the position before
    # they wait, so none may start before the previous step has written it.
    wait_for_previous(PDL)
    allow_next(PDL)
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < hidden
    # Clamped because a captured step may be replayed past the end of `tokens`: its result is
    # meaningless, but it must not read other memory.
    position = tl.minimum(tl.maximum(tl.load(position_ptr), 0), token_columns - 1)
    token = tl.load(tokens_ptr + sequence * token_columns + position)
    token = tl.minimum(tl.maximum(token, 0), vocabulary - 1)
    row = as_float32(tl.load(table_ptr + token * hidden + column, mask=mask))
    if scale_ptr is not None:
        row *= tl.load(scale_ptr + token)
    tl.store(out_ptr + sequence * hidden + column, row.to(out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class Embed(KernelOperation):
    """out[b] = table[tokens[b, position]].

    table [vocabulary, hidden] of any format without a bias; out [batch, hidden] in the model's
    dtype, which is the table's unless that is narrow; tokens int64 [batch, capacity + 1],
    contiguous; position int32 [1] on the device. A position or an id out of range reads the nearest
    one in range.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; no tokens; a table with a bias.
    """

    table: WeightMatrix
    tokens: torch.Tensor
    position: torch.Tensor
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        table, tokens = self.table, self.tokens
        if tokens.dim() != 2 or 0 in tokens.shape:
            raise ValueError(
                f"tokens {list(tokens.shape)}: must be [batch, capacity + 1], not empty"
            )
        if table.bias is not None:
            raise ValueError("an embedding table has no bias")
        vocabulary, hidden = table.rows, table.columns
        batch, token_columns = (int(size) for size in tokens.shape)
        device, stored = table.data.device, table.data.dtype
        check_tensor("tokens", tokens, (batch, token_columns), torch.int64, device)
        check_float("out", self.out)
        dtype = stored if stored.itemsize > 1 else self.out.dtype
        check_tensor("out", self.out, (batch, hidden), dtype, device)
        check_position(self.position, device)
        return launch(
            _embed_kernel,
            (batch, triton.cdiv(hidden, BLOCK)),
            table.data,
            table.scale,
            tokens,
            self.position,
            self.out,
            vocabulary,
            hidden,
            token_columns,
            BLOCK=BLOCK,
            PDL=pdl,
            num_warps=NUM_WARPS,
        )

    @property
    def weights(self) -> Tensors:
        # As many rows as sequences; which ones is known on the device only.
        count = self.tokens.shape[0]
        return tuple(tensor[:count] for tensor in parameters(self.table))

    def inputs(self, position: int) -> Tensors:
        return *self.weights, self.tokens[:, position]

    def reference(self, position: int) -> Tensors:
        return (embed_reference(self.table, self.tokens, position),)
