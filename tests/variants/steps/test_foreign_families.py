"""The steps on transformers with families that the fused kernels may not run."""

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.analyzer.errors import InputError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import KvBytes
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.eager_step import EagerStep, keeps_kv
from tests.variants.step_builds import Build, static

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "max_position_embeddings": 64,
}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_DELTA = {
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 8},
    # Other heads in its global layers. The last two layers read the K and V of the first two.
    "gemma4_text": {
        "sliding_window": 8,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 64,
    },
    "olmo2": {},
    "gpt_oss": _EXPERTS | {"num_local_experts": 4, "sliding_window": 8},
    # Latent attention.
    "deepseek_v3": _EXPERTS
    | {
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "num_key_value_heads": 4,
        "head_dim": 8,
    },
    # States of a gated DeltaNet in place of K and V in some layers.
    "qwen3_next": _EXPERTS | _DELTA | {"num_experts": 4, "shared_expert_intermediate_size": 32},
    "qwen3_5_text": _DELTA,
    "granitemoe": _EXPERTS | {"num_local_experts": 4},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_give_the_logits_of_a_whole_forward_pass(family: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = AutoConfig.for_model(family, **(SMALL | FAMILIES[family]))
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    loaded = LoadedModel(model, None, "random", family, None)
    prompt, forced = torch.randint(3, 64, (2, 12)), torch.randint(3, 64, (2,))
    for build in (EagerStep, static):
        step = build(loaded, DecodeWorkload(2, 12, 6, "fp32"))
        first = step.prefill(prompt)
        logits = step.forced_step(forced)
        expected = model(torch.cat([prompt, forced[:, None]], 1), use_cache=False).logits
        assert torch.equal(first, expected[:, 11].argmax(-1))
        torch.testing.assert_close(logits, expected[:, 12], atol=1e-5, rtol=1e-4)
        step.step()
        step.reset(12)
        assert torch.equal(step.forced_step(forced), logits)
    assert {"layer.3/attention", "layer.3/mlp"} <= set(range_paths(model).values())
    # Short enough for every window.
    held = static(loaded, DecodeWorkload(2, 3, 4, "fp32"))
    held.prefill(prompt[:, :3])
    kept = held._cache.layers[: 4 - getattr(config, "num_kv_shared_layers", 0)]
    read = [kept[index % len(kept)] for index in range(4)]
    kv = KvBytes(config, 2, 4)
    assert kv.at(7) == sum(map(bytes_of_a_step, read))
    assert kv.kept(7) == sum(map(bytes_of_a_step, kept))


def bytes_of_a_step(layer: Any) -> int:
    """Of a layer's cache: K and V are read, states are read and written."""
    if keeps_kv(layer):
        return layer.keys.nbytes + layer.values.nbytes
    return 2 * sum(state.nbytes for state in tree_leaves(layer.recurrent_states))


@pytest.mark.parametrize("build", [EagerStep, static])
def test_a_recurrent_state_goes_back_to_the_prompts_end_only(build: Build) -> None:
    config = AutoConfig.for_model("qwen3_5_text", **(SMALL | _DELTA))
    model = AutoModelForCausalLM.from_config(config).eval()
    step = build(LoadedModel(model, None, "random", "m", None), DecodeWorkload(1, 3, 6, "fp32"))
    step.prefill(torch.tensor([[3, 4, 5]]))
    for _ in range(2):
        step.step()
    step.reset(5)
    with pytest.raises(InputError, match="position 4: the model's recurrent state has passed it"):
        step.reset(4)
