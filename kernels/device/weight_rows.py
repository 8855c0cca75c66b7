"""Which rows of a weight matrix a program has, and how their sums become outputs."""

import triton
import triton.language as tl


@triton.jit
def program_rows(w_ptr, program, N, K: tl.constexpr, ROWS: tl.constexpr):
    """A program's ROWS rows of W [N, K]: a pointer to the first, their numbers from there, and
    their numbers in W, which may reach past N.

    From the pointer, rows past the end repeat the last one instead of being masked: loads stay wide
    and plain. The pointer is advanced in 64 bits, because W may have more than 2^31 elements.
    """
    lane = tl.arange(0, ROWS)
    first = program * ROWS
    w_ptr += first.to(tl.int64) * K
    return w_ptr, tl.minimum(lane, N - 1 - first), first + lane


@triton.jit
def paired_rows(first, half, ROWS: tl.constexpr):
    """Rows that alternate between [0, half) and [half, 2 half), from pair `first` on.

    Rows past the end repeat the last pair.
    """
    lane = tl.arange(0, ROWS)
    return tl.minimum(first + lane // 2, half - 1) + (lane % 2) * half


@triton.jit
def finished(sums, scale_ptr, bias_ptr, rows, mask):
    """The sums (float32) of `rows` as outputs: times the row's scale, plus its bias.

    Rows that are masked are undefined; `mask` may be None.
    """
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, rows, mask)
    return sums * scale + bias


@triton.jit
def scale_and_bias(scale_ptr, bias_ptr, rows, mask):
    """The scales and biases of `rows` in float32, 1 and -0 where there are none. No earlier kernel
    writes them: loaded before the product, they cost no latency after it."""
    scale = 1.0 if scale_ptr is None else tl.load(scale_ptr + rows, mask=mask)
    # x + 0 is not x for -0, so that the compiler would keep the addition.
    bias = -0.0 if bias_ptr is None else tl.load(bias_ptr + rows, mask=mask).to(tl.float32)
    return scale, bias
