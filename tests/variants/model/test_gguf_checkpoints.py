"""GGUF files: Q4_0 as it is, other types dequantised, as transformers reads them."""

from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import QuantizedLinear
from decodescope.variants.model.source import resolve_model
from tests.variants.model.gguf_checkpoints import VOCABULARY, by_transformers, save_gguf

LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
MIXES: dict[str, dict[str, Kind]] = {
    "Q4_0": dict.fromkeys(LAYER, Kind.Q4_0) | {"token_embd": Kind.Q4_0, "output": Kind.Q6_K},
    "Q8_0": dict.fromkeys((*LAYER, "token_embd"), Kind.Q8_0),
    "Q4_K_M": dict.fromkeys(LAYER, Kind.Q4_K)
    | {"attn_v": Kind.Q6_K, "ffn_down": Kind.Q6_K, "token_embd": Kind.Q4_K, "output": Kind.Q6_K},
}


def load(path: Path) -> LoadedModel:
    return load_model(resolve_model(str(path)), "cpu", "fp32")


@pytest.mark.parametrize("mix", MIXES)
def test_the_logits_are_those_of_transformers(mix: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    save_gguf(path, MIXES[mix])
    loaded, expected = load(path), by_transformers(path)
    for name, module in expected.named_modules():
        if isinstance(module, torch.nn.Linear):
            mine = loaded.model.get_submodule(name)
            if isinstance(mine, QuantizedLinear):
                weight = mine.convert(mine.data, mine.scale, torch.float32, mine.packing)
            else:
                weight = mine.weight
            assert torch.equal(weight, module.weight), name
    ids = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    logits = loaded.model(ids).logits
    assert logits.isfinite().all()
    assert torch.equal(logits, expected(ids).logits)
    (finding,) = loaded.findings
    print(finding.message)
