"""The limits of a GPU, and the tiles that an operation's kernel can run with on it."""

from dataclasses import replace

from msgspec import Struct

import decodescope
from decodescope.analyzer.machine.provenance import package_version
from decodescope.kernels.device.attention_splits import MAX_SPLITS
from decodescope.kernels.host.tile import MIN_DOT, Tile, padded_tokens
from decodescope.variants.machine.environment import driver_version
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    TiledOperation,
    power_of_2_from,
)


class TargetGpu(Struct, frozen=True):
    """One kind of GPU with its present software.

    `shared_bytes` is the most shared memory of one program. With another compiler, driver or kernel
    another tile may be the best.
    """

    name: str
    multiprocessors: int
    shared_bytes: int
    driver: str | None
    triton: str | None
    decodescope: str


def this_target_gpu() -> TargetGpu:
    """The first CUDA device; needs torch and a CUDA device."""
    import torch
    from triton.runtime import driver

    properties = torch.cuda.get_device_properties(0)
    return TargetGpu(
        name=properties.name,
        multiprocessors=properties.multi_processor_count,
        shared_bytes=driver.active.utils.get_device_properties(0)["max_shared_mem"],
        driver=driver_version(),
        triton=package_version("triton"),
        decodescope=decodescope.__version__,
    )


# A batched product splits its inner dimension where rows alone leave the GPU short of work.
SPLITTING: tuple[TiledOperation, ...] = ("o", "down")
MAX_PRODUCT_SPLITS = 8
# A thread's registers hold the weights loaded ahead, as stored, and one block as float32.
MAX_THREAD_BYTES = 256
MAX_THREAD_ELEMENTS = 128
LOAD_BYTES = 16
MAX_WARPS = 8
# With so many, two programs of `MAX_WARPS` share the 65,536 registers of a multiprocessor.
SHARED_REGISTERS = 128

MAX_COLUMNS = 512


def tile_fits(tile: Tile, operation: TiledOperation, shapes: StepShapes, gpu: TargetGpu) -> bool:
    """Whether the kernel can run with this tile and one of its programs fits on the GPU."""
    if not least_rows(operation, shapes.batch) <= tile.rows <= most_rows(operation, shapes):
        return False
    if tile.num_warps > MAX_WARPS or shared_bytes(tile, operation, shapes) > gpu.shared_bytes:
        return False
    if operation == "attention":
        return _fits_attention(tile, shapes)
    if tile.splits > (MAX_PRODUCT_SPLITS if operation in SPLITTING else 1):
        return False
    if shapes.batch == 1:
        return _fits_vector(tile, operation, shapes)
    return MIN_DOT <= tile.columns <= MAX_COLUMNS and not spills(tile, shapes)


def spills(tile: Tile, shapes: StepShapes) -> bool:
    """Whether a batched product is float32 and its blocks take more registers than there are.

    It has no tensor cores: registers hold the blocks. Triton 3.6 was seen to keep within them up to
    this size on compute capability 9.0, and to spill beyond it.
    """
    held = (tile.rows + padded_tokens(shapes.batch)) * tile.columns
    return shapes.activation_bytes == 4 and held > 768 * tile.num_warps


def shared_bytes(tile: Tile, operation: TiledOperation, shapes: StepShapes) -> int:
    """Upper bound of one program's shared memory: what Triton 3.6 was seen to use, rounded up."""
    element = shapes.element_bytes(operation)
    if operation == "attention":
        lanes = power_of_2_from(shapes.head_dim)
        queries = max(MIN_DOT, power_of_2_from(shapes.heads // shapes.kv_heads))
        # Blocks go to the products through shared memory: K, and V as well without tensor cores. Of
        # float8 both are there at once.
        operands = 1 if element == 2 else 2
        blocks = operands * tile.columns * lanes * element
        return blocks + queries * 4 * (lanes + tile.columns) + 1024
    if shapes.batch == 1:
        # Sums of each warp, and x, which threads exchange where a row is too short for all of them;
        # narrow weights on their way to the tensor cores.
        block = tile.rows * tile.columns if element == 1 else 0
        return 4 * MAX_WARPS * tile.rows + 4 * min(tile.columns, 4096) + block
    x_bytes = 1 if shapes.fp8_x and element == 1 else shapes.activation_bytes
    tokens = padded_tokens(shapes.batch) * x_bytes
    return tile.num_stages * (tile.rows * element + tokens) * tile.columns + 1024


def _fits_vector(tile: Tile, operation: TiledOperation, shapes: StepShapes) -> bool:
    columns = shapes.shape(operation).columns
    ahead = tile.blocks_ahead(columns)
    elements = tile.rows * tile.columns // (32 * tile.num_warps)
    block_bytes = elements * shapes.element_bytes(operation)
    return (
        elements <= most_elements(ahead, shapes.element_bytes(operation))
        and block_bytes * ahead <= MAX_THREAD_BYTES
        # With less, some threads would load what others load.
        and (block_bytes >= LOAD_BYTES or tile.num_warps == 1)
        and tile.columns <= power_of_2_from(columns)
        and tile.splits <= -(-columns // tile.columns)
    )


def _fits_attention(tile: Tile, shapes: StepShapes) -> bool:
    # Registers hold a block of K and V.
    lanes = power_of_2_from(shapes.head_dim)
    block_bytes = 2 * tile.columns * lanes * shapes.kv_bytes
    blocks = shapes.shape("attention").columns // tile.columns
    return (
        MIN_DOT <= tile.columns <= MAX_COLUMNS
        and tile.num_stages == 1
        and tile.splits <= max(1, min(MAX_SPLITS, blocks))
        and block_bytes <= 32 * tile.num_warps * attention_thread_bytes(shapes.kv_bytes)
    )


def least_rows(operation: TiledOperation, batch: int) -> int:
    """The fewest rows that a tile of this operation may have."""
    if operation == "attention":
        return 1
    if batch > 1:
        return MIN_DOT
    return 2 if operation in ("qkv", "gate_up") else 1


def most_rows(operation: TiledOperation, shapes: StepShapes) -> int:
    """The most rows of a tile of this operation, such that more than half of them are used."""
    shape = shapes.shape(operation)
    rows = power_of_2_from(shape.unit if operation == "qkv" else shape.rows)
    return max(least_rows(operation, shapes.batch), rows)


def with_blocks_ahead(tile: Tile, columns: int, element_bytes: int) -> Tile:
    """The same tile with all of a row's blocks loaded ahead, or as many as registers hold."""
    held = 32 * tile.num_warps * MAX_THREAD_BYTES // (tile.rows * tile.columns * element_bytes)
    return replace(tile, num_stages=max(1, min(tile.blocks(columns), held)))


def most_elements(blocks: int, element_bytes: int) -> int:
    """Elements of a block that a thread has room for; sums over several blocks need as many.

    Narrow elements stay packed until they are multiplied: twice as many have room.
    """
    most = 2 * MAX_THREAD_ELEMENTS if element_bytes == 1 else MAX_THREAD_ELEMENTS
    return most if blocks == 1 else most // 2


def attention_thread_bytes(element_bytes: int) -> int:
    """Bytes of K and V that an attention thread has room for.

    float32 products have no tensor cores and take registers themselves: with 512 bytes, Triton 3.6
    spills 1.6 KB a thread on compute capability 9.0 at head_dim 128, with 256 below 0.2 KB. float8
    becomes float16, twice as large: with 256 bytes it takes 142 registers, with 512 it takes 213,
    and no third program has room.
    """
    return 512 if element_bytes == 2 else 256
