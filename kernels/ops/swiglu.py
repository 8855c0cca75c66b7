"""out = silu(gate) * up: the activation of SwiGLU, or that of GEGLU with GELU by tanh, or as
`ClampedGate` says.

Bytes moved: gate and up read, out written: rows * features * 3 * itemsize.

Source: Shazeer, GLU Variants Improve Transformer (arXiv 2002.05202).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.activations import gated
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.activation import AnyActivation, ClampedGate, activation_options
from decodescope.kernels.host.checks import check_float, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch

BLOCK = 1024
NUM_WARPS = 4


def swiglu_reference(
    gate: torch.Tensor, up: torch.Tensor, activation: AnyActivation = "silu"
) -> torch.Tensor:
    """activation(gate) * up in float64, silu(g) = g / (1 + exp(-g)), or as `ClampedGate` says; any
    one shape."""
    if isinstance(activation, ClampedGate):
        gate = gate.double().clamp(max=activation.limit)
        up = up.double().clamp(-activation.limit, activation.limit)
        return (up + 1) * gate * torch.sigmoid(activation.alpha * gate)
    if activation == "silu":
        return torch.nn.functional.silu(gate.double()) * up.double()
    return torch.nn.functional.gelu(gate.double(), approximate="tanh") * up.double()


@triton.jit
def _swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    features,
    blocks,
    gate_stride,
    up_stride,
    out_stride,
    BLOCK: tl.constexpr,
    GELU: tl.constexpr,
    ALPHA: tl.constexpr,
    LIMIT: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    # A row's blocks start together: 3 % less time than the blocks of many rows (experiments.md).
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    mask = column < features
    wait_for_previous(PDL)
    gate = tl.load(gate_ptr + row * gate_stride + column, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + column, mask=mask, other=0.0).to(tl.float32)
    out = gated(gate, up, GELU, ALPHA, LIMIT)
    tl.store(out_ptr + row * out_stride + column, out.to(out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True, slots=True)
class Swiglu(KernelOperation):
    """out = activation(gate) * up, or as `ClampedGate` says, computed in float32 and rounded once.

    gate, up, out [rows, features] of one dtype; rows may be strided, like the halves of one gate/up
    product. out may be gate or up itself.
    """

    gate: torch.Tensor
    up: torch.Tensor
    out: torch.Tensor
    activation: AnyActivation = "silu"

    def launch(self, pdl: bool = False) -> Launch:
        gate, up = self.gate, self.up
        if gate.dim() != 2:
            raise ValueError(f"gate {list(gate.shape)}: must be [rows, features]")
        rows, features = int(gate.shape[0]), int(gate.shape[1])
        check_float("gate", gate)
        for name, tensor in (("gate", gate), ("up", up), ("out", self.out)):
            check_tensor(name, tensor, (rows, features), gate.dtype, gate.device, strided=True)
        blocks = triton.cdiv(features, BLOCK)
        return launch(
            _swiglu_kernel,
            (rows * blocks,),
            gate,
            up,
            self.out,
            features,
            blocks,
            gate.stride(0),
            up.stride(0),
            self.out.stride(0),
            BLOCK=BLOCK,
            **activation_options(self.activation),
            PDL=pdl,
            num_warps=NUM_WARPS,
        )

    def inputs(self, position: int) -> Tensors:
        return self.gate, self.up

    def reference(self, position: int) -> Tensors:
        return (swiglu_reference(self.gate, self.up, self.activation),)
