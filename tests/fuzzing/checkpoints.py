"""Cases of checkpoint folders: config.json, tokenizer, index and weights of odd values."""

import json
import random
import tempfile
from functools import cache
from pathlib import Path

from tests.fuzzing.case import Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_json

_LIST = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
_GGUF = "model.gguf"
# Those with any number of columns.
_LAYOUTS = ("GPTQ v2, channels", "AWQ", "compressed-tensors, channels with zero points")
_WORDS = (
    "llama",
    "mamba",
    "bert",
    "float16",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "U8",
    "F16",
    "F8_E8M0",
    "fp8",
    "gptq",
    "modelopt",
    "group",
    "tensor",
    "int",
    "float",
)


@cache
def whole_checkpoint() -> dict[str, bytes]:
    """A small Llama's files, with a tokenizer of whole words and an index of one weights file."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    config = AutoConfig.for_model(
        "llama",
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    logging.disable_progress_bar()
    words = {f"w{number}": number for number in range(38)} | {"<unk>": 38, "</s>": 39}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>").save_pretrained(
            folder
        )
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {_LIST: _index(files[_WEIGHTS])}


@cache
def _quantized(layout: str) -> dict[str, bytes]:
    """The same with matrices of 8 bits."""
    import torch
    from safetensors.torch import load, save

    dtype = torch.int8 if layout == "int8" else torch.float8_e4m3fn
    tensors = load(whole_checkpoint()[_WEIGHTS])
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        # Codes of small values: the text does not matter.
        tensors[name] = (tensors[name] * 100).to(dtype)
        rows = len(tensors[name])
        shape = {"int8": (rows, 1), "fp8": (rows,), "whole": ()}[layout]
        tensors[f"{name}_scale"] = torch.full(shape, 0.01)
    weights = {"num_bits": 8, "type": "int" if layout == "int8" else "float", "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights | {"strategy": "channel"}}
    method = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    config = json.loads(whole_checkpoint()["config.json"]) | {"quantization_config": method}
    files = whole_checkpoint() | {_WEIGHTS: save(tensors, {"format": "pt"})}
    if layout != "whole":
        files["config.json"] = json.dumps(config).encode()
    return files | {_LIST: _index(files[_WEIGHTS])}


@cache
def _packed(layout: str) -> dict[str, bytes]:
    """The same with matrices of 4 bits."""
    import numpy as np
    from safetensors.torch import load, save

    from tests.variants.model.grouped_checkpoints import LAYOUTS, drawn

    tensors = load(whole_checkpoint()[_WEIGHTS])
    generator = np.random.default_rng(0)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        rows, columns = tensors.pop(name).shape
        stored, _ = LAYOUTS[layout].pack(drawn(rows, columns, LAYOUTS[layout], generator))
        key = name.rpartition(".")[0]
        tensors |= {f"{key}.{end}": value.contiguous() for end, value in stored.items()}
    fields = {"quantization_config": LAYOUTS[layout].config}
    config = json.dumps(json.loads(whole_checkpoint()["config.json"]) | fields).encode()
    files = whole_checkpoint() | {_WEIGHTS: save(tensors), "config.json": config}
    return files | {_LIST: _index(files[_WEIGHTS])}


@cache
def _gguf() -> bytes:
    """A GGUF file."""
    from tests.variants.model.gguf_checkpoints import MIXES, save_gguf

    with tempfile.TemporaryDirectory() as name:
        save_gguf(Path(name) / _GGUF, MIXES["Q4_0"])
        return (Path(name) / _GGUF).read_bytes()


def _index(weights: bytes) -> bytes:
    names = [name for name in _header(weights) if name != "__metadata__"]
    return json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, _WEIGHTS)}).encode()


def _header(weights: bytes) -> dict[str, object]:
    header: dict[str, object] = json.loads(weights[8 : 8 + _header_bytes(weights)])
    return header


def _header_bytes(weights: bytes) -> int:
    return int.from_bytes(weights[:8], "little")


def checkpoint_case(rng: random.Random) -> Case:
    """`run` of a checkpoint, quantized or not, with one or two damaged files."""
    layout = rng.choice(("int8", "fp8", "whole", "none", "none", "none", *_LAYOUTS, _GGUF))
    if layout == _GGUF:
        data = damage_bytes(_gguf(), rng) if rng.random() < 0.9 else _gguf()
        arguments = ("run", "--model", _GGUF, "--device", "cpu", "--tokens", "2", "--json")
        return Case((*arguments, "--prompt-ids", "1,2"), {_GGUF: data})
    if layout == "none":
        files = dict(whole_checkpoint())
    else:
        files = dict(_packed(layout) if layout in _LAYOUTS else _quantized(layout))
    if rng.random() < 0.7:
        del files[_LIST]
    names = rng.choices((*files, "config.json", "config.json"), k=rng.choice((0, 1, 1, 1, 2)))
    for name in dict.fromkeys(names):
        if rng.random() < 0.04:
            del files[name]
        else:
            files[name] = _damaged(name, files[name], rng)
    prompt = rng.choice((("--prompt", "w1 w2 nothing"), ("--prompt-ids", "1,2,39"), ()))
    arguments = ("run", "--model", ".", "--device", "cpu", "--tokens", "2", *prompt)
    length = () if prompt else ("--context", rng.choice(("1", "20", "31", "400")))
    return Case((*arguments, *length, "--json"), files, decodes=rng.random() < 0.02)


def _damaged(name: str, data: bytes, rng: random.Random) -> bytes:
    if name == _WEIGHTS and rng.random() < 0.5:
        header = _header(data)
        _change(header, rng)
        text = as_json(header, rng)
        return len(text).to_bytes(8, "little") + text + data[8 + _header_bytes(data) :]
    if not name.endswith(".json") or rng.random() < 0.15:
        return damage_bytes(data, rng)
    if rng.random() < 0.5:
        return damage_json(data, rng)
    value = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        _change(value, rng)
    return as_json(value, rng)


def _change(value: dict[str, object], rng: random.Random) -> None:
    """A key of the object, or of one in it, gets an odd value, another key's, or is taken out."""
    key = rng.choice(list(value) or ["none"])
    inner = value.get(key)
    if isinstance(inner, dict) and inner and rng.random() < 0.7:
        _change(inner, rng)
    elif rng.random() < 0.15:
        value.pop(key, None)
    elif rng.random() < 0.3:
        value[key] = value[rng.choice(list(value))] if value else 1
    else:
        value[key] = rng.choice((*ODD_VALUES, 2, 3, 8, 17, *_WORDS))
