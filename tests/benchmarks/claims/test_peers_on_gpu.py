"""Each peer that is installed decodes on a CUDA device, as accurately as its format allows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from benchmarks.claims.decode.measuring import tolerance_of
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.comparing.accuracy import score_variants
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.registry import Variant
from decodescope_peers import GPT_FAST, LIGER, TORCHAO_FP8, TORCHAO_INT8
from tests.helpers.peers import install_peers

pytestmark = [
    pytest.mark.gpu,
    # Warnings of other projects' packages are not ours.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
]

CONFIG = WorkerConfig(
    variant="eager", batch=1, tokens=40, model="tiny", context=32, dtype="bf16", device="cuda"
)


def nothing(stage: str) -> None:
    pass


@pytest.fixture(autouse=True)
def inductor_settings() -> Iterator[None]:
    """Peers search tiles, for the rest of their process; other tests do not."""
    from torch._inductor import config

    with config.patch(coordinate_descent_tuning=False):
        yield
    torch.compiler.reset()


@pytest.fixture(
    params=[TORCHAO_FP8, TORCHAO_INT8, GPT_FAST, LIGER], ids=lambda variant: variant.name
)
def peer(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Variant:
    found: Variant = request.param
    assert found.missing is not None
    if reason := found.missing():
        pytest.skip(reason)
    install_peers(tmp_path, monkeypatch)
    return found


# One test: the second build finds the tiles that the first one searched for.
def test_a_peer_is_as_accurate_as_its_format_allows_timed_and_profiled(peer: Variant) -> None:
    scores = score_variants(CONFIG, ("eager", peer.name, "fused"), None, nothing)
    eager = scores.accuracies["eager"].logit_rel_error
    assert scores.accuracies[peer.name].logit_rel_error < tolerance_of(peer.name, "bf16", eager)
    # It leaves the weights and transformers to those that come after it.
    assert scores.accuracies["fused"].logit_rel_error < 2 * eager

    report = run_variant(replace(CONFIG, variant=peer.name), None, nothing)
    assert report.tokens_per_s is not None
    assert report.answer.parts
    if peer.name in ("gpt-fast", "torchao-fp8", "torchao-int8"):
        # Replayed as a graph, with a few launches around it.
        assert report.launch_calls_per_step is not None
        assert report.launch_calls_per_step < 15
