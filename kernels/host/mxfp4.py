"""MXFP4: weights of 4 bits, E2M1, with a scale of 8 bits, E8M0, for each 32 columns of a row.

A weight is code * 2^(scale - 127). Checkpoints hold the 16 bytes of a block with two columns a
byte, the lower nibble first. The kernels of experts read four 32-bit words instead: code j of word
i is column 4 j + i of the block, so that one code of the four words meets four neighbouring
activations.

Even codes are in the lower half of a word, odd ones in the upper half, four in each. The first
three stand such that one shift moves a code's magnitude and its sign to the lowest exponent bits
and the sign of a bfloat16, whose upper bits are those of a float32: 3 bits, and the sign 7 above
them. The fourth has the bits that are left.

Source: OCP Microscaling Formats Specification 1.0.
"""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.weights import Format, WeightMatrix

BLOCK = 32
_PER_WORD = 8
# Of each code of a half: which bits of it, and by how much they are shifted.
_FIELDS = (((7, 0), (8, 6)), ((7, 3), (8, 9)), ((7, 6), (8, 12)), ((1, 13), (6, 9), (8, 11)))
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

    @property
    def format(self) -> Format:
        return "mxfp4"

    def dense(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        assert self.scale is not None
        return unpacked(self.data, self.scale, dtype)


def packed_words(blocks: torch.Tensor) -> torch.Tensor:
    """The words int32 [..., 4 blocks] of a checkpoint's bytes, uint8 [..., blocks, 16]. Takes 24
    bytes of temporary memory for each of them."""
    codes = torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2)
    by_word = codes.unflatten(-1, (_PER_WORD, 4)).mT.int()
    words = torch.zeros_like(by_word[..., 0])
    for code in range(_PER_WORD):
        for bits, shift in _FIELDS[code // 2]:
            words |= (by_word[..., code] & bits) << (shift + 16 * (code % 2))
    flat: torch.Tensor = words.flatten(-2)
    return flat


def unpacked(words: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weights [..., columns] of words [..., columns / 8] and scales [..., columns / 32]: exact,
    but for those beyond the range of `dtype`."""
    codes = torch.stack([_code(words, code) for code in range(_PER_WORD)], dim=-1)
    codes = codes.unflatten(-2, (-1, 4)).mT.flatten(-2)
    signed = (*_VALUES, *(-value for value in _VALUES))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = torch.tensor(signed, dtype=wide, device=words.device)[codes]
    weights: torch.Tensor = values * torch.exp2(scale.to(wide) - _BIAS)[..., None]
    return weights.to(dtype).flatten(-2)


def _code(words: torch.Tensor, code: int) -> torch.Tensor:
    parts = [(words >> (shift + 16 * (code % 2))) & bits for bits, shift in _FIELDS[code // 2]]
    return sum(parts[1:], parts[0])
