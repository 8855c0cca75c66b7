import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import LoadedModel, loaded_model
from decodescope_fast_norm.modules import FastRMSNorm, with_fast_norms


def small(model_type: str, device: str, **fields: object) -> LoadedModel:
    """A model of two layers with random weights, norms too."""
    shape = {
        "vocab_size": 97,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "head_dim": 16,
    }
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **shape | fields))
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.2)
    return loaded_model(model.to(device), None, "random", model_type)


@pytest.mark.parametrize(("model_type", "norms"), [("llama", 5), ("qwen3", 9)])
def test_every_norm_is_replaced_and_the_logits_stay(
    model_type: str, norms: int, device: str
) -> None:
    loaded = small(model_type, device)
    fast = with_fast_norms(loaded)
    assert sum(isinstance(module, FastRMSNorm) for module in fast.model.modules()) == norms
    ids = torch.arange(22, device=device).reshape(2, 11)
    with torch.no_grad():
        expected, logits = loaded.model(ids).logits, fast.model(ids).logits
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


def test_the_models_own_modules_and_weights_stay(device: str) -> None:
    loaded = small("llama", device)
    before = [type(module) for module in loaded.model.modules()]
    fast = with_fast_norms(loaded)
    assert [type(module) for module in loaded.model.modules()] == before
    pairs = zip(loaded.model.parameters(), fast.model.parameters(), strict=True)
    assert all(one is other for one, other in pairs)


def test_another_formula_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match=r"model.layers.0.* of gemma \(GemmaRMSNorm\) is not x /"):
        with_fast_norms(small("gemma", device))


def test_a_model_without_rms_norm_is_refused(device: str) -> None:
    with pytest.raises(ModelError, match="gpt_neox has no RMSNorm; choose"):
        with_fast_norms(small("gpt_neox", device))
