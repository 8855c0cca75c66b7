"""A whole comparison of the built-in variants on a CUDA device."""

import msgspec
import pytest
import torch

from decodescope.analyzer.protocol import WorkerConfig
from decodescope.variants.accuracy_run import score_variants
from decodescope.variants.compare import CompareRequest, compare_variants

pytestmark = [
    pytest.mark.gpu,
    # Warnings of torch.compile's own imports and of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

CONFIG = WorkerConfig(
    variant="eager", batch=2, tokens=40, context=32, model="tiny", device="cuda", dtype="bf16"
)


def nothing(stage: str) -> None:
    pass


@pytest.mark.timeout(900)
def test_eager_and_compiled_are_compared() -> None:
    request = CompareRequest(CONFIG, ("eager", "compiled"), repeats=2)
    with compare_variants(request, nothing) as outcome:
        comparison = outcome.comparison
    codes = {finding.code for finding in comparison.comparison.findings}
    assert not codes & {"round_left_out", "accuracy_missing", "interrupted"}
    assert [(one.variant, one.round) for one in comparison.runs] == [
        ("eager", 0), ("compiled", 0), ("eager", 1), ("compiled", 1),
    ]  # fmt: skip
    eager, compiled = comparison.runs[:2]
    assert eager.launch_calls_per_step is not None
    assert compiled.launch_calls_per_step is not None
    assert compiled.launch_calls_per_step < eager.launch_calls_per_step / 3
    for one in comparison.runs:
        assert one.accuracy is not None
        assert "eager on cuda" in one.accuracy.reference
        assert 1e-5 < one.accuracy.logit_rel_error < 0.05
        assert one.accuracy.top1_agreement > 0.9
        assert one.accuracy.perplexity_ratio == pytest.approx(1, abs=0.05)


@pytest.mark.timeout(600)
def test_fp32_is_its_own_reference_without_tf32() -> None:
    config = msgspec.structs.replace(CONFIG, dtype="fp32")
    scores = score_variants(config, ("eager", "compiled"), None, nothing)
    assert scores.accuracies["eager"].logit_rel_error < 1e-6
    assert scores.accuracies["compiled"].logit_rel_error < 1e-4
    assert scores.accuracies["compiled"].top1_agreement == 1


def test_scoring_gives_the_memory_back() -> None:
    def scored() -> int:
        score_variants(CONFIG, ("eager",), None, nothing)
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    # What cuBLAS takes once for its workspace stays.
    first = scored()
    assert scored() <= first + 2**20
