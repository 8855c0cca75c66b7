"""Megakernels: a whole step of a 1B model in one launch, beside our graph of many kernels."""

import re

from msgspec.structs import replace

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.measuring import Decoded, Decoding, decode_race
from benchmarks.claims.decode.rows import tokens_per_s
from benchmarks.claims.report import Row, Source
from decodescope.analyzer.roofline.peaks import datasheet_peak_bytes_per_s

SOURCE = Source(
    "Hazy Research's Llama-1B megakernel (2025), measured beside a CUDA graph by "
    "megakernels-vs-cuda-graphs (2026)",
    "https://github.com/msaroufim/megakernels-vs-cuda-graphs",
    "H100, H200",
    "megakernels",
)
# Mean µs of a step: 32 tokens of prompt, 127 steps.
MEGAKERNEL_US = {"H100": 972.78, "H200": 759.83}
GRAPH_US = {"H100": 979.51, "H200": 794.74}

LLAMA_1B = Decoding("llama-3.2-1b@random", ("eager", "fused+graph"), 3, context=32)


def measure_megakernels(setup: Setup, what: Decoding = LLAMA_1B) -> Measured:
    """Tokens per second of our graph beside those published for this kind of GPU; on any other,
    beside both, marked as not comparable."""
    decoded = decode_race(setup, what)
    here = [kind for kind in MEGAKERNEL_US if _is_sxm(kind, decoded.gpu_name)]
    rows = tuple(
        _row(decoded, published, step_us[kind], kind, bool(here))
        for kind in here or MEGAKERNEL_US
        for published, step_us in (("megakernel", MEGAKERNEL_US), ("CUDA graph", GRAPH_US))
    )
    return Measured(
        rows,
        (decoded.race,),
        (
            "Theirs are 1e6 ÷ the mean µs of a decode step, in the source's own runs of Hazy "
            "Research's unchanged kernel and of a CUDA graph of about 100 kernels with "
            "programmatic dependent launch. The megakernel fails that source's numerical check, "
            "the graph passes it.",
            "Hazy Research itself publishes a step below 1 ms and 78 % of an H100's bandwidth. The "
            "998 tok/s that are quoted for an H100 could not be found in a source.",
            "Theirs reserve a KV cache of 16,384 tokens, ours of the tokens that are decoded; "
            "neither reads more of it than is filled.",
            *decoded.notes,
        ),
    )


def _row(decoded: Decoded, published: str, step_us: float, kind: str, comparable: bool) -> Row:
    what = f"our graph (theirs: {published}, {kind} SXM)"
    peak = datasheet_peak_bytes_per_s(kind)
    row = tokens_per_s(what, decoded.race, "fused+graph", 1e6 / step_us, peak)
    if comparable:
        # The same kind of GPU has the same limit.
        of_limit = None if row.limit is None else 1e6 / step_us / row.limit
        return replace(row, published_share=of_limit)
    why = f"not comparable: published for an {kind} SXM, measured on {decoded.gpu_name}; "
    return replace(row, comparable=False, explanation=why + row.explanation)


def _is_sxm(kind: str, gpu_name: str) -> bool:
    """Whether it is the published GPU: those with PCIe or NVL have another memory or clock."""
    return re.search(rf"\b{kind}\b(?!.*\b(NVL|PCIe)\b)", gpu_name) is not None


MEGAKERNELS = Claim(
    "megakernels",
    "Llama 1B in bf16, batch 1: a megakernel, a CUDA graph, and ours",
    SOURCE,
    measure_megakernels,
)
