"""out = the token's row of the embedding table: the first launch of a decode step.

Bytes moved: one row of the table for each sequence, read and written, and the ids: batch * (2 *
hidden * itemsize + 8). Token and position come from device memory, where the previous step wrote
them.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.launch import Launch, launch
from decodescope.kernels.host.operation import KernelOperation, Tensors

BLOCK = 1024
NUM_WARPS = 4


def embed_reference(table: torch.Tensor, tokens: torch.Tensor, position: int) -> torch.Tensor:
    """table[tokens[:, position]], [batch, hidden]."""
    return table[tokens[:, position]]


@triton.jit
def _embed_kernel(
    table_ptr,
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
    row = tl.load(table_ptr + token * hidden + column, mask=mask)
    tl.store(out_ptr + sequence * hidden + column, row, mask=mask)


@dataclass(frozen=True, slots=True)
class Embed(KernelOperation):
    """out[b] = table[tokens[b, position]].

    table [vocabulary, hidden] and out [batch, hidden] of one dtype, tokens int64 [batch, capacity +
    1], all contiguous; position int32 [1] on the device. A position or an id out of range reads the
    nearest one in range.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an empty table or no tokens.
    """

    table: torch.Tensor
    tokens: torch.Tensor
    position: torch.Tensor
    out: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        table, tokens = self.table, self.tokens
        if table.dim() != 2 or tokens.dim() != 2 or 0 in table.shape or 0 in tokens.shape:
            raise ValueError(
                f"table {list(table.shape)}, tokens {list(tokens.shape)}: must be [vocabulary, "
                "hidden] and [batch, capacity + 1], neither empty"
            )
        vocabulary, hidden = (int(size) for size in table.shape)
        batch, token_columns = (int(size) for size in tokens.shape)
        check_float("table", table)
        check_tensor("table", table, (vocabulary, hidden), table.dtype, table.device)
        check_tensor("tokens", tokens, (batch, token_columns), torch.int64, table.device)
        check_tensor("out", self.out, (batch, hidden), table.dtype, table.device)
        check_position(self.position, table.device)
        return launch(
            _embed_kernel,
            (batch, triton.cdiv(hidden, BLOCK)),
            table,
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
        return (self.table[: self.tokens.shape[0]],)

    def inputs(self, position: int) -> Tensors:
        return *self.weights, self.tokens[:, position]

    def reference(self, position: int) -> Tensors:
        return (embed_reference(self.table, self.tokens, position),)
