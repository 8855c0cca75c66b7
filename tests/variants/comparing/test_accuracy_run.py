"""Variants scored against fp32, on the bundled model and on small ones with random weights."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.run_report import Interval
from decodescope.variants import registry
from decodescope.variants.comparing import accuracy as accuracy_module
from decodescope.variants.comparing.accuracy import score_variants
from decodescope.variants.comparing.accuracy_text import ScoredText, scored_text
from decodescope.variants.comparing.job_process import AccuracyDone
from decodescope.variants.measuring.preparation import Prepared
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.quantized_weights import Quantization, quantized_formats
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import Variant
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.compiled_step import StaticStep
from decodescope.variants.steps.eager_step import EagerStep

Load = Callable[..., Any]
CONFIG = WorkerConfig(variant="eager", batch=2, tokens=4, model="tiny", device="cpu")


class Poisoned(EagerStep):
    """Eager, but NaN and infinity in the logits of two steps."""

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        logits = super().forced_step(ids).clone()
        if self.position in (40, 41):
            logits[:, self.position] = torch.nan if self.position == 40 else torch.inf
        return logits


class Truncated(EagerStep):
    """Eager, but a column of the logits is missing."""

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forced_step(ids)[:, 1:]


class Doubled(EagerStep):
    """Eager, but the logits are twice what they should be."""

    def forced_step(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forced_step(ids) * 2


def build_static(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
    return StaticStep(loaded, workload, lambda forward: forward)


def build_nothing(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
    raise RuntimeError("no kernel image\nis available")


def build_too_large(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
    raise torch.OutOfMemoryError("tried to allocate 999 GiB")


def built_by(step: Any) -> Any:
    return lambda loaded, workload, device: step(loaded, workload)


QUANTISING = {"eight": "fused+int8", "eight-too": "fused+int8", "five": "fused+fp8_e5m2"}


def build_quantised(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
    assert quantized_formats(loaded.model)
    return EagerStep(loaded, workload)


@pytest.fixture(autouse=True)
def more_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    builders = {
        "static": build_static,
        "poisoned": built_by(Poisoned),
        "truncated": built_by(Truncated),
        "doubled": built_by(Doubled),
        "broken": build_nothing,
        "large": build_too_large,
    }
    found = [Variant(name, "for a test", False, build) for name, build in builders.items()]
    for name, spec in QUANTISING.items():
        how = VariantSpec.parse(spec)
        found.append(Variant(name, "for a test", False, build_quantised, spec=how))
    monkeypatch.setattr(registry, "_installed", lambda: (found, []))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def short_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sequences as the steps of these tests decode at once, and 64 positions."""
    monkeypatch.setattr(accuracy_module, "SEQUENCES", 2)
    monkeypatch.setattr(accuracy_module, "scored_text", shortened)


def nothing(stage: str) -> None:
    pass


def scored(*variants: str, dtype: str = "fp32", text: str | None = None) -> AccuracyDone:
    config = msgspec.structs.replace(CONFIG, dtype=dtype)
    return score_variants(config, variants, text, nothing)


def shortened(loaded: Any, text: str | None, sequences: int = 2) -> ScoredText:
    return scored_text(loaded, text, sequences, 32)


def whole_forward(model: Any, text: ScoredText) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(text.ids[:, :-1]).logits[:, text.context :]
    return logits.double().flatten(0, 1)


def test_fp32_is_its_own_reference() -> None:
    scores = scored("eager", "static")
    eager, static = scores.accuracies["eager"], scores.accuracies["static"]
    assert (eager.logit_rel_error, eager.kl, eager.top1_agreement) == (0, 0, 1)
    assert eager.perplexity_ratio == 1
    exact = Interval(1.0, 1.0, 0.95)
    assert (eager.perplexity_ratio_interval, eager.positions_needed) == (
        exact,
        {"top1_agreement": 180},
    )
    assert 0 <= static.logit_rel_error < 1e-5
    assert static.top1_agreement == 1
    assert (eager.positions, eager.text) == (64, "decodescope's own text")
    assert "eager on cpu" in eager.reference
    assert scores.findings == ()


