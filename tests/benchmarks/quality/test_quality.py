"""Quality figures: on the text that was held out, equal to independent ones, and within the bounds
that the formats are meant to keep."""

import copy
import math
import sysconfig
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy, kl_div

from benchmarks.quality import formats as quality_formats
from benchmarks.quality import quality
from benchmarks.quality.corpus import (
    Sources,
    digest_of,
    is_validation,
    read_corpus,
    read_validation,
)
from benchmarks.quality.formats import (
    BF16,
    PROMPT,
    activations_as_in,
    decoded_logits,
    has_forward,
    made_formats,
    score,
)
from benchmarks.quality.quality import (
    FORMATS,
    growth_table,
    measured,
    quality_table,
    recorded_command,
    text_windows,
)
from benchmarks.quality.scores import Distributions, Tally
from decodescope.analyzer.comparing.bootstrap import two_sided_t
from decodescope.analyzer.errors import InputError
from decodescope.variants.comparing.accuracy import accuracy_of
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model, tiny_folder
from decodescope.variants.model.workload import DType
from tests.helpers.command import Command
from tests.helpers.rich_report import text_of
from tools.train_tiny import encode_files

STDLIB = Path(sysconfig.get_path("stdlib"))
# Perplexity of the bundled model may rise by this much.
BOUNDS = {
    "fp8_e4m3": 1.005,
    "int8": 1.003,
    "fp8_e5m2": 1.04,
    "fp8_e5m2_cast": 1.04,
    "w8a8": 1.01,
}
LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "int8": 127.0, "w8a8": 448.0}


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load_model(resolve_model("tiny"), "cpu", "bf16")


@pytest.fixture(scope="module")
def held_out() -> Sources:
    """The text that this Python has."""
    return read_validation(STDLIB)


@pytest.fixture(scope="module")
def windows(tiny: LoadedModel, held_out: Sources) -> torch.Tensor:
    return text_windows(tiny, held_out, 2)


def arguments(*given: str, **changes: object) -> object:
    """What the command line parses, without running it."""
    seen: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "measured", lambda found, device: seen.append(found) or {})
        for effect in ("write_record", "print_table"):
            patch.setattr(quality, effect, lambda *_: None)
        quality.command(["-o", "-", *given], standalone_mode=False)
    (found,) = seen
    return found


def library(folder: Path, names: list[str], times: int = 1) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\nx = 1\n" * times)
    return folder


def test_the_held_out_files_are_those_that_training_left_out(tmp_path: Path) -> None:
    names = [f"package/module_{number}.py" for number in range(200)]
    stdlib = library(tmp_path, names)
    held_out = read_validation(stdlib)
    assert held_out == read_corpus(stdlib).validation
    assert {name for name, _ in held_out} == {name for name in names if is_validation(name)}
    # A folder with nothing but these files gives the same text.
    alone = library(tmp_path / "alone", [name for name, _ in held_out])
    assert digest_of(read_validation(alone)) == digest_of(held_out)
    with pytest.raises(InputError, match="--stdlib"):
        read_validation(tmp_path / "alone" / "package" / "nothing")


def test_windows_cover_the_ids_that_training_was_validated_on(
    tiny: LoadedModel, held_out: Sources
) -> None:
    sources = held_out[:6]
    tokenizer = Tokenizer.from_file(str(tiny_folder() / "tokenizer.json"))
    stream = encode_files(tokenizer, sources)
    found = text_windows(tiny, sources, None)
    assert len(found) == (len(stream) - 1) // 1024
    assert torch.equal(found[:, :-1].flatten(), stream[: len(found) * 1024])
    assert torch.equal(found[:, -1], stream[1024 : len(found) * 1024 + 1 : 1024])
    some = text_windows(tiny, sources, 2)
    assert torch.equal(some, found[[0, -1]])
    assert torch.equal(text_windows(tiny, sources, 10**6), found)
    with pytest.raises(InputError, match="1025 are needed"):
        text_windows(tiny, (("a.py", "x = 1\n"),), None)


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(8, 20), st.integers(2, 30), st.integers(0, 10**6))
def test_sums_give_the_figures_of_a_comparison(
    count: int, positions: int, vocabulary: int, seed: int
) -> None:
    torch.manual_seed(seed)
    reference = torch.randn(count, positions, vocabulary) * 3
    logits = reference + torch.randn_like(reference)
    next_ids = torch.randint(0, vocabulary, (count, positions))
    tally = Tally(positions)
    for row in range(count):
        found, other = Distributions.of(logits[row]), Distributions.of(reference[row])
        tally.add(found.part(0, positions), other, next_ids[row])
    expected = accuracy_of(
        logits.flatten(0, 1), reference.flatten(0, 1), next_ids.flatten(), "", ""
    )
    figures = tally.figures()
    for name in ("positions", "perplexity", "perplexity_ratio", "kl", "top1_agreement"):
        assert getattr(figures, name) == pytest.approx(getattr(expected, name))
    assert figures.logit_rel_error == pytest.approx(expected.logit_rel_error)
    growth = tally.growth(positions - 8, 8, 4, PROMPT)
    by_position = kl_div(
        *(some.double().log_softmax(-1) for some in (logits, reference)),
        reduction="none",
        log_target=True,
    ).sum(-1)[:, -8:]
    by_bin = by_position.reshape(count, 4, 2).mean((0, 2))
    assert growth.kl == pytest.approx(by_bin.numpy(), abs=1e-12)
    assert (growth.first_position, growth.positions_per_bin) == (PROMPT, 2)
    for name, value in (
        ("ratio_interval", figures.perplexity_ratio),
        ("kl_interval", figures.kl),
        ("top1_agreement_interval", figures.top1_agreement),
    ):
        interval = getattr(figures, name)
        assert (interval is None) == (count < 3)
        assert interval is None or interval.low <= value <= interval.high
    if figures.ratio_interval is not None:
        losses = [
            cross_entropy(logits[row].double(), next_ids[row])
            - cross_entropy(reference[row].double(), next_ids[row])
            for row in range(count)
        ]
        half = two_sided_t(0.95, count - 1) * stdev(map(float, losses)) / math.sqrt(count)
        assert math.log(figures.ratio_interval.high / figures.perplexity_ratio) == pytest.approx(
            half
        )


