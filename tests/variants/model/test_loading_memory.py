"""The memory that loading takes, in a process of its own: what ran before decides what a heap
holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.helpers.host_memory import COUNTED
from tests.variants.model.quantized_checkpoints import WEIGHTS, compressed_tensors

HIDDEN, INTERMEDIATE, VOCABULARY, LAYERS, GROUP = 1024, 4096, 8192, 6, 128
LOAD = """
import sys
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.source import resolve_model
from tests.helpers.host_memory import peak_growth
load_model(resolve_model("tiny"), "cpu", "bf16")
print(peak_growth(lambda: load_model(resolve_model(sys.argv[1]), "cpu", "bf16")))
"""


def save_int4(folder: Path) -> tuple[int, int]:
    """Save a checkpoint of random codes; the bytes of its tensors, and of a layer in bf16."""
    sizes = {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "vocab_size": VOCABULARY}
    heads = {"num_attention_heads": HIDDEN // 128, "num_key_value_heads": HIDDEN // 128}
    int4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "tie_word_embeddings": False,
        "quantization_config": compressed_tensors(
            int4 | {"group_size": GROUP}, format="pack-quantized"
        ),
    }
    folder.joinpath("config.json").write_text(json.dumps(config | sizes | heads))
    square = [f"self_attn.{name}_proj" for name in "qkvo"]
    matrices = dict.fromkeys(square, (HIDDEN, HIDDEN))
    matrices |= dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (INTERMEDIATE, HIDDEN))
    matrices["mlp.down_proj"] = (HIDDEN, INTERMEDIATE)
    random = torch.Generator().manual_seed(0)
    table = torch.randn(VOCABULARY, HIDDEN, generator=random).bfloat16()
    tensors = {"model.embed_tokens.weight": table, "lm_head.weight": table / HIDDEN}
    tensors["model.norm.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    for layer in range(LAYERS):
        place = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{place}{name}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
        for name, (rows, columns) in matrices.items():
            words = torch.empty(rows, columns // 8, dtype=torch.int32)
            words.random_(-(2**31), 2**31, generator=random)
            scales = torch.rand(rows, columns // GROUP, generator=random).half() / 256
            tensors[f"{place}{name}.weight_packed"] = words
            tensors[f"{place}{name}.weight_scale"] = scales
    save_file(tensors, folder / WEIGHTS)
    layer = 2 * sum(rows * columns for rows, columns in matrices.values())
    return sum(tensor.nbytes for tensor in tensors.values()), layer


@pytest.mark.slow
@pytest.mark.skipif(not COUNTED, reason="no /proc")
def test_a_checkpoint_of_4_bits_takes_its_own_memory_and_a_layer(tmp_path: Path) -> None:
    stored, layer = save_int4(tmp_path)
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # It is in memory at the end, so less would say that nothing was counted.
    assert stored - layer < grown <= stored + layer
