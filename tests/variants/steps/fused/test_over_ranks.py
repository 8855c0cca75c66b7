"""The fused step over ranks that each have a part of the model, against one rank that has all."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.exchange import MARK
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS
from decodescope.kernels.ops.all_reduce_qk_norm import norm_words
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from tests.helpers.exchanges import share_through, shared_slots
from tests.helpers.fused_steps import fused, ids_of, load_family, logits_agree, prompt_of
from tests.helpers.rank_processes import on_ranks
from tests.variants.model.grouped_checkpoints import LAYOUTS, save_packed

_EVEN = {"num_attention_heads": 4, "num_key_value_heads": 2}
_DRAWN = SamplingSettings(temperature=0.9, top_k=30, top_p=0.9, seed=5)
_SIX = {"num_attention_heads": 6}
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
    dtype: str = "fp32"


def results(ranks: Ranks, cases: list[Case]) -> list[tuple[torch.Tensor, ...]]:
    """Tokens and logits of a rank: those of the prompt, of a forced step and of two more; and its
    residual. For each case."""
    return [_result(ranks, case) for case in cases]


def _result(ranks: Ranks, case: Case) -> tuple[torch.Tensor, ...]:
    # Some families draw parameters that the helper only changes.
    torch.manual_seed(0)
    loaded = load_family(case.family, "cpu", **case.changes)
    shard_model(loaded.model, ranks, case.whole_experts)
    return _decoded(replace(loaded, ranks=ranks), case)


def _decoded(loaded: LoadedModel, case: Case) -> tuple[torch.Tensor, ...]:
    workload = DecodeWorkload(case.batch, 6, 3, case.dtype, case.sampling)
    step = fused(loaded, workload, case.spec)
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
        # 6 heads of Q and 2 of K with one norm each, of a head_dim that is no power of 2.
        Case("olmo2", changes=_SIX),
        Case("olmo3", "fused-qkv-rope-residual", 2, _DRAWN),
        Case("olmo3", "fused+int8", 3),
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
        # A head of Q each; two ranks, then all, have the same of K.
        Case("olmo3"),
        Case("olmo2", changes={"num_key_value_heads": 1}),
        Case("llama-tied", changes={}),
        Case("gpt-oss", batch=2, changes={"num_attention_heads": 4, "intermediate_size": 32}),
        Case(
            "gpt-oss",
            changes={"num_attention_heads": 4, "num_local_experts": 4},
            whole_experts=True,
        ),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("size", CASES)
def test_ranks_decode_as_one(size: int, tmp_path: Path) -> None:
    assert_as_one(on_ranks(size, tmp_path, results, CASES[size]), CASES[size])


def of_checkpoints(ranks: Ranks, cases: dict[Path, Case]) -> list[tuple[torch.Tensor, ...]]:
    """As `results`, of what is loaded from each folder."""
    found = []
    for folder, case in cases.items():
        loaded = load_model(resolve_model(str(folder)), "cpu", case.dtype, ranks=ranks)
        found.append(_decoded(loaded, case))
    return found


def test_checkpoints_of_4_bits_decode_as_one(tmp_path: Path) -> None:
    """In fp16, products of one token read int16."""
    cases = {
        tmp_path / "integers": Case("AWQ", dtype="fp16"),
        tmp_path / "one": Case("AWQ"),
        tmp_path / "two": Case("NVFP4 of compressed-tensors", batch=2),
    }
    for folder, case in cases.items():
        inner = 160 if "NV" in case.family else 128
        sizes = _EVEN | {"hidden_size": 96, "intermediate_size": inner}
        save_packed(folder, replace(LAYOUTS[case.family], sizes=sizes))
    (_, logits, _), *expected = of_checkpoints(Ranks(), cases)
    for (_, own_logits, _), *rank in on_ranks(2, tmp_path, of_checkpoints, cases):
        # That of sums in fp16.
        assert (own_logits - logits).norm() < 2e-3 * logits.norm()
        for (tokens, logits_of_one, _), (own_tokens, own_logits, _) in zip(
            expected, rank, strict=True
        ):
            assert torch.equal(own_tokens, tokens)
            assert logits_agree(own_logits, logits_of_one)


def through_memory(
    ranks: Ranks, slots: dict[int, list[torch.Tensor]], cases: list[Case]
) -> list[tuple[torch.Tensor, ...]]:
    """`results` by our own kernels, through slots that the ranks share."""
    share_through(slots, ranks.rank)
    return results(ranks, cases)


def test_our_kernels_add_up_and_choose_through_shared_memory(tmp_path: Path) -> None:
    cases = [Case("llama-tied", changes={}), Case("qwen3-moe", batch=3)]
    # Those of one token would be as many as those of the choice.
    cases += [Case("olmo3", batch=3, changes={"hidden_size": 100})]
    sizes = {CHOICE_WORDS, 100, 3 * 96, 3 * 100, *(norm_words(each.batch) for each in cases)}
    slots = shared_slots(sizes)
    assert_as_one(on_ranks(2, tmp_path, through_memory, slots, cases), cases)
    # The words of the last launch are still there.
    assert all((one != MARK).any() for each in slots.values() for one in each)
