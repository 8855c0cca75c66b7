"""Every claim that `bench claims` measures, in the order of its table."""

from decodescope.analyzer.errors import InputError
from decodescope.variants.claims.claim import Claim
from decodescope.variants.claims.decode.kernl import KERNL_LLAMA_2
from decodescope.variants.claims.decode.kernl_fp8 import KERNL_FP8
from decodescope.variants.claims.decode.megakernels import MEGAKERNELS
from decodescope.variants.claims.decode.peers import PEERS_1B, PEERS_8B
from decodescope.variants.claims.kernl import feed_forward, projection, rms_norm, rope
from decodescope.variants.claims.prefill.int8_products import INT8_GEMM
from decodescope.variants.claims.prefill.norms import RMS_NORM, RMS_NORM_RESIDUAL
from decodescope.variants.claims.prefill.swiglu import SWIGLU
from decodescope.variants.claims.qwen_block.block import QWEN_BLOCK
from decodescope.variants.claims.rms_norm.ladder import RMS_NORM_LADDER
from decodescope.variants.claims.tk_gemm.attention_layer import ATTENTION_LAYER
from decodescope.variants.claims.tk_gemm.products import TK_GEMM

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
