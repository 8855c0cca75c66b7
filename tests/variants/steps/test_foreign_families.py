"""The steps on transformers with families that the fused kernels do not run."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import KvBytes
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.eager_step import EagerStep
from tests.variants.step_builds import static

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 64,
}  # fmt: skip
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma3_text": {"sliding_window": 8},
    # Other heads in its global layers.
    "gemma4_text": {
        "sliding_window": 8, "global_head_dim": 32, "num_global_key_value_heads": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64,
    },
    "olmo2": {},
    "gpt_oss": _EXPERTS | {"num_local_experts": 4, "sliding_window": 8},
    # Latent attention.
    "deepseek_v3": _EXPERTS | {
        "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
        "v_head_dim": 16, "num_key_value_heads": 4, "head_dim": 8,
    },
    "granitemoe": _EXPERTS | {"num_local_experts": 4},
}  # fmt: skip


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
    assert {"layer.3/attention", "layer.3/mlp"} <= set(range_paths(model).values())
    # Short enough for every window.
    held = static(loaded, DecodeWorkload(2, 3, 4, "fp32"))
    held.prefill(prompt[:, :3])
    layers = held._cache.layers
    cached = sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)
    assert KvBytes(config, 2, 4).at(7) == cached
