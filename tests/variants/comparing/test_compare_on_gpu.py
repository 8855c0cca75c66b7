"""A whole comparison of the built-in variants on a CUDA device."""

import msgspec
import pytest
import torch

from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.comparing.accuracy import score_variants
from decodescope.variants.comparing.command import CompareRequest, compare_variants

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
def test_variants_are_compared() -> None:
    names = ("eager", "compiled", "fused+graph")
    request = CompareRequest(CONFIG, names, repeats=2)
    comparison = compare_variants(request, nothing)
    codes = {finding.code for finding in comparison.comparison.findings}
    assert not codes & {"round_left_out", "accuracy_missing", "interrupted"}
    assert [(one.variant, one.round) for one in comparison.runs] == [
        (name, round) for round in (0, 1) for name in names
    ]
    eager, compiled, graph = comparison.runs[:3]
    assert eager.launch_calls_per_step is not None
    assert compiled.launch_calls_per_step is not None
    assert compiled.launch_calls_per_step < eager.launch_calls_per_step / 3
    assert graph.launch_calls_per_step == 1
    for one in comparison.runs:
        assert one.accuracy is not None
        assert "eager on cuda" in one.accuracy.reference
        assert 1e-5 < one.accuracy.logit_rel_error < 0.05
        assert one.accuracy.top1_agreement > 0.9
        assert one.accuracy.perplexity_ratio == pytest.approx(1, abs=0.05)


@pytest.mark.timeout(600)
def test_fp32_is_its_own_reference_without_tf32() -> None:
    config = msgspec.structs.replace(CONFIG, dtype="fp32")
    # The last compiled step runs on weights that fused kernels have moved.
    others = ("compiled", "fused", "fused+graph", "fused-rope-norm", "compiled")
    for variants in (("eager", *others[:-1]), others[-2:]):
        scores = score_variants(config, variants, None, nothing)
        assert set(scores.accuracies) == set(variants)
        for variant in variants:
            limit = 1e-6 if variant == "eager" else 1e-4
            assert scores.accuracies[variant].logit_rel_error < limit, variant
            assert scores.accuracies[variant].top1_agreement == 1


def test_scoring_frees_its_memory() -> None:
    def scored() -> int:
        score_variants(CONFIG, ("eager",), None, nothing)
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    # What cuBLAS takes once for its workspace stays.
    first = scored()
    assert scored() <= first + 2**20
