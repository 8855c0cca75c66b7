"""kernl's FP8: E5M2 without scales, against FP16: memory, perplexity, tokens per second."""

from dataclasses import replace
from functools import cache

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.kernl import LLAMA_2, SOURCE
from benchmarks.claims.decode.measuring import Decoding, decode_race
from benchmarks.claims.decode.rows import tokens_per_s
from benchmarks.claims.report import EntrantFigures, Race, Row
from benchmarks.claims.rows import speed_up
from decodescope.analyzer.text.formatting import bytes_size, interval_text, percent
from decodescope.variants.comparing.accuracy_text import POSITIONS, SEQUENCES
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import planned_weights
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets
from decodescope.variants.model.workload_costs import model_bytes
from decodescope.variants.registry import find_variant
from decodescope.variants.tuning.report import RoundSpread

FP16 = "fused+graph"
# The layers' matrices, K and V without scales is the nearest to theirs. Ours has a scale for each
# row, and lm_head in FP8 as well.
THEIRS, OURS = "fused+graph+fp8_e5m2_cast+head16+kv_fp8_e5m2", "fused+graph+fp8_e5m2"
SIZE = replace(LLAMA_2, variants=("eager", FP16, THEIRS, OURS), rounds=2)
# Perplexity needs trained weights; the times of its few steps say nothing.
QUALITY = replace(SIZE, model="tiny", rounds=1, context=32)
HALF = 0.5


def measure_fp8(setup: Setup, size: Decoding = SIZE, quality: Decoding = QUALITY) -> Measured:
    """Stored bytes and tokens per second at Llama 2's size, perplexity on a trained model."""
    scored, timed = decode_race(setup, quality), decode_race(setup, size)
    narrow = (THEIRS, OURS)
    rows = (
        *(_stored(name) for name in narrow),
        *(_perplexity(scored.race, name) for name in (FP16, *narrow)),
        *(tokens_per_s(f"tok/s, {name}", timed.race, name) for name in (FP16, *narrow)),
        *(
            speed_up(f"{name} / {FP16}", timed.race, FP16, name, None, launched=True)
            for name in narrow
        ),
    )
    return Measured(
        rows,
        (scored.race, timed.race),
        (
            "kernl stores Q, K, V, gate, up, a layer's norms, and K and V of the cache in E5M2 "
            "without scales; the O and down projections, lm_head and the embedding table stay "
            "FP16. By its code that is 67 % of FP16's bytes, not half.",
            'Its "few per cent" of perplexity has no figure in its code. Ours is that of '
            f"{SEQUENCES * POSITIONS:,} decoded tokens of decodescope's own text, by the bundled "
            "model.",
            *dict.fromkeys((*scored.notes, *timed.notes)),
        ),
    )


def _stored(name: str) -> Row:
    """The bytes of the weights of Llama 2 7B that the variant stores ÷ those in FP16."""
    model = _shape()
    before = model_bytes(model)
    quantization = quantization_of(find_variant(name).spec)
    assert quantization is not None
    after = model_bytes(planned_weights(name, model, quantization))
    return Row(
        f"weights stored by {name}",
        "share",
        HALF,
        RoundSpread.of([after / before]),
        limit=HALF,
        higher_is_better=False,
        explanation=f"{bytes_size(after)} of {bytes_size(before)}; the embedding table"
        f"{' and lm_head stay' if 'head16' in name else ' stays'} FP16",
    )


@cache
def _shape() -> object:
    return build_random(presets()["llama-2-7b"].config, "meta", torch.float16)


def _perplexity(race: Race, name: str) -> Row:
    """Perplexity ÷ that of the weights as they were loaded, computed in fp32."""
    what, one = f"perplexity of {name}", race.entrant(name)
    if one.error is not None or one.perplexity_ratio is None:
        return Row(what, "ratio", error=one.error or "not scored")
    change = percent(abs(one.perplexity_ratio - 1))
    sign = "more" if one.perplexity_ratio >= 1 else "less"
    return Row(
        what,
        "ratio",
        None,
        RoundSpread.of([one.perplexity_ratio]),
        limit=1.0,
        higher_is_better=False,
        explanation=f"{change} % {sign} than the same weights in fp32{_ends(one)}, "
        f"KL {one.kl:.2g} nats",
    )


def _ends(one: EntrantFigures) -> str:
    ends = interval_text(one.perplexity_ratio_interval, "{:.4f}".format)
    return "" if one.perplexity_ratio_interval is None else f" (95 %: {ends})"


KERNL_FP8 = Claim(
    "kernl-fp8",
    "FP8 (E5M2) against FP16: half the memory, a few per cent of perplexity",
    SOURCE,
    measure_fp8,
)