def rounded(weight: torch.Tensor, name: str) -> torch.Tensor:
    """Rows of weights, or tokens, as a format stores them, from all the values it has: the nearest
    one wins."""
    values = weight.float().numpy()
    if name == "fp8_e5m2_cast":
        return torch.from_numpy(nearest(values, fp8_values(5)))
    scale = np.abs(values).max(1, keepdims=True) / LARGEST[name]
    codes = np.arange(-127, 128.0) if name == "int8" else fp8_values(5 if "e5" in name else 4)
    return torch.from_numpy((nearest(values / scale, codes) * scale).astype(np.float32))


def rounded_tokens(module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
    (x,) = inputs
    return rounded(x.flatten(0, -2), "w8a8").view_as(x)


def nearest(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    middles = (codes[1:] + codes[:-1]) / 2
    return codes[np.searchsorted(middles, values)].astype(np.float32)


def fp8_values(exponent_bits: int) -> np.ndarray:
    """Every finite value of E4M3 (without infinities, one NaN code) or E5M2, in order."""
    mantissa_bits, bias = 7 - exponent_bits, 2 ** (exponent_bits - 1) - 1
    found = []
    for code in range(128):
        exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
        if (exponent_bits == 5 and exponent == 31) or (exponent_bits == 4 and code == 127):
            continue
        fraction = mantissa / 2**mantissa_bits + (exponent > 0)
        found.append(fraction * 2.0 ** (max(exponent, 1) - bias))
    return np.array([-value for value in found[:0:-1]] + found)


def losses_of(model: torch.nn.Module, windows: torch.Tensor) -> list[float]:
    """Transformers' own loss of each window."""
    return [float(model(input_ids=one[None], labels=one[None]).loss) for one in windows]


def perplexity(losses: list[float]) -> float:
    return math.exp(sum(losses) / len(losses))


@pytest.mark.slow
@torch.no_grad()
def test_perplexity_stays_within_its_bounds(tiny: LoadedModel, windows: torch.Tensor) -> None:
    """The bounds of the whole held-out text on a part of it, in fp32, with weights that were
    rounded here; and the benchmark's figures of the same text are as these."""
    reference = copy.deepcopy(tiny.model).float()
    before = perplexity(losses_of(reference, windows))
    # The whole text has 5.574.
    assert 4 < before < 7.5
    formats = list(made_formats([*BOUNDS], tiny, 1, 8, "cpu"))
    for one in formats:
        one.step = None
    score(formats, tiny, windows, 2, 8)
    for one in formats:
        model = copy.deepcopy(reference)
        embedding = model.model.embed_tokens.weight
        model.lm_head.weight = torch.nn.Parameter(embedding.clone())
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.data = rounded(module.weight.data, one.name)
                if one.name == "w8a8":
                    module.register_forward_pre_hook(rounded_tokens)
        losses = losses_of(model, windows)
        ratio = perplexity(losses) / before
        assert 0.99 < ratio < BOUNDS[one.name]
        figures = one.forward["fp32"].figures()
        own = perplexity(losses)
        # Nothing but the rounding; one of 400 weights, and more activations, are ties of two codes.
        alone = one.rounding["fp32"].figures().perplexity
        assert alone == pytest.approx(own, rel=2e-3 if one.name == "w8a8" else 1e-3)
        # bf16 activations add their own error, of about 2e-4 nats.
        assert figures.perplexity == pytest.approx(own, rel=3e-3)
        assert figures.kl > 0
        assert one.forward[BF16].figures().kl > 0


@pytest.mark.parametrize(
    ("names", "dtype", "most"), [(["fp8_e4m3", "int8"], "bf16", 3e-3), (["w8a8"], "fp32", 1e-4)]
)
@torch.no_grad()
def test_kernels_decode_what_the_forward_pass_computes(
    names: list[str],
    dtype: DType,
    most: float,
    windows: torch.Tensor,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few positions on the CPU, where Triton's interpreter runs the kernels. Of two computations of
    W8A8 in bf16, each rounds some activations to another code, so that they differ as much as
    either does from fp32: W8A8 is compared in fp32, and before one activation of many does so."""
    monkeypatch.setattr(quality_formats, "DTYPE", dtype)
    loaded = load_model(resolve_model("tiny"), device, dtype)
    positions = 64 if device == "cuda" and names != ["w8a8"] else 2
    ids = windows[:1].to(device)
    next_ids = ids[0, PROMPT + 1 : PROMPT + 1 + positions]
    for one in made_formats(names, loaded, 1, positions, device):
        assert one.no_steps is None
        assert one.step is not None
        decoded = Distributions.of(decoded_logits(one.step, ids, 1, positions)[0])
        # The prefill rounds no activations.
        prompt = one.loaded.model(input_ids=ids[:, :PROMPT], use_cache=True)
        with activations_as_in(one):
            later = ids[:, PROMPT : PROMPT + positions + 1]
            computed = one.loaded.model(later, past_key_values=prompt.past_key_values).logits[0]
        exact = loaded.model(input_ids=ids).logits[0, PROMPT : PROMPT + positions]
        kl = []
        for reference in (computed[:-1], computed[1:], exact):
            tally = Tally(positions)
            tally.add(decoded, Distributions.of(reference), next_ids)
            kl.append(tally.figures().kl)
        assert kl[0] < most
        assert kl[1] > 0.1
        assert kl[2] > (2e-3 if one.name == "w8a8" else 0)


@pytest.mark.gpu
def test_decoded_text_keeps_the_bounds_and_its_error_does_not_grow() -> None:
    formats = ",".join([BF16, *BOUNDS])
    given = arguments("--device", "cuda", "--windows", "128", "--formats", formats)
    record = measured(given, "cuda")
    for one in record["formats"]:
        assert one.no_steps is None
        decoded, computed = one.steps.fp32, one.forward.fp32
        assert decoded.positions == record["text"]["windows"] * 512
        assert decoded.perplexity_ratio < BOUNDS.get(one.format, 1.001)
        assert decoded.kl < 1.3 * computed.kl
        assert len(one.steps.growth.kl) == 8
        assert max(one.steps.growth.kl) < 1.5 * one.steps.growth.kl[0]


def test_a_record_has_every_format_and_what_is_missing(tmp_path: Path) -> None:
    stdlib = library(tmp_path, [f"module_{number}.py" for number in range(400)], times=10)
    found = measured(
        arguments(
            *("--device", "cpu", "--stdlib", str(stdlib), "--windows", "1", "--positions", "1"),
            *("--formats", "bf16,fp8_e4m3+head16,w8a8+head16,kv_fp8_e4m3"),
        ),
        "cpu",
    )
    assert found["text"]["held_out_of_training"] is False
    assert found["text"]["positions_per_window"] == 1024
    bf16, head16, w8a8, kv = found["formats"]
    assert bf16.forward.bf16.kl == 0
    assert bf16.forward.bf16.perplexity_ratio == 1
    assert 0 < bf16.forward.fp32.kl < head16.forward.fp32.kl
    assert head16.weight_bytes_ratio < 0.75
    assert 1.3 * head16.forward.fp32.kl < w8a8.forward.fp32.kl < 3 * head16.forward.fp32.kl
    assert w8a8.weight_bytes == head16.weight_bytes
    assert kv.forward is None
    assert bf16.rounding is kv.rounding is None
    assert 0 < head16.rounding.fp32.kl < head16.forward.fp32.kl
    assert w8a8.rounding.fp32.kl > head16.rounding.fp32.kl
    shown = text_of(quality_table(found, "fp32"), 110)
    assert "fp8_e4m3+head16" in shown
    assert "tiny against itself in fp32, 1 windows" in shown
    assert "fp8" not in text_of(growth_table(found), 110)


def test_what_the_forward_pass_can_say() -> None:
    assert len(set(FORMATS)) == len(FORMATS)
    assert [name for name in FORMATS if not has_forward(name)] == [*FORMATS[-3:]]
    assert [has_forward(name) for name in ("bf16", "fp8_e5m2_cast", "w8a8", "kv_fp8_e4m3")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_record_names_the_command_without_its_files() -> None:
    assert recorded_command(arguments("-o", "mine.json", "--stdlib", "there")) == (
        "python -m benchmarks quality --model tiny"
    )
    assert recorded_command(arguments("--formats", "int8, bf16", "--batch", "1")) == (
        "python -m benchmarks quality --model tiny --formats int8,bf16 --batch 1"
    )


@pytest.mark.parametrize("given", [("--windows", "0"), ("--batch", "0"), ("--positions", "-1")])
def test_bad_usage_is_refused(benchmarks: Command, given: tuple[str, ...]) -> None:
    done = benchmarks("quality", *given)
    assert done.code == 2
    assert given[0] in done.only_line


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InputError, match="fp8_e4m3"):
        arguments("--formats", "fp8_e4m4")
