"""kernl's Llama 2: eager against fused kernels end to end, with the GPU's time apart."""

from msgspec.structs import replace

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.measuring import Decoding, decode_race
from benchmarks.claims.decode.rows import gpu_time, tokens_per_s
from benchmarks.claims.report import Source
from benchmarks.claims.rows import speed_up
from decodescope.analyzer.roofline.peaks import datasheet_peak_bytes_per_s

GPU = "RTX 3090"
SOURCE = Source(
    "Deep Dive into Kernel Fusion: Accelerating Inference in Llama V2 (kernl, 2023)",
    "https://github.com/ELS-RD/kernl/tree/main/experimental/llama-v2",
    GPU,
    "kernl",
)
BEFORE_TOKENS_PER_S, AFTER_TOKENS_PER_S = 23.0, 44.0
# The weights are FP16 there.
LLAMA_2 = Decoding("llama-2-7b@random", ("eager", "fused", "fused+graph"), 3, dtype="fp16")


def measure_llama_2(setup: Setup, what: Decoding = LLAMA_2) -> Measured:
    """Tokens per second and GPU time of eager, fused and fused with a CUDA graph."""
    decoded = decode_race(setup, what)
    race, peak = decoded.race, datasheet_peak_bytes_per_s(GPU)
    gain = AFTER_TOKENS_PER_S / BEFORE_TOKENS_PER_S
    rows = (
        replace(tokens_per_s("eager", race, "eager", BEFORE_TOKENS_PER_S, peak), baseline=True),
        tokens_per_s("fused kernels", race, "fused", AFTER_TOKENS_PER_S, peak),
        tokens_per_s("fused kernels in a CUDA graph", race, "fused+graph"),
        speed_up("fused / eager, wall time", race, "eager", "fused", gain, launched=True),
        speed_up("graph / eager, wall time", race, "eager", "fused+graph", gain, launched=True),
        speed_up("fused / eager, GPU time", race, "eager", "fused", None),
        *(gpu_time(f"GPU time of a step, {name}", race, name) for name in what.variants),
    )
    return Measured(
        rows,
        (race,),
        (
            "23 tok/s is the article's figure for Llama 1 7B in FP16 at length 500; 44 could not "
            "be seen in what is left of it. The repository's own README says 30 to 54 (1.80 x), "
            "without saying whether its FP8 is in the 54. Neither uses a CUDA graph.",
            "Their tok/s are of the forward pass, synchronised before and after each step; ours "
            "of consecutive steps with the choice of the token.",
            "Shares of their limit: the bytes of a step here, at the datasheet's bandwidth.",
            *decoded.notes,
        ),
    )


KERNL_LLAMA_2 = Claim(
    "kernl-llama-2",
    "Llama 2 7B end to end, eager to fused, GPU time and wall time apart",
    SOURCE,
    measure_llama_2,
)
