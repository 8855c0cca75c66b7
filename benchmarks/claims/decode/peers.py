"""Other projects' decode steps of Llama 1B and 8B beside ours, in the same rounds."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import structs

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.decode.measuring import Decoding, decode_race
from benchmarks.claims.decode.rows import tokens_per_s
from benchmarks.claims.report import Race, Row, Source
from benchmarks.claims.rows import speed_up
from decodescope.variants.registry import available_variants

OURS, OURS_FP8 = "fused+graph", "fused+graph+fp8_e4m3"
VARIANTS = ("eager", "compiled", OURS, OURS_FP8)
# Each beside ours with the same format of weights.
BESIDE = {
    "compiled": OURS,
    "gpt-fast": OURS,
    "liger": OURS,
    "torchao-fp8": OURS_FP8,
}
PEERS = ("torchao-fp8", "gpt-fast", "liger")
LLAMA_1B = Decoding("llama-3.2-1b@random", VARIANTS, 2, PEERS)
LLAMA_8B = Decoding("llama-3.1-8b@random", VARIANTS, 2, PEERS)
_NEEDS_PACKAGE = "needs its variant: pip install ./examples/decodescope-peers"
_TORCHAO_NOTE = (
    "torch 2.11 takes torchao's weights apart in Python at every step, and a small model waits for "
    "that; torch 2.13 needs less than half of the time."
)
# gpt-fast's README: Llama 3.1 8B in bf16 on an A100 80GB that is limited to 330 W.
GPT_FAST_8B_TOKENS_PER_S, GPT_FAST_PEAK_BYTES_PER_S = 93.89, 2039e9


def measure_peers(setup: Setup, what: Decoding, gpt_fast: float | None = None) -> Measured:
    """Tokens per second of every variant, and of ours ÷ each peer with the same format of weights.

    A peer that is not installed has a note, no row. `gpt_fast` is its published figure, if any.
    """
    with importable(setup.gpt_fast):
        listed = {one.name: one.unavailable for one in available_variants("cuda")}
        needs = {name: listed.get(name, _NEEDS_PACKAGE) for name in what.peers}
        missing = {name: why for name, why in needs.items() if why is not None}
        present = tuple(name for name in what.peers if name not in missing)
        decoded = decode_race(setup, replace(what, peers=present))
    race = decoded.race
    compared = [name for name in (*what.variants, *present) if name in BESIDE]
    rows = [_rate(race, one.name, gpt_fast) for one in race.entrants]
    rows += [
        speed_up(ours_over(name), race, name, BESIDE[name], None, launched=True)
        for name in compared
    ]
    return Measured(
        tuple(rows),
        (race,),
        (
            *(f"not measured: {name} {why}" for name, why in missing.items()),
            "None of the projects publishes a figure for these models on this kind of GPU but "
            "gpt-fast's README: 93.89 tok/s of Llama 3.1 8B in bf16 on an A100 80GB limited to "
            "330 W, the prefill included. Liger-Kernel is made for training.",
            *((_TORCHAO_NOTE,) if "torchao-fp8" in present else ()),
            *decoded.notes,
        ),
    )


def ours_over(name: str) -> str:
    """What the row of ours ÷ this step, one of `BESIDE`, is called."""
    return f"{BESIDE[name]} / {name}"


@contextmanager
def importable(checkout: Path | None) -> Iterator[None]:
    """Within it, this process and those that it starts can import what lies in the checkout."""
    if checkout is None:
        yield
        return
    path, inherited = str(checkout.resolve()), os.environ.get("PYTHONPATH")
    sys.path.append(path)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, path)))
    try:
        yield
    finally:
        sys.path.remove(path)
        if inherited is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = inherited


def _rate(race: Race, name: str, gpt_fast: float | None) -> Row:
    if name == "gpt-fast":
        return tokens_per_s(name, race, name, gpt_fast, GPT_FAST_PEAK_BYTES_PER_S)
    return tokens_per_s(name, race, name)


# No project publishes a figure of 1B; that of 8B is gpt-fast's.
SOURCE = Source(
    "gpt-fast, torchao, transformers with torch.compile, Liger-Kernel",
    "https://github.com/meta-pytorch/gpt-fast",
    "A100-SXM4-80GB",
    "peers",
)
PEERS_1B = Claim(
    "peers-1b",
    "Llama 3.2 1B, batch 1: other projects' decode steps beside ours",
    structs.replace(SOURCE, gpu=""),
    partial(measure_peers, what=LLAMA_1B),
)
PEERS_8B = Claim(
    "peers-8b",
    "Llama 3.1 8B, batch 1: other projects' decode steps beside ours",
    SOURCE,
    partial(measure_peers, what=LLAMA_8B, gpt_fast=GPT_FAST_8B_TOKENS_PER_S),
)
