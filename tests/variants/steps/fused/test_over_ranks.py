"""The fused step over ranks that each have a part of the model, against one rank that has all."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.exchange import MARK
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from tests.helpers.exchanges import share_through, shared_slots
from tests.helpers.fused_steps import fused, ids_of, load_family, logits_agree, prompt_of
from tests.helpers.rank_processes import on_ranks

_EVEN = {"num_attention_heads": 4, "num_key_value_heads": 2}
_DRAWN = SamplingSettings(temperature=0.9, top_k=30, top_p=0.9, seed=5)
_SHARED = _EVEN | {"hidden_size": 128, "shared_expert_intermediate_size": 142}


@dataclass
class Case:
    """A small model and a variant of it."""

    family: str
    spec: str = "fused"
    batch: int = 1
    sampling: SamplingSettings | None = None
    changes: dict[str, int] = field(default_factory=lambda: _EVEN)
    whole_experts: bool = False


def results(ranks: Ranks, cases: list[Case]) -> list[tuple[torch.Tensor, ...]]:
    """Tokens and logits of a rank: those of the prompt, of a forced step and of two more; and its
    residual. For each case."""
    return [_result(ranks, case) for case in cases]


def _result(ranks: Ranks, case: Case) -> tuple[torch.Tensor, ...]:
    # Some families draw parameters that the helper only changes.
    torch.manual_seed(0)
    loaded = load_family(case.family, "cpu", **case.changes)
    shard_model(loaded.model, ranks, case.whole_experts)
    workload = DecodeWorkload(case.batch, 6, 3, "fp32", case.sampling)
    step = fused(replace(loaded, ranks=ranks), workload, case.spec)
    tokens = [step.prefill(prompt_of(loaded, workload))]
    logits = step.forced_step(ids_of(loaded, case.batch, seed=7))
    tokens += [step.step().clone() for _ in range(2)]
    return torch.stack(tokens), logits, step.plan.buffers.x


def assert_as_one(found: list[list[tuple[torch.Tensor, ...]]], cases: list[Case]) -> None:
    """All ranks have the tokens and logits of one rank, and the same residual bit for bit."""
    for number, (tokens, logits, _) in enumerate(results(Ranks(), cases)):
        for rank in found:
            own_tokens, own_logits, residual = rank[number]
            assert torch.equal(own_tokens, tokens), cases[number]
            assert logits_agree(own_logits, logits), cases[number]
            assert torch.equal(residual, found[0][number][2]), cases[number]


CASES = {
    2: [
        Case("qwen3-biased"),
        Case("llama-biased", batch=3),
        Case("gemma2", changes=_EVEN | {"hidden_size": 100}),
        Case("gemma4-inputs", changes={}),
        Case("cohere2"),
        Case("cohere2", "fused-residual-norm-head", 2),
        Case("qwen2-moe", changes=_SHARED),
        Case("qwen2-moe", "fused-residual", 2, changes=_SHARED),
        Case("qwen2-moe", changes=_SHARED, whole_experts=True),
        Case("qwen2-moe", "fused+int8", 2, changes=_SHARED, whole_experts=True),
        Case("qwen3-biased", "fused+fp8_e4m3"),
        Case("qwen3-biased", "fused+int8-head", 2),
        Case("qwen3-moe", "fused+int8"),
        Case("qwen3-biased", "fused", 2, _DRAWN),
        Case("qwen3-biased", "fused-head", 2, _DRAWN),
    ],
    4: [
        Case("llama-tied", changes={}),
        Case("gpt-oss", batch=2, changes={"num_attention_heads": 4, "intermediate_size": 32}),
        Case(
            "gpt-oss",
            changes={"num_attention_heads": 4, "num_local_experts": 4},
            whole_experts=True,
        ),
    ],
}


@pytest.mark.parametrize("size", CASES)
def test_ranks_decode_as_one(size: int, tmp_path: Path) -> None:
    assert_as_one(on_ranks(size, tmp_path, results, CASES[size]), CASES[size])


def through_memory(
    ranks: Ranks, slots: dict[int, list[torch.Tensor]], cases: list[Case]
) -> list[tuple[torch.Tensor, ...]]:
    """`results` by our own kernels, through slots that the ranks share."""
    share_through(slots, ranks.rank)
    return results(ranks, cases)


def test_our_kernels_add_up_and_choose_through_shared_memory(tmp_path: Path) -> None:
    cases = [Case("llama-tied", changes={}), Case("qwen3-moe", batch=3)]
    sizes = {CHOICE_WORDS, 100, 3 * 96}
    slots = shared_slots(sizes)
    assert_as_one(on_ranks(2, tmp_path, through_memory, slots, cases), cases)
    # The words of the last launch are still there.
    assert all((one != MARK).any() for each in slots.values() for one in each)
