"""Tiles of a product of one token: the weights of a few rows, loaded at once.

A program of the experts' down projection holds the rows of all experts of its token.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from decodescope.kernels.host.tile import MAX_REGISTERS, Tile
from decodescope.variants.steps.fused.tiling.shapes import (
    OF_EXPERTS,
    power_of_2_from,
    power_of_2_to,
)
from decodescope.variants.steps.fused.tiling.tile_kind import (
    LOAD_BYTES,
    MAX_WARPS,
    PROGRAMS_PER_MULTIPROCESSOR,
    Factors,
    TileKind,
)

# A thread's registers hold the weights loaded ahead, as stored, and one block as float32.
_MAX_THREAD_BYTES = 256
_MAX_THREAD_ELEMENTS = 128
# With so many, two programs of `MAX_WARPS` share the 65,536 registers of a multiprocessor.
_SHARED_REGISTERS = 128
_MIN_BLOCK, _SHORT_BLOCK = 256, 512
_MAX_ROWS = 256
_CHOICES: tuple[Factors, ...] = (
    {"columns": 0.5},
    {"rows": 2, "columns": 0.5},
    {"rows": 2, "columns": 0.5, "num_warps": 2},
    {"rows": 2, "num_warps": 2},
    {"num_warps": 2},
    {"num_warps": 0.5},
    {"rows": 0.5, "num_warps": 0.5},
    {"columns": None},
    {"columns": 0.5, "num_warps": 0.5, "splits": 2},
    {"rows": 2, "columns": 0.5, "splits": 2},
    {"rows": 0.5},
    {"rows": 2},
)


class VectorTiles(TileKind):
    """Tiles of weights as wide as activations: 16-bit, or float32."""

    def default(self, multiprocessors: int) -> Tile:
        """All the weights of a few rows: in one block, or in several if one block would need much
        padding."""
        shape, size, declared = self.shape, self.element_bytes, self.declared
        held = self._matrices_held()
        columns = self._block_columns()
        elements = self._most_elements(-(-shape.columns // columns))
        block_bytes = elements * size
        held_bytes = self._held_bytes() if held > 1 else block_bytes
        row_bytes = -(-shape.columns // columns) * columns * size
        programs = PROGRAMS_PER_MULTIPROCESSOR * multiprocessors
        rows = min(
            power_of_2_to(declared.program_bytes // (held * row_bytes)),
            power_of_2_to(shape.rows * shape.matrices // (held * programs)),
            self.most_rows,
            power_of_2_to(32 * MAX_WARPS * elements // columns),
            _MAX_ROWS,
        )
        rows = max(rows, declared.least_rows)
        threads = max(
            -(-rows * row_bytes // min(declared.thread_bytes, held_bytes)),
            -(-rows * columns * size // block_bytes),
        )
        warps = min(
            MAX_WARPS,
            power_of_2_from(-(-threads // 32)),
            power_of_2_to(rows * columns * size // (32 * LOAD_BYTES)),
        )
        # A multiprocessor that has only one program at a time reads nothing while that one ends.
        registers = _SHARED_REGISTERS if warps == MAX_WARPS and size == 2 else MAX_REGISTERS
        return self._with_blocks_ahead(Tile(rows, columns, warps, max_registers=registers))

    def around(self, start: Tile) -> Iterator[Tile]:
        sizes = tuple(self.scaled(start, _CHOICES))
        for tile in sizes:
            yield self._with_blocks_ahead(tile)
        # More rows than registers hold at once: their later blocks are loaded after the wait.
        for tile in sizes:
            yield replace(tile, num_stages=1)

    def limits(self, tile: Tile) -> tuple[Tile, ...]:
        """The same tile without a limit of registers, and with one that 512 threads fit under.

        Left to itself, the compiler gives a thread up to 255, so that its loads do not wait for
        each other. Then programs do, where fewer of them fit on a multiprocessor.
        """
        limited = tile.max_registers < MAX_REGISTERS
        other = MAX_REGISTERS if limited else _SHARED_REGISTERS
        return tile, replace(tile, max_registers=other)

    def fits(self, tile: Tile) -> bool:
        columns = self.shape.columns
        ahead = tile.blocks_ahead(columns)
        elements = tile.rows * tile.columns // (32 * tile.num_warps)
        block_bytes = elements * self.element_bytes
        return (
            self.declared.least_rows <= tile.rows <= self.most_rows
            and tile.num_warps <= MAX_WARPS
            and tile.splits <= self.max_splits
            and tile.splits <= -(-columns // tile.columns)
            and elements <= self._most_elements(ahead)
            and block_bytes * ahead <= self._held_bytes()
            # With less, some threads would load what others load.
            and (block_bytes >= LOAD_BYTES or tile.num_warps == 1)
            and tile.columns <= self.all_columns
        )

    def shared_bytes(self, tile: Tile) -> int:
        # Sums of each warp, and x, which threads exchange where a row is too short for all of them;
        # narrow weights on their way to the tensor cores.
        block = tile.rows * tile.columns if self.element_bytes == 1 else 0
        return 4 * MAX_WARPS * tile.rows + 4 * min(tile.columns, 4096) + block

    def _matrices_held(self) -> int:
        """Matrices of which a program holds rows: in `experts_down`, of all chosen experts."""
        return self.shape.matrices if self.operation == "experts_down" else 1

    def _held_bytes(self) -> int:
        """Bytes of one matrix that a thread has room for. One warp a program leaves more."""
        if self.operation != "experts_down":
            return _MAX_THREAD_BYTES
        held = self.declared.thread_bytes // self._matrices_held()
        return max(LOAD_BYTES, min(_MAX_THREAD_BYTES, held))

    def _block_columns(self) -> int:
        """The longest block that registers hold for the fewest rows and that adds an eighth of
        padding at most.

        If none has a useful length: all columns, or the shortest useful block if registers cannot
        hold them.
        """
        columns, rows = self.shape.columns, self.declared.least_rows
        threads = 32 * MAX_WARPS
        whole = self.all_columns
        block = whole
        while block >= _MIN_BLOCK:
            most = self._most_elements(whole // block)
            if rows * block <= threads * most and -columns % block * 8 <= columns:
                return block
            block //= 2
        fits_whole = rows * whole <= threads * self._most_elements(1)
        return whole if fits_whole else _SHORT_BLOCK

    def _with_blocks_ahead(self, tile: Tile) -> Tile:
        """The same tile with all of a row's blocks loaded ahead, or as many as registers hold."""
        block_bytes = tile.rows * tile.columns * self.element_bytes
        held = 32 * tile.num_warps * self._held_bytes() // block_bytes
        blocks = tile.blocks(self.shape.columns)
        return replace(tile, num_stages=max(1, min(blocks, held)))

    def _most_elements(self, blocks: int) -> int:
        """Elements of a block that a thread has room for; sums over several blocks need as many.

        Narrow elements stay packed until they are multiplied: twice as many have room.
        """
        size = self.element_bytes
        most = 2 * _MAX_THREAD_ELEMENTS if size == 1 else _MAX_THREAD_ELEMENTS
        if self.operation == "experts_down":
            # The weights of the other experts stay in registers.
            most //= 8
        elif blocks > 1:
            most //= 2
        return min(most, self._held_bytes() // size)


# Rows of a head of narrow weights for each multiprocessor, from which tiles of 32 win.
_MANY_ROWS = 128
# Rows that a program reads whole, if each multiprocessor has that many such programs and a row has
# that many columns.
_WHOLE_ROWS, _WHOLE_PROGRAMS, _WHOLE_ROW = 8, 8, 4096
# Columns that programs share.
_LONG_ROW = 8192
# Rows, columns and warps: tensor cores from 16 rows on, CUDA cores below.
_NARROW_CHOICES = (
    (16, 1024, 4),
    (32, 512, 2),
    (8, 4096, 4),
    (4, 8192, 8),
    (16, 512, 1),
    (16, 512, 2),
    (16, 2048, 4),
    (4, 2048, 4),
    (32, 512, 4),
    (32, 1024, 4),
    (8, 2048, 4),
    (16, 1024, 2),
    (16, 512, 4),
)


class NarrowTiles(VectorTiles):
    """Tiles of FP8 and INT8, multiplied on the tensor cores from 16 rows on."""

    def default(self, multiprocessors: int) -> Tile:
        """Small programs, so that many are under way at once: what won, or came close to it, on an
        H200 at the shapes of Llama 2 7B, 3.1 8B and 3.2 1B. Those of experts are as small with
        16-bit weights."""
        if self.operation in OF_EXPERTS:
            return super().default(multiprocessors)
        shape = self.shape
        splits = 1
        if self.may_split and shape.columns >= _LONG_ROW:
            rows, columns, warps, splits = 16, 512, 2, 4
        elif self.operation == "head" and shape.rows >= _MANY_ROWS * multiprocessors:
            rows, columns, warps = 32, 512, 2
        elif (
            _WHOLE_ROW // 2 < shape.columns <= _WHOLE_ROW
            and shape.rows >= _WHOLE_ROWS * _WHOLE_PROGRAMS * multiprocessors
        ):
            rows, columns, warps = _WHOLE_ROWS, _WHOLE_ROW, 4
        else:
            rows, columns, warps = 16, 1024, 4
        rows = min(rows, self.most_rows)
        columns = min(columns, self.all_columns)
        # Less than a load of 16 bytes a thread would be loaded twice.
        warps = max(1, min(warps, rows * columns // (32 * LOAD_BYTES)))
        splits = min(splits, -(-shape.columns // columns))
        return self._with_blocks_ahead(Tile(rows, columns, warps, splits=splits))

    def around(self, start: Tile) -> Iterator[Tile]:
        columns = self.shape.columns
        if self.operation in OF_EXPERTS:
            yield from super().around(start)
        for split_choices in ((4, 1), (2,)) if self.may_split else ((1,),):
            for (rows, block, warps), splits in product(_NARROW_CHOICES, split_choices):
                tile = Tile(rows, min(block, self.all_columns), warps, splits=splits)
                if splits == 1 or columns > 4 * block:
                    yield self._with_blocks_ahead(tile)
