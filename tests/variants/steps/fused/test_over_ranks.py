"""The fused step over ranks that each have a part of the model, against one rank that has all."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.kernels.host.exchange import MARK, new_exchange, new_slots
from decodescope.kernels.ops.all_reduce_choice import CHOICE_WORDS
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel import sums
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.parallel.shared_slots import SharedExchange
from tests.helpers.exchanges import PATIENCE_NS
from tests.helpers.fused_steps import assert_logits_agree, fused, ids_of, load_family, prompt_of
from tests.helpers.ranks.forked import over_ranks

_EVEN = {"num_attention_heads": 4, "num_key_value_heads": 2}
_SHARED = _EVEN | {"hidden_size": 128, "shared_expert_intermediate_size": 142}


def results(ranks: Ranks, family: str, spec: str, workload: DecodeWorkload, **changes: Any) -> Any:
    """Tokens and logits of a rank: those of the prompt, of a forced step and of two more."""
    # Some families draw parameters that the helper only changes.
    torch.manual_seed(0)
    loaded = load_family(family, "cpu", **changes)
    shard_model(loaded.model, ranks)
    loaded = replace(loaded, ranks=ranks)
    step = fused(loaded, workload, spec)
    tokens = [step.prefill(prompt_of(loaded, workload))]
    logits = step.forced_step(ids_of(loaded, workload.batch, seed=7))
    tokens += [step.step().clone() for _ in range(2)]
    return torch.stack(tokens), logits, step.plan.buffers.x


def check(size: int, family: str, spec: str, workload: DecodeWorkload, **changes: Any) -> None:
    """All ranks have the tokens and logits of one rank, and the same residual bit for bit."""
    tokens, logits, _ = results(Ranks(), family, spec, workload, **changes)
    found = over_ranks(size, lambda ranks: results(ranks, family, spec, workload, **changes))
    for own_tokens, own_logits, residual in found:
        assert torch.equal(own_tokens, tokens)
        assert_logits_agree(own_logits, logits)
        assert torch.equal(residual, found[0][2])


@pytest.mark.parametrize(
    ("size", "family", "spec", "batch", "changes"),
    [
        (2, "qwen3-biased", "fused", 1, _EVEN),
        (2, "llama-biased", "fused", 3, _EVEN),
        (4, "llama-tied", "fused", 1, {}),
        (2, "gemma2", "fused", 1, _EVEN | {"hidden_size": 100}),
        (2, "gemma4-inputs", "fused", 1, {}),
        (2, "cohere2", "fused", 1, _EVEN),
        (2, "cohere2", "fused-residual-norm-head", 2, _EVEN),
        (2, "qwen2-moe", "fused", 1, _SHARED),
        (2, "qwen2-moe", "fused-residual", 2, _SHARED),
        (4, "gpt-oss", "fused", 2, {"num_attention_heads": 4, "intermediate_size": 32}),
        (2, "qwen3-biased", "fused+fp8_e4m3", 1, _EVEN),
        (2, "qwen3-biased", "fused+int8-head", 2, _EVEN),
        (2, "qwen3-moe", "fused+int8", 1, _EVEN),
    ],
)
def test_ranks_decode_as_one(
    size: int, family: str, spec: str, batch: int, changes: dict[str, Any]
) -> None:
    check(size, family, spec, DecodeWorkload(batch, 6, 3, "fp32"), **changes)


@pytest.mark.parametrize("batch", [1, 3])
def test_our_kernels_add_up_and_choose_through_shared_memory(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {batch * 100, CHOICE_WORDS}
    slots = {each: [new_slots(each, 2, "cpu").share_memory_() for _ in range(2)] for each in words}

    def shared(words: int, device: torch.device, ranks: Ranks) -> SharedExchange:
        # Forks have it at the same addresses.
        peers = [one.data_ptr() for one in slots[words]]
        own = slots[words][ranks.rank]
        return SharedExchange(new_exchange(ranks.rank, own, peers, PATIENCE_NS), ())

    monkeypatch.setattr(sums, "why_not_shared", lambda device, ranks: None)
    monkeypatch.setattr(sums, "shared_exchange", shared)
    check(2, "llama-tied", "fused", DecodeWorkload(batch, 6, 3, "fp32"))
    # The words of the last launch are still there.
    assert all((one != MARK).any() for each in slots.values() for one in each)


@pytest.mark.parametrize("spec", ["fused", "fused-head"])
def test_the_same_seed_draws_the_same_tokens(spec: str) -> None:
    sampling = SamplingSettings(temperature=0.9, top_k=30, top_p=0.9, seed=5)
    check(2, "qwen3-biased", spec, DecodeWorkload(2, 6, 3, "fp32", sampling), **_EVEN)
