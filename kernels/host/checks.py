"""Checks of operands: messages say what is wrong and what would be right."""

import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import SCALED_X, Norm
from decodescope.kernels.host.workspace import MAX_BATCH

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_float(name: str, tensor: torch.Tensor) -> None:
    """Raise `ValueError` unless the kernels support the tensor's dtype."""
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} is {tensor.dtype}: must be one of {list(FLOATS)}")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    strided: bool = False,
) -> None:
    """Raise `ValueError` unless `tensor` has this shape, dtype and device and is contiguous, its
    last dimension at least if it may be `strided`."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        raise ValueError(
            f"{name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: "
            f"must be {dtype} {list(shape)} on {device}"
        )
    if strided and shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has strides {tensor.stride()}: the last one must be 1")
    if not strided and not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}: must be contiguous")


def check_floats(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    device: torch.device,
    strided: bool = False,
) -> None:
    """As `check_float` and `check_tensor`, of any dtype of the kernels."""
    check_float(name, tensor)
    check_tensor(name, tensor, shape, tensor.dtype, device, strided)


def check_output(
    name: str,
    out: torch.Tensor,
    shape: tuple[int, ...],
    x: torch.Tensor,
    strided: bool = False,
) -> None:
    """Raise `ValueError` unless `out` has this shape, x's device and a dtype that `goes_with` x."""
    if x.dtype in SCALED_X:
        check_float(name, out)
    dtype = out.dtype if goes_with(x, out.dtype) else x.dtype
    check_tensor(name, out, shape, dtype, x.device, strided=strided)


def check_residual(residual: torch.Tensor, shape: tuple[int, ...], x: torch.Tensor) -> None:
    """As `check_output` of a residual stream; or of a rank's partial sums, which are float32."""
    if residual.dtype == torch.float32:
        check_tensor("residual", residual, shape, torch.float32, x.device)
    else:
        check_output("residual", residual, shape, x)


def goes_with(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether a model that computes in `dtype` may have x between its kernels.

    One may be float16 and the other bfloat16: products with narrow weights multiply float16, so the
    steps that have them pass it on. x with a scale goes with any dtype of the kernels.
    """
    if x.dtype in SCALED_X:
        return dtype in FLOATS
    return x.dtype == dtype or {x.dtype, dtype} == {torch.float16, torch.bfloat16}


def check_position(position: torch.Tensor, device: torch.device) -> None:
    """Raise `ValueError` unless `position` is int32 [1] on this device."""
    check_tensor("position", position, (1,), torch.int32, device)


def check_activations(x: torch.Tensor, features: int, device: torch.device) -> int:
    """The batch of activations x [batch, features], of a dtype of the kernels or of `SCALED_X`.

    Raises:
        ValueError: another shape, dtype or device, strides, a batch outside 1 to `MAX_BATCH`.
    """
    if x.dim() != 2 or not 1 <= x.shape[0] <= MAX_BATCH:
        raise ValueError(f"x {list(x.shape)}: must be [1 to {MAX_BATCH}, {features}]")
    batch = int(x.shape[0])
    if x.dtype not in SCALED_X:
        check_float("x", x)
    check_tensor("x", x, (batch, features), x.dtype, device)
    return batch


def check_unsplit(tile: Tile) -> None:
    """Raise `ValueError` unless each output of the tile belongs to one program."""
    if tile.splits > 1:
        raise ValueError(f"tile of {tile.splits} splits: only 1 here, nothing adds up the parts")


def check_apart(name: str, written: torch.Tensor, x: torch.Tensor) -> None:
    """Raise `ValueError` if `written` overlaps the activations x, both contiguous.

    Every program reads all of x, so a program that writes would change what others read.
    """
    start, x_start = written.data_ptr(), x.data_ptr()
    if start < x_start + x.nbytes and x_start < start + written.nbytes:
        raise ValueError(f"{name} shares memory with x: must have its own")


def check_norm(norm: Norm | None, features: int, device: torch.device) -> None:
    """Raise `ValueError` unless the norm, if any, has this many features."""
    if norm is not None:
        check_floats("norm weight", norm.weight, (features,), device)