@pytest.mark.parametrize(("context", "length"), [(300, 304), (20, 64)])
def test_the_cache_is_that_of_the_runs_but_holds_the_text(
    context: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[DecodeWorkload] = []

    def build(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
        built.append(workload)
        return EagerStep(loaded, workload)

    found = [Variant("kept", "for a test", False, build)]
    monkeypatch.setattr(registry, "_installed", lambda: (found, []))
    config = msgspec.structs.replace(CONFIG, dtype="fp32", context=context)
    scores = score_variants(config, ["kept"], None, nothing)
    assert [(one.context, one.cache_length) for one in built] == [(32, length)]
    assert (scores.accuracies["kept"].positions, scores.accuracies["kept"].kl) == (64, 0)


def test_low_precision_scores_match_whole_forward_passes() -> None:
    scores = scored("eager", "static", dtype="bf16")
    loaded = load_model(resolve_model("tiny"), "cpu", "bf16")
    text = shortened(loaded, None)
    low = whole_forward(loaded.model, text)
    reference = whole_forward(copy.deepcopy(loaded.model).float(), text)
    error = (low - reference).norm() / reference.norm()
    loss = torch.nn.functional.cross_entropy(reference, text.next_ids)
    kl = torch.nn.functional.kl_div(
        low.log_softmax(-1), reference.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    for accuracy in scores.accuracies.values():
        # Steps and a whole pass round differently, but by as much.
        assert accuracy.logit_rel_error == pytest.approx(error.item(), rel=0.5)
        assert accuracy.kl == pytest.approx(kl.item(), rel=0.9)
        assert accuracy.perplexity / accuracy.perplexity_ratio == pytest.approx(
            loss.exp().item(), rel=1e-4
        )
        assert 0 < accuracy.logit_rel_error < 0.05
        assert 0.9 < accuracy.top1_agreement <= 1


def test_each_format_is_scored_on_its_own_weights_and_the_model_is_loaded_as_rarely_as_can_be() -> (
    None
):
    said: list[str] = []
    variants = ("eight", "static", "five", "eight-too", "eager")
    scores = score_variants(
        msgspec.structs.replace(CONFIG, dtype="bf16"), variants, None, said.append
    )
    assert scores.findings == ()
    assert tuple(scores.accuracies) == variants
    stages = [stage.split()[:2] for stage in said if stage.startswith(("scoring", "loading"))]
    assert stages == [
        ["loading", "tiny"],
        ["scoring", "the"],
        ["scoring", "static"],
        ["scoring", "eager"],
        ["scoring", "eight"],
        ["scoring", "eight-too"],
        ["scoring", "five"],
        ["loading", "the"],
    ]
    errors = {name: accuracy.logit_rel_error for name, accuracy in scores.accuracies.items()}
    assert errors["eight"] == errors["eight-too"]
    assert errors["eager"] < errors["eight"] < errors["five"] < 0.5
    alone = scored("eager", dtype="bf16").accuracies["eager"]
    assert scores.accuracies["eager"] == alone
    # An independent reference: the quantised model and the exact one, a whole pass each.
    loaded = load_model(resolve_model("tiny"), "cpu", "bf16")
    text = shortened(loaded, None)
    exact = whole_forward(copy.deepcopy(loaded.model).float(), text)
    quantize_model("tiny", loaded.model, Quantization("fp8_e5m2"))
    given = whole_forward(loaded.model, text)
    assert errors["five"] == pytest.approx(float((given - exact).norm() / exact.norm()), rel=0.1)


def test_the_reference_leaves_the_weights_as_they_were(
    load_small: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_small("qwen2", tie_word_embeddings=True)
    loaded.model.bfloat16()
    parameters = {name: one.clone() for name, one in loaded.model.named_parameters()}
    buffers = {name: one.clone() for name, one in loaded.model.named_buffers()}
    assert set(score_small(loaded, monkeypatch, "eager", "eight").accuracies) == {"eager", "eight"}
    assert quantized_formats(loaded.model)
    for name, one in loaded.model.named_parameters():
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, parameters[name])
    for name, one in loaded.model.named_buffers():
        assert one.dtype == buffers[name].dtype
        assert torch.equal(one, buffers[name])


def test_without_a_reference_nothing_is_quantised(
    load_small: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_small("llama")

    def half_way(self: Any) -> Any:
        self.model.layers.float()
        raise torch.OutOfMemoryError("tried to allocate 999 GiB")

    loaded.model.bfloat16()
    monkeypatch.setattr(type(loaded.model), "float", half_way)
    scores = score_small(loaded, monkeypatch, "eight", "eager")
    assert [f.message for f in scores.findings if "fp32 reference" in f.message] == [
        f.message for f in scores.findings if f.code == "accuracy_missing"
    ]
    assert quantized_formats(loaded.model) == {}
    assert {one.dtype for one in loaded.model.parameters()} == {torch.bfloat16}


def test_the_given_text_is_scored() -> None:
    given = "def add(left, right):\n    return left + right\n"
    accuracy = scored("eager", text=given).accuracies["eager"]
    loaded = load_model(resolve_model("tiny"), "cpu", "fp32")
    text = shortened(loaded, given)
    loss = torch.nn.functional.cross_entropy(whole_forward(loaded.model, text), text.next_ids)
    assert accuracy.perplexity == pytest.approx(loss.exp().item(), rel=1e-4)
    assert accuracy.text == text.name == "the given text"
    assert accuracy.positions < 128


def test_wrong_logits_give_the_errors_of_the_formulas() -> None:
    accuracy = scored("doubled").accuracies["doubled"]
    assert accuracy.logit_rel_error == pytest.approx(1)
    assert accuracy.top1_agreement == 1
    assert accuracy.kl > 0.01


def test_a_failing_variant_does_not_lose_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    scores = scored("broken", "poisoned", "large", "truncated", "eager")
    assert list(scores.accuracies) == ["eager"]
    assert {finding.code for finding in scores.findings} == {"accuracy_missing"}
    messages = {
        finding.message.split(":")[0].removeprefix("no accuracy of "): finding.message
        for finding in scores.findings
    }
    assert "RuntimeError: no kernel image" in messages["broken"]
    assert "out of GPU memory while building variant large" in messages["large"]
    assert "gave logits of shape [64, " in messages["truncated"]
    assert "NaN or infinite at 4 of 64 positions" in messages["poisoned"]
    assert "perplexity" in messages["poisoned"]
    assert all("\n" not in message for message in messages.values())
    assert "no kernel image" in capsys.readouterr().err


def test_no_memory_for_the_reference_is_a_finding(
    load_small: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_small("llama")

    def no_room(self: Any) -> Any:
        raise torch.OutOfMemoryError("tried to allocate 999 GiB")

    monkeypatch.setattr(type(loaded.model), "float", no_room)
    scores = score_small(loaded, monkeypatch, "eager", "static")
    assert scores.accuracies == {}
    missing = [f.message for f in scores.findings if f.code == "accuracy_missing"]
    assert len(missing) == 2
    assert all("out of GPU memory while computing the fp32 reference" in text for text in missing)


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_random_weights_are_named(
    load_small: Load, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    scores = score_small(load_small(architecture), monkeypatch, "eager", "static")
    (finding,) = scores.findings
    assert finding.code == "random_weights"
    assert architecture in finding.message
    assert scores.accuracies["eager"].text == "seeded random token ids"
    assert scores.accuracies["eager"].logit_rel_error == 0
    assert scores.accuracies["static"].logit_rel_error < 1e-5


def test_the_matrix_precision_is_restored(
    load_small: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        assert set(score_small(load_small("llama"), monkeypatch, "eager").accuracies) == {"eager"}
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_bad_requests_are_refused() -> None:
    with pytest.raises(MissingRequirement, match="compiled: needs a CUDA device"):
        score_variants(
            msgspec.structs.replace(CONFIG, variant="compiled"), ("eager",), None, nothing
        )


def score_small(loaded: Any, monkeypatch: pytest.MonkeyPatch, *variants: str) -> AccuracyDone:
    workload = DecodeWorkload(2, 8, 4, "fp32")

    def prepared(config: WorkerConfig, say: Any, ranks: Any) -> Prepared:
        return Prepared(config, "cpu", loaded, workload)

    monkeypatch.setattr(accuracy_module, "prepare", prepared)
    return score_variants(CONFIG, variants, None, nothing)
