"""The reference for graph replays, recorded from the same step without its graph."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import config

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import ModelError
from decodescope.variants.measuring.window import Subject, record_reference, try_reference
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.compiled_step import StaticStep
from decodescope.variants.steps.decode_step import CallSite, DecodeStep
from decodescope.variants.steps.eager_step import EagerStep

WORKLOAD = DecodeWorkload(2, 7, 6, "fp32")

Load = Callable[..., Any]


@pytest.fixture(scope="module")
def session() -> ProfilerSession:
    session = ProfilerSession("cpu")
    session.warm_up()
    return session


def prompt() -> torch.Tensor:
    return torch.randint(3, 97, (2, 7), generator=torch.Generator().manual_seed(5))


def static(loaded: Any, workload: DecodeWorkload = WORKLOAD) -> StaticStep:
    return StaticStep(loaded, workload, lambda forward: forward)


class Replaying(EagerStep):
    """An `EagerStep` that claims to replay a graph."""

    def __init__(self, loaded: Any, workload: DecodeWorkload) -> None:
        super().__init__(loaded, workload)
        self.plain = EagerStep(loaded, workload)

    def ungraphed(self) -> DecodeStep:
        return self.plain


@pytest.mark.parametrize("new_tokens", [1, 2, 3, 6])
def test_ranges_of_the_step_name_its_ops(
    load_small: Load, session: ProfilerSession, new_tokens: int
) -> None:
    workload = DecodeWorkload(2, 7, new_tokens, "fp32")
    loaded = load_small("llama")
    step = Replaying(loaded, workload)
    stages: list[str] = []
    reference = try_reference(
        step, Subject(loaded, workload, "cpu", "v"), prompt(), session, stages.append
    )
    assert reference is not None
    assert stages == ["naming the kernels of the graph"]
    paths = [op.path for op in reference.ops]
    expected = {f"decode_step/model/{path}" for path in range_paths(loaded.model).values()}
    assert expected | {"decode_step/sampling"} <= set(paths)
    assert all(path.startswith("decode_step") for path in paths)
    products = [op for op in reference.ops if op.name in ("aten::linear", "aten::mm")]
    assert sum(op.path.endswith("/mlp") for op in products) == 3 * 3
    assert not step.plain._ranges._handles


def test_eager_has_no_reference(load_small: Load, session: ProfilerSession) -> None:
    loaded = load_small("llama")
    step = EagerStep(loaded, WORKLOAD)
    stages: list[str] = []
    subject = Subject(loaded, WORKLOAD, "cpu", "eager")
    assert try_reference(step, subject, prompt(), session, stages.append) is None
    assert stages == []


def test_a_reference_that_fails_is_reported_and_loses_only_names(
    load_small: Load, session: ProfilerSession, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_small("llama")

    class Broken(EagerStep):
        def step(self) -> torch.Tensor:
            raise RuntimeError("no compiler found\nwith a long story\nbelow")

    step = Replaying(loaded, WORKLOAD)
    step.plain = Broken(loaded, WORKLOAD)
    subject = Subject(loaded, WORKLOAD, "cpu", "v")
    assert try_reference(step, subject, prompt(), session, lambda _: None) is None
    error = capsys.readouterr().err
    assert error == "kernels of the graph stay without ranges: RuntimeError: no compiler found\n"
    step.prefill(prompt())
    step.step()


def test_the_measured_step_shares_its_cache_and_is_prefilled_again(load_small: Load) -> None:
    loaded = load_small("llama")
    step = static(loaded)
    step.prefill(prompt())
    expected = [step.step() for _ in range(6)]
    ungraphed = step.ungraphed()
    assert ungraphed._cache is step._cache  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="before prefill"):
        step.step()
    assert step.position == 7
    step.prefill(prompt().flip(1))
    step.step()
    step.prefill(prompt())
    assert all(torch.equal(step.step(), ids) for ids in expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of torch.compile's own imports
def test_compiled_code_on_the_cpu(
    load_small: Load, session: ProfilerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU has another code generator than a GPU, but the same tracing and recording. Its code
    is scalar: to find the vectors of this processor, torch compiles programs for seconds."""
    monkeypatch.setattr(config.cpp, "vec_isa_ok", False)
    torch._dynamo.reset()
    loaded = load_small("qwen2", num_hidden_layers=1)
    step = static(loaded)
    step.prefill(prompt())
    expected = [step.step() for _ in range(3)]
    for _ in range(2):  # the second time, nothing compiled before may be taken
        ungraphed = step.ungraphed()
        subject = Subject(loaded, WORKLOAD, "cpu", "compiled")
        reference = record_reference(ungraphed, subject, prompt(), session)
        attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
        sites = [site for site in ungraphed.call_sites() if site.operator != attention]
        assert sites == [
            CallSite(operator, f"layer.0/{part}")
            for part, operators in (
                # Qwen2's projections of q, k and v have a bias.
                ("attention", ("aten::addmm",) * 3 + ("aten::mm",)),
                ("mlp", ("aten::mm",) * 3),
            )
            for operator in operators
        ] + [CallSite("aten::mm", "lm_head")]
        names = [op.name for op in reference.ops]
        assert names.count("aten::mm") == sum(site.operator == "aten::mm" for site in sites)
    step.prefill(prompt())
    assert all(torch.equal(step.step(), ids) for ids in expected)
    torch._dynamo.reset()
