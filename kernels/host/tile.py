"""The choices of a launch that do not change its results."""

from dataclasses import dataclass

# The tensor cores (tl.dot) multiply blocks of at least this many rows and columns.
MIN_DOT = 16
# A thread has no more.
MAX_REGISTERS = 255


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """How a kernel divides its work.

    rows: outputs of one program (attention ignores it: a program has all heads of a KV head).
    columns: elements of the inner dimension in one block (attention: positions of the KV cache).
    splits: programs that share one output, each with a part of the inner dimension. num_stages:
    blocks in flight; at batch 1, blocks loaded before the previous kernel has ended. Rows, columns
    and num_warps are powers of two. max_registers: the most that a thread of a step's product may
    use, so that more programs share a multiprocessor. What the compiler finds no register for goes
    to slower memory.

    Raises:
        ValueError: a size below 1, or one that must be a power of two and is not; more registers
            than a thread has.
    """

    rows: int
    columns: int
    num_warps: int = 4
    num_stages: int = 1
    splits: int = 1
    max_registers: int = MAX_REGISTERS

    def __post_init__(self) -> None:
        for name in ("rows", "columns", "num_warps"):
            size = getattr(self, name)
            if size < 1 or size & (size - 1):
                raise ValueError(f"tile {name} {size}: must be a power of two")
        if self.splits < 1 or self.num_stages < 1:
            raise ValueError(f"tile with {self.splits} splits, {self.num_stages} stages: below 1")
        if not 1 <= self.max_registers <= MAX_REGISTERS:
            raise ValueError(f"max_registers {self.max_registers}: must be 1 to {MAX_REGISTERS}")

    def blocks(self, columns: int) -> int:
        """Blocks of one program in an inner dimension of `columns` elements."""
        return -(-columns // (self.splits * self.columns))

    def blocks_ahead(self, columns: int) -> int:
        """Blocks that a batch-1 program loads before it waits for the previous kernel."""
        return min(self.num_stages, self.blocks(columns))


def padded_tokens(batch: int) -> int:
    """The narrow side of a batched product: a power of two, at least `MIN_DOT`."""
    return max(MIN_DOT, 1 << (batch - 1).bit_length())
