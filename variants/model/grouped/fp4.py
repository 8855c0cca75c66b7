"""NVFP4 as compressed-tensors and ModelOpt store it, and compressed-tensors' MXFP4: E2M1, two
columns a byte, the lower bits first.

- nvfp4-pack-quantized: codes `weight_packed` uint8 [rows, columns / 2], scales `weight_scale` E4M3
  [rows, columns / 16], over the matrix' `weight_global_scale` float32.
- ModelOpt: `weight` and `weight_scale` likewise, times `weight_scale_2` float32.
- mxfp4-pack-quantized: `weight_packed`, and `weight_scale` uint8 (E8M0) [rows, columns / 32].

The kernels multiply by the float32 scale of a row. That of compressed-tensors is the nearest
float32 to the quotient.

Source: compressed-tensors' NVFP4PackedCompressor and MXFP4PackedCompressor; vLLM's reader of
`modelopt_fp4`.
"""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.packed import e8m0_values
from decodescope.kernels.host.packing import Packing, packing_of
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
from decodescope.variants.model.grouped.matrix import GroupedMatrix, Groups, Tensors, nibbles


@dataclass(frozen=True, slots=True)
class Fp4(GroupedMatrix):
    """`packing` is never None. `whole` is the tensor of the matrix' own scale, if it has one."""

    whole: str | None = None
    divides: bool = False

    def groups(self, tensors: Tensors, rows: slice) -> Groups:
        codes = nibbles(tensors[self.tensors[0]][rows])
        stored = tensors[self.scale][rows]
        if self.whole is None:
            return Groups(codes, e8m0_values(stored))
        whole = tensors[self.whole].reshape(()).float()
        row_scale = 1 / whole if self.divides else whole
        # Divided by infinity, every weight would be zero.
        row_scale = torch.where(whole.isfinite(), row_scale, torch.nan).expand(len(codes))
        return Groups(codes, stored.float(), row_scale=row_scale)


def fp4(checkpoint: PackedCheckpoint, key: str, rows: int, columns: int) -> GroupedMatrix | None:
    """The matrix `key`, None if it is none of these formats.

    Raises:
        ModelError: tensors that are not what config.json says; names tensor and field.
    """
    named = {end: f"{key}.weight_{end}" for end in ("packed", "scale", "scale_2", "global_scale")}
    # ModelOpt names codes as others name weights of 16 or 8 bits.
    plain = checkpoint.tensors.get(f"{key}.weight")
    if plain is not None and plain.dtype != "U8":
        return None
    modelopt = plain is not None or named["scale_2"] in checkpoint.tensors
    codes = f"{key}.weight" if modelopt else named["packed"]
    scheme = checkpoint.scheme_of(("nvfp4", "mxfp4"), codes, named["scale"], columns)
    if scheme is None or not checkpoint.holds(key, codes, named["scale"]):
        return None
    field = f"group_size {scheme.group}"
    packing = packing_of(scheme.layout, columns)
    assert isinstance(packing, Packing)
    checkpoint.require_whole_groups(codes, columns, scheme)
    checkpoint.require(codes, ("U8",), (rows, columns // 2), "4 bits")
    whole = None
    if scheme.layout == "nvfp4":
        checkpoint.require(named["scale"], ("F8_E4M3",), (rows, columns // 16), field)
        whole = named["scale_2" if modelopt else "global_scale"]
        shape = checkpoint.tensors[whole].shape if whole in checkpoint.tensors else ()
        checkpoint.require(whole, ("F32",), shape if shape in ((), (1,)) else (), field)
    else:
        checkpoint.require(named["scale"], ("U8",), (rows, columns // 32), field)
    return Fp4(
        checkpoint.model,
        key,
        rows,
        columns,
        scheme.group,
        (codes, named["scale"], *([whole] if whole else ())),
        named["scale"],
        f"{'ModelOpt' if modelopt else 'compressed-tensors'} {scheme.layout}",
        packing,
        whole=whole,
        divides=not modelopt,
    )
