"""How weights become the codes and scales of a format of 4 bits (`packing.py`), and weights again.

Each group of columns is rounded to nearest, ties to even, with the scale that has the least sum of
squared errors among a few: smaller ones cut off the largest weights and round the others less.
"""

from collections.abc import Iterator

import torch

from decodescope.kernels.host.packing import E8M0_BIAS, PER_WORD, WORDS, Packing

_MIDDLE = 8
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_MOST_E2M1 = 6.0
_MOST_E4M3 = 448.0
_E8M0_NAN = 255
# The exponent of the largest E2M1.
_E2M1_EXPONENT = 2
# Scales that are tried, relative to the one that maps the largest weight to the largest code.
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 1.05)
_E4M3_SHARES = (1.0, 0.9, 0.8, 1.1, 1.25, 1.5)


def quantized_groups(
    matrix: torch.Tensor, packing: Packing, largest: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`matrix` float32 [rows, columns], its rows with these `largest` magnitudes, as words int32
    [rows, width], and the rows' scales, float32 [rows], of a format that has them. Takes 40 bytes
    of temporary memory for each element.

    Raises:
        ValueError: weights beyond the largest of the format; names their row.
    """
    values = torch.nn.functional.pad(matrix, (0, packing.padded - packing.columns))
    row_scale: torch.Tensor | None = None
    if packing.format.row_scaled:
        row_scale = largest / (_MOST_E2M1 * _MOST_E4M3)
        row_scale = torch.where(row_scale < torch.finfo(torch.float32).tiny, 1.0, row_scale)
        values = values / row_scale[:, None]
    groups = torch.nn.functional.pad(values, (0, packing.groups * packing.group - packing.padded))
    groups = groups.unflatten(1, (packing.groups, packing.group))
    if bool((bad := matrix.abs().amax(dim=1) > packing.format.largest).any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"row {row} of the weights is beyond the scales of {packing.format}")
    codes, scales = _best(groups, packing)
    return packed(codes.flatten(1)[:, : packing.padded], scales, packing), row_scale


def _best(groups: torch.Tensor, packing: Packing) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes uint8 [rows, groups, columns] and scales [rows, groups, 1 or 2] as float32, a zero
    point behind the scale."""
    best: tuple[torch.Tensor, torch.Tensor] | None = None
    least = torch.empty(0)
    for scales in _candidates(groups, packing):
        codes = _rounded(groups, scales, packing)
        errors = (_values(codes, scales, packing, torch.float32) - groups).square().sum(dim=2)
        # Comparisons with NaN are false: scales that are infinite win only if they come first.
        if best is None:
            best, least = (codes, scales), errors
            continue
        better = errors < least
        least = torch.where(better, errors, least)
        pairs = zip((codes, scales), best, strict=True)
        codes, scales = (torch.where(better[..., None], new, old) for new, old in pairs)
        best = codes, scales
    assert best is not None
    return best


def _candidates(groups: torch.Tensor, packing: Packing) -> Iterator[torch.Tensor]:
    largest = groups.abs().amax(dim=2, keepdim=True)
    match packing.format.scales:
        case "fp16":
            # The sign decides which end has the extra code.
            first = groups.gather(2, groups.abs().argmax(dim=2, keepdim=True))
            for share in _SHARES:
                for code in (-8.0, 7.0):
                    yield (first / code * share).half().float()
        case "fp16_zero":
            low = groups.amin(dim=2, keepdim=True).clamp(max=0)
            high = groups.amax(dim=2, keepdim=True).clamp(min=0)
            for share in _SHARES:
                scale = ((high - low) / 15 * share).half().float()
                zero = (-low * share / _divisor(scale)).round().clamp(0, 15)
                yield torch.cat((scale, zero), dim=2)
        case "e8m0":
            byte = torch.frexp(largest).exponent - 1 - _E2M1_EXPONENT + E8M0_BIAS
            for more in (0, 1):
                yield e8m0_values((byte + more).clamp(0, 2 * E8M0_BIAS).to(torch.uint8))
        case "e4m3":
            for share in _E4M3_SHARES:
                scale = (largest / _MOST_E2M1 * share).clamp(max=_MOST_E4M3)
                yield scale.to(torch.float8_e4m3fn).float()


def _divisor(scale: torch.Tensor) -> torch.Tensor:
    """Weights below the smallest scale become zeros."""
    return torch.where(scale == 0, 1.0, scale)


def _rounded(groups: torch.Tensor, scales: torch.Tensor, packing: Packing) -> torch.Tensor:
    quotients = groups / _divisor(scales[..., :1])
    if not packing.format.e2m1:
        zero = scales[..., 1:] if packing.format.scales == "fp16_zero" else _MIDDLE
        return (quotients.round_() + zero).clamp_(0, 15).to(torch.uint8)
    size = quotients.abs()
    code = torch.where(
        size < 2,
        (2 * size).round(),
        torch.where(size < 4, size.round() + 2, (size / 2).round() + 4),
    )
    return code.clamp_(max=7).to(torch.uint8) | (quotients.signbit().to(torch.uint8) << 3)


def _values(
    codes: torch.Tensor, scales: torch.Tensor, packing: Packing, dtype: torch.dtype
) -> torch.Tensor:
    """The weights of codes [rows, groups, columns] and scales [rows, groups, 1 or 2]."""
    scale = scales[..., :1].to(dtype)
    if packing.format.e2m1:
        signed = (*_E2M1, *(-value for value in _E2M1))
        return torch.tensor(signed, dtype=dtype, device=codes.device)[codes.long()] * scale
    zero = scales[..., 1:].to(dtype) if packing.format.scales == "fp16_zero" else _MIDDLE
    return (codes.to(dtype) - zero) * scale


def packed(codes: torch.Tensor, scales: torch.Tensor, packing: Packing) -> torch.Tensor:
    """Words int32 [rows, width] of codes [rows, padded columns], 0 to 15, and scales [rows, groups,
    1 or 2], each of a value that the format has."""
    by_word = codes.unflatten(1, (-1, PER_WORD // 2, WORDS, 2)).transpose(2, 3).flatten(1, 2).int()
    rows = torch.zeros(len(codes), packing.width, dtype=torch.int32, device=codes.device)
    words = rows[:, : packing.words]
    for pair, fields in enumerate(packing.format.fields):
        for half in range(2):
            for bits, shift in fields:
                words |= (by_word[:, :, pair, half] & bits) << (shift + 16 * half)
    stored = rows[:, packing.words :].view(torch.uint8)
    stored[:, : packing.scale_bytes] = _scale_bytes(scales, packing)
    return rows


def _scale_bytes(scales: torch.Tensor, packing: Packing) -> torch.Tensor:
    match packing.format.scales:
        case "fp16" | "fp16_zero":
            return scales.half().flatten(1).contiguous().view(torch.uint8)
        case "e8m0":
            exponents = torch.frexp(scales).exponent - 1 + E8M0_BIAS
            known = torch.where(scales.isfinite(), exponents, _E8M0_NAN)
            return known.to(torch.uint8).flatten(1)
        case "e4m3":
            return scales.to(torch.float8_e4m3fn).flatten(1).contiguous().view(torch.uint8)


def e8m0_values(stored: torch.Tensor) -> torch.Tensor:
    """2^(byte - 127) of bytes uint8 in float32, NaN of 255. As bits: exp2 is not exact on every
    device, and that of 0 is a subnormal number."""
    bits = torch.where(stored == 0, 1 << 22, stored.int() << 23)
    return torch.where(stored == _E8M0_NAN, torch.nan, bits.view(torch.float32))


def codes_and_scales(
    words: torch.Tensor, packing: Packing, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes uint8 [rows, padded columns] and the scales [rows, groups, 1 or 2] of `packed`."""
    of_codes = words[:, : packing.words]
    codes = torch.zeros(*of_codes.shape, PER_WORD // 2, 2, dtype=torch.uint8, device=words.device)
    for pair, fields in enumerate(packing.format.fields):
        for half in range(2):
            for bits, shift in fields:
                codes[:, :, pair, half] |= ((of_codes >> (shift + 16 * half)) & bits).to(
                    torch.uint8
                )
    stored = words[:, packing.words :].contiguous().view(torch.uint8)
    stored = stored[:, : packing.scale_bytes].contiguous()
    if packing.format.scales == "e8m0":
        scales = e8m0_values(stored).to(dtype)
    elif packing.format.scales == "e4m3":
        scales = stored.view(torch.float8_e4m3fn).to(dtype)
    else:
        scales = stored.view(torch.float16).to(dtype)
    in_order = codes.unflatten(1, (-1, WORDS)).transpose(2, 3)
    return in_order.flatten(1), scales.unflatten(1, (packing.groups, -1))


def unpacked(words: torch.Tensor, packing: Packing, dtype: torch.dtype) -> torch.Tensor:
    """The weights [rows, columns] of words, without the scales of rows, computed in float32 or
    float64."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    codes, scales = codes_and_scales(words, packing, wide)
    padding = packing.groups * packing.group - packing.padded
    groups = torch.nn.functional.pad(codes, (0, padding)).unflatten(1, (packing.groups, -1))
    weights = _values(groups, scales, packing, wide).flatten(1)
    return weights[:, : packing.columns].to(dtype)


def in_column_order(x: torch.Tensor) -> torch.Tensor:
    """The numbers int32 [rows, columns] of int16 x as `ops/rms_norm_integers.py` stores it."""
    # [rows, chunks, planes, nibbles, words, halves of a word, bytes of a half]
    planes = x.view(torch.int8).int().unflatten(1, (-1, 2, 2, WORDS, 2, 2))
    values = planes[:, :, 0] * 256 + planes[:, :, 1]
    in_order: torch.Tensor = values.permute(0, 1, 5, 2, 3, 4).flatten(1)
    return in_order


def sums_of_pairs(x: torch.Tensor) -> torch.Tensor:
    """The numbers float64 [rows, columns] of uint16 x as `ops/rms_norm_pairs.py` stores it."""
    upper, lower = x.view(torch.float8_e4m3fn).double().chunk(2, dim=1)
    return upper + lower / 16
