"""torch's annotations of graph nodes in a window of a real graph, on a CUDA device."""

import json
from pathlib import Path

import pytest
import torch

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.attribution.ranges import replay_sources
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.schema.graph_reference import REFERENCE_KEY
from decodescope.variants.measuring.measure import measure_run
from decodescope.variants.measuring.window import WINDOW_STEPS, Subject, record_reference
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.fused.node_annotations import torch_annotations
from tests.helpers.fused_steps import load_family, prompt_of

pytestmark = [
    pytest.mark.gpu,
    # Warnings of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def session() -> ProfilerSession:
    session = ProfilerSession("cuda")
    session.warm_up()
    return session


def paths_of(analysis: Analysis) -> list[str]:
    return [analysis.ranges.paths[node] for node in analysis.ranges.op_node.tolist()]


@pytest.mark.parametrize("variant", ["fused+graph", "fused+graph-norm-rope"])
@pytest.mark.parametrize("batch", [1, 3])
def test_each_replayed_op_has_the_path_that_the_reference_gives_it(
    variant: str, batch: int, session: ProfilerSession, tmp_path: Path
) -> None:
    torch.cuda.init()
    annotations = torch_annotations()
    if annotations is None:
        pytest.skip(
            "torch names no graph nodes here: it takes PyTorch 2.13, and cuda-bindings and a "
            "driver of CUDA 13.1"
        )
    loaded = load_family("llama2", "cuda", torch.bfloat16)
    workload = DecodeWorkload(batch, 11, 40)
    step = build_variant(variant, loaded, workload, "cuda")
    subject, prompt = Subject(loaded, workload, "cuda", variant), prompt_of(loaded, workload)
    ungraphed = step.ungraphed()
    assert ungraphed is not None
    reference = record_reference(ungraphed, subject, prompt, session)
    path = tmp_path / "window.json"
    measure_run(step, subject, prompt, session, path, reference)
    assert annotations.get_kernel_annotations() == {}

    document = json.loads(path.read_bytes())
    by_reference = analyze(load(path))
    del document[REFERENCE_KEY]
    path.write_text(json.dumps(document))
    alone = analyze(load(path))
    replayed = WINDOW_STEPS * len(step.node_paths())
    sources = replay_sources(by_reference.trace, by_reference.ranges.reference_op)
    assert sources == {"step": replayed}
    assert paths_of(alone) == paths_of(by_reference)
    assert replay_sources(alone.trace, alone.ranges.reference_op) == {"annotations": replayed}
    assert by_reference.report.attribution == alone.report.attribution
