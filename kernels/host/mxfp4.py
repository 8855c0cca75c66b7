"""MXFP4: weights of 4 bits, E2M1, with a scale of 8 bits, E8M0, for each 32 columns of a row.

A weight is code * 2^(scale - 127). Checkpoints hold the 16 bytes of a block with two columns a
byte, the lower nibble first. The kernels read four 32-bit words instead: nibble j of word i is
column 4 j + i of the block, so that one nibble of the four words meets four neighbouring
activations.

Source: OCP Microscaling Formats Specification 1.0.
"""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.weights import WeightMatrix

BLOCK = 32
_PER_WORD = 8
_BIAS = 127
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Mxfp4Matrix(WeightMatrix):
    """W [rows, columns] in MXFP4: `data` int32 [rows, columns / 8], words of `packed_words`, and
    `scale` uint8 [rows, columns / 32]. Only the kernels of experts read it.

    Raises:
        ValueError: a shape, layout or dtype that they do not read.
    """

    def __post_init__(self) -> None:
        data, scale = self.data, self.scale
        if data.dtype != torch.int32 or data.dim() != 2 or not data.is_contiguous():
            raise ValueError(
                f"words of {data.dtype} {list(data.shape)}: must be contiguous int32 "
                f"[rows, columns / {_PER_WORD}]"
            )
        shape = (self.rows, self.columns // BLOCK)
        if scale is None or scale.dtype != torch.uint8 or tuple(scale.shape) != shape:
            raise ValueError(f"scales of MXFP4: must be uint8 {list(shape)}")
        if self.columns % BLOCK or 0 in data.shape or not scale.is_contiguous():
            raise ValueError(f"{self.columns} columns: must be whole blocks of {BLOCK}")

    @property
    def columns(self) -> int:
        return _PER_WORD * int(self.data.shape[1])

    def dense(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        assert self.scale is not None
        return unpacked(self.data, self.scale, dtype)


def packed_words(blocks: torch.Tensor) -> torch.Tensor:
    """The words int32 [..., 4 blocks] of a checkpoint's bytes, uint8 [..., blocks, 16]. Takes 24
    bytes of temporary memory for each of them."""
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    by_word = codes.unflatten(-1, (_PER_WORD, 4)).mT.int()
    words = by_word[..., 0].clone()
    for place in range(1, _PER_WORD):
        words |= by_word[..., place] << (4 * place)
    flat: torch.Tensor = words.flatten(-2)
    return flat


def unpacked(words: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weights [..., columns] of words [..., columns / 8] and scales [..., columns / 32]: exact,
    but for those beyond the range of `dtype`."""
    places = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    codes = (words.unflatten(-1, (-1, 4))[..., None] >> places).bitwise_and_(15).mT.flatten(-2)
    signed = (*_VALUES, *(-value for value in _VALUES))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = torch.tensor(signed, dtype=wide, device=words.device)[codes]
    weights: torch.Tensor = values * torch.exp2(scale.to(wide) - _BIAS)[..., None]
    return weights.to(dtype).flatten(-2)
