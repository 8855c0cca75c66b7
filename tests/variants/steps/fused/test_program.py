"""How the operations of a step run: ranges, replayed launches, and graphs made when needed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import Launch, Operation
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import FUSIONS
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused import fused_step
from decodescope.variants.steps.fused.fused_step import FusedStep
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.plan import StepPlan
from decodescope.variants.steps.fused.program import PlacedOperation, StepProgram
from tests.helpers.fused_steps import (
    assert_logits_agree,
    both,
    decoded,
    fused,
    ids_of,
    load_family,
    prompt_of,
)


class Recorder:
    """Stands for `LayerRanges`; keeps the paths it was asked to open."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.opened: list[str] = []
        self.enabled = True

    def open(self, name: str) -> AbstractContextManager[None]:
        recorder = self

        class Range(nullcontext[None]):
            def __enter__(self) -> None:
                recorder.opened.append(name)
                recorder.paths.append("/".join(recorder.opened))

            def __exit__(self, *error: object) -> None:
                recorder.opened.pop()

        return Range()


def paths_of(plan: StepPlan) -> list[str]:
    """The ranges of a step, in order, without the second layer's."""
    recorder = Recorder()
    StepProgram(step_operations(plan), recorder, plan.pdl).run()  # type: ignore[arg-type]
    return [path for path in recorder.paths if not path.startswith("model/layer.1")]


def test_ranges_name_what_is_fused(device: str) -> None:
    loaded = load_family("llama2", device)
    step = fused(loaded, DecodeWorkload(1, 1, 2, "fp32"))
    attention = "model/layer.0/input_norm+attention"
    mlp = "model/layer.0/post_attention_norm+mlp"
    assert paths_of(step.plan) == [
        "model",
        "model/embedding",
        "model/layer.0",
        attention,
        f"{attention}/qkv+rope+kv_write",
        f"{attention}/decode_attention",
        f"{attention}/o_proj+residual",
        mlp,
        f"{mlp}/gate_up+silu",
        f"{mlp}/down_proj+residual",
        "model/final_norm+lm_head",
    ]


def test_ranges_name_what_is_left_out(device: str) -> None:
    loaded = load_family("qwen3", device)
    step = fused(loaded, DecodeWorkload(1, 1, 2, "fp32"), f"fused-{'-'.join(FUSIONS)}")
    attention, mlp = "model/layer.0/attention", "model/layer.0/mlp"
    assert paths_of(step.plan) == [
        "model",
        "model/embedding",
        "model/layer.0",
        "model/layer.0/input_norm",
        attention,
        *(f"{attention}/{part}" for part in ("qkv", "qk_norm", "rope", "kv_write")),
        f"{attention}/decode_attention",
        f"{attention}/o_proj",
        "model/layer.0/post_attention_norm",
        mlp,
        f"{mlp}/gate_up",
        f"{mlp}/silu",
        f"{mlp}/down_proj",
        "model/final_norm",
        "model/lm_head",
        "sampling",
    ]


def test_launches_are_repeated_within_the_same_ranges(device: str) -> None:
    loaded = load_family("llama2", device)
    step = fused(loaded, DecodeWorkload(1, 3, 4, "fp32"))
    recorder = Recorder()
    program = StepProgram(step_operations(step.plan), recorder, pdl=False)  # type: ignore[arg-type]
    program.run()
    first = list(recorder.paths)
    recorder.paths.clear()
    program.run()
    assert recorder.paths == first
    assert not recorder.opened
    recorder.enabled = False
    program.run()
    assert recorder.paths == first


class Counted(Operation):
    """Counts how often it is launched and replayed."""

    def __init__(self, replayable: bool = True) -> None:
        self.overlapped: list[bool] = []
        self.replayed = 0
        self._replayable = replayable

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        self.overlapped.append(pdl)
        return (Launch(self._replay, ()),) * 2 if self._replayable else ()

    def _replay(self) -> None:
        self.replayed += 1


def test_only_kernels_are_replayed_and_only_later_ones_overlap() -> None:
    for replayable in (True, False):
        operations = [Counted(), Counted(replayable), Counted()]
        placed = [PlacedOperation(("model",), one) for one in operations]
        program = StepProgram(placed, LayerRanges(None), pdl=True)
        for _ in range(3):
            program.run()
        launched = 1 if replayable else 3
        overlapped = [one.overlapped for one in operations]
        assert overlapped == [[False] * launched, [True] * launched, [True] * launched]
        # Each launch gives two, and the first run replays nothing.
        assert [one.replayed for one in operations] == [4 if replayable else 0] * 3


class FailingCapture(StepProgram):
    """A graph whose first capture fails, after the step was launched as every first one is."""

    errors: ClassVar[list[Exception]] = []

    def __init__(self, *how: Any) -> None:
        super().__init__(*how[:3])

    def run(self) -> None:
        super().run()
        if self.errors:
            raise self.errors.pop()


def test_keeping_logits_has_a_graph_of_its_own_made_when_needed(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []

    class Noted(FailingCapture):
        def __init__(self, operations: Any, *how: Any) -> None:
            super().__init__(operations, *how)
            made.append(operations[-1].operation.logits is not None)

    monkeypatch.setattr(fused_step, "StepGraph", Noted)
    loaded = load_family("llama2", device)
    workload = DecodeWorkload(1, 2, 4, "fp32")
    plain = fused(loaded, workload)
    step = FusedStep(loaded, workload, plain.plan, graphed=True)
    step.prefill(prompt_of(loaded, workload))
    assert made == []
    for _ in range(2):
        step.forced_step(step.step())
    assert made == [False, True]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), MissingRequirement("no capture")]
)
def test_a_step_whose_capture_failed_can_be_made_again(
    error: Exception, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_step, "StepGraph", FailingCapture)
    loaded = load_family("llama2", device)
    workload = DecodeWorkload(1, 5, 4, "fp32")
    plain, eager = both(loaded, workload)
    step = FusedStep(loaded, workload, plain.plan, graphed=True)
    step.prefill(prompt_of(loaded, workload))
    FailingCapture.errors.append(error)
    ids = ids_of(loaded, 1, seed=5)
    with pytest.raises(type(error)):
        step.forced_step(ids)
    assert step.position == eager.position
    assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(decoded(step, 2), decoded(eager, 2))
