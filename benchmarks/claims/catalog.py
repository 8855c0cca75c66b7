"""Every claim that `claims` measures, in the order of its table."""

from benchmarks.claims.claim import Claim
from benchmarks.claims.decode.kernl import KERNL_LLAMA_2
from benchmarks.claims.decode.kernl_fp8 import KERNL_FP8
from benchmarks.claims.decode.megakernels import MEGAKERNELS
from benchmarks.claims.decode.peers import PEERS_1B, PEERS_8B
from benchmarks.claims.kernl import feed_forward, projection, rms_norm, rope
from benchmarks.claims.prefill.int8_products import INT8_GEMM
from benchmarks.claims.prefill.norms import RMS_NORM, RMS_NORM_RESIDUAL
from benchmarks.claims.prefill.swiglu import SWIGLU
from benchmarks.claims.qwen_block.block import QWEN_BLOCK
from benchmarks.claims.rms_norm.ladder import RMS_NORM_LADDER
from benchmarks.claims.tk_gemm.attention_layer import ATTENTION_LAYER
from benchmarks.claims.tk_gemm.products import TK_GEMM
from decodescope.analyzer.errors import InputError

CLAIMS: tuple[Claim, ...] = (
    rope.CLAIM,
    rms_norm.CLAIM,
    projection.CLAIM,
    feed_forward.CLAIM,
    KERNL_LLAMA_2,
    KERNL_FP8,
    RMS_NORM_LADDER,
    RMS_NORM,
    RMS_NORM_RESIDUAL,
    SWIGLU,
    INT8_GEMM,
    TK_GEMM,
    ATTENTION_LAYER,
    QWEN_BLOCK,
    PEERS_1B,
    PEERS_8B,
    MEGAKERNELS,
)


def chosen_claims(names: tuple[str, ...]) -> tuple[Claim, ...]:
    """The claims of these names in the catalog's order; all of them if there are no names.

    Raises:
        InputError: a name that no claim has.
    """
    known = [one.name for one in CLAIMS]
    for name in names:
        if name not in known:
            raise InputError(f"--only {name}: no such claim; there are {', '.join(known)}")
    return tuple(one for one in CLAIMS if not names or one.name in names)
