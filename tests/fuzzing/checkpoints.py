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


@cache
def _whole() -> dict[str, bytes]:
    """A small Llama's files, with a tokenizer of whole words and an index of one weights file."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    config = AutoConfig.for_model(
        "llama", vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=24, max_position_embeddings=32,
    )  # fmt: skip
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
    header = json.loads(files[_WEIGHTS][8 : 8 + int.from_bytes(files[_WEIGHTS][:8], "little")])
    weights = {key: _WEIGHTS for key in header if key != "__metadata__"}
    return files | {_LIST: json.dumps({"metadata": {}, "weight_map": weights}).encode()}


def checkpoint_case(rng: random.Random) -> Case:
    """`run` of a checkpoint with one or two damaged files."""
    files = dict(_whole())
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
        value[key] = rng.choice((*ODD_VALUES, 2, 3, 8, 17, "llama", "mamba", "bert", "float16"))
