"""Checkpoints that cannot be decoded: the bundled model with one thing broken in each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from decodescope.variants.model.source import tiny_folder

NO_DECODER = "no decoder-only language model"
NO_TOKENIZER = "its tokenizer cannot be loaded"
NOT_WHOLE = "not a whole safetensors file"
INDEX = "model.safetensors.index.json"
DOWN = "model.layers.1.mlp.down_proj.weight"

Weights = dict[str, torch.Tensor]
Change = Callable[[Path], object]


def copy_of_tiny(folder: Path) -> Path:
    """The bundled model's checkpoint, copied to `folder`."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_folder() / name, folder / name)
    return folder


def with_config(**fields: object) -> Change:
    """Sets fields of config.json; None removes one."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | fields
        path.write_text(
            json.dumps({key: value for key, value in config.items() if value is not None})
        )

    return change


def with_weights(change: Callable[[Weights], object]) -> Change:
    """Changes the tensors in place."""

    def rewrite(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return rewrite


def without(*parts: str) -> Change:
    """Deletes the tensors whose names contain one of `parts`."""

    def delete(weights: Weights) -> None:
        for name in [name for name in weights if any(part in name for part in parts)]:
            del weights[name]

    return with_weights(delete)


def filled(name: str, value: float) -> Change:
    """Fills a tensor."""
    return with_weights(lambda weights: weights[name].fill_(value))


def cast(name: str, dtype: torch.dtype) -> Change:
    """Stores a tensor in another type."""
    return with_weights(lambda weights: weights.update({name: weights[name].to(dtype)}))


def written(name: str, content: bytes | str) -> Change:
    """Replaces a file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(data)


def cut(name: str, size: int) -> Change:
    """Keeps the first bytes of a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def sharded(folder: Path) -> None:
    """Splits the weights in two files with an index."""
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    (folder / "model.safetensors").unlink()
    halves = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, held in halves.items():
        save_file({name: weights[name] for name in held}, folder / file, {"format": "pt"})
    weight_map = {name: file for file, held in halves.items() for name in held}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def with_a_tensor_twice(folder: Path) -> None:
    """The second file has a tensor of the first as well, with other values."""
    sharded(folder)
    first, second = (load_file(folder / f"{name}.safetensors") for name in ("one", "two"))
    name = min(first)
    save_file(second | {name: first[name] * 0}, folder / "two.safetensors", {"format": "pt"})


def indexed(change: Callable[[dict[str, Any]], object]) -> Change:
    """Splits the weights, then changes the index's weight map."""

    def rewrite(folder: Path) -> None:
        sharded(folder)
        index = json.loads((folder / INDEX).read_text())
        change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index))

    return rewrite


def then(*changes: Change) -> Change:
    """One change after another."""

    def apply(folder: Path) -> None:
        for change in changes:
            change(folder)

    return apply


def _pickled_shard(folder: Path) -> None:
    """An index that names a pickle, which writes the file `ran` when it is loaded."""

    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(folder / "ran"), "w"))

    sharded(folder)
    torch.save({DOWN: Code()}, folder / "x.bin")
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] = dict.fromkeys(index["weight_map"], "x.bin")
    (folder / INDEX).write_text(json.dumps(index))


def _remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def _one_nan(weights: Weights) -> None:
    weights[DOWN][3, 5] = torch.nan


def _small_tables(weights: Weights) -> None:
    weights["model.embed_tokens.weight"] = weights["model.embed_tokens.weight"][:100].clone()


def _rename(weights: Weights) -> None:
    for name in list(weights):
        weights[f"old.{name}"] = weights.pop(name)


def _transpose(weights: Weights) -> None:
    weights[DOWN] = weights[DOWN].T.contiguous()


def _forget_a_shard(names: dict[str, Any]) -> None:
    for name in [name for name, file in names.items() if file == "two.safetensors"]:
        del names[name]


def _rename_to_distributed(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.rename(folder / "shard-00000-model-00000-of-00001.safetensors")


# What breaks a copy of the bundled model, and words of the line that refuses it.
BROKEN: dict[str, tuple[Change, str]] = {
    # Weights that are missing, of another model or no numbers.
    "no down_proj": (
        without("down_proj"),
        "lacks 4 tensors of the model: model.layers.0.mlp.down_proj",
    ),
    "no embedding": (without("embed_tokens"), "lacks "),
    "no layer": (without("layers.3."), "lacks 9 tensors"),
    "no weights": (with_weights(lambda weights: weights.clear()), "no tensors"),
    "a head that is not tied": (
        with_config(tie_word_embeddings=False),
        "lacks 1 tensor of the model: lm_head.weight",
    ),
    "more layers": (with_config(num_hidden_layers=5), "lacks 9 tensors"),
    "a tensor in two files": (with_a_tensor_twice, "two.safetensors: holds model."),
    "other names": (with_weights(_rename), "lacks"),
    "all NaN": (filled(DOWN, torch.nan), f"NaN or infinite values in 1 tensor as float32: {DOWN}"),
    "one NaN": (with_weights(_one_nan), "NaN or infinite"),
    "infinite": (filled(DOWN, torch.inf), "NaN or infinite"),
    "too large to add": (filled("model.norm.weight", 3e38), "logits are NaN or infinite"),
    "no frequencies": (
        with_config(rope_parameters={"rope_type": "default", "rope_theta": 0.0}),
        "inv_freq are NaN or infinite; correct rope_theta",
    ),
    "another vocabulary": (
        with_weights(_small_tables),
        "[100, 256] in the weights and [4096, 256] by",
    ),
    "another width": (with_config(hidden_size=320), "different models"),
    "a norm of flags": (
        cast("model.norm.weight", torch.bool),
        "model.norm.weight is BOOL (only F32",
    ),
    "a matrix of integers": (cast(DOWN, torch.int64), f"{DOWN} is I64"),
    "a transposed matrix": (with_weights(_transpose), f"the shape differs in 1 tensor, {DOWN}"),
    # Files.
    "no file": (_remove("model.safetensors"), "safetensors"),
    "an empty file": (written("model.safetensors", b""), NOT_WHOLE),
    "half a file": (cut("model.safetensors", 3_000_000), NOT_WHOLE),
    "half a header": (cut("model.safetensors", 100), NOT_WHOLE),
    "noise": (written("model.safetensors", bytes(range(256)) * 64), NOT_WHOLE),
    "a header of 2^60 bytes": (
        written("model.safetensors", (1 << 60).to_bytes(8, "little") + b"{}"),
        "not a whole",
    ),
    "half a shard": (
        then(sharded, cut("two.safetensors", 100_000)),
        "two.safetensors: not",
    ),
    "an empty shard": (then(sharded, written("two.safetensors", b"")), "two.safetensors"),
    "no shard": (
        then(sharded, _remove("two.safetensors")),
        "names are missing (two.safetensors)",
    ),
    "a shard that no index names": (indexed(_forget_a_shard), "lacks"),
    "a pickled shard": (_pickled_shard, "names x.bin; only safetensors"),
    "a shard elsewhere": (
        indexed(lambda names: names.update(a="../one.safetensors")),
        "same folder",
    ),
    "an index of numbers": (indexed(lambda names: names.update(a=3)), "names no weights"),
    "an empty index": (then(sharded, written(INDEX, "")), "unreadable index of weights"),
    "a nested index": (then(sharded, written(INDEX, "[" * 200_000)), "nested too deeply"),
    "a distributed checkpoint": (_rename_to_distributed, "has neither model.safetensors nor"),
    # config.json.
    "a nested config": (written("config.json", "[" * 200_000), "nested too deeply"),
    "a list": (written("config.json", "[]"), "JSON object"),
    "an empty config": (written("config.json", ""), "unreadable model configuration"),
    "no UTF-8": (written("config.json", b'{"model_type": "\xff"}'), "unreadable"),
    "no model type": (with_config(model_type=None), "model_type is missing"),
    "a list as model type": (with_config(model_type=["llama"]), 'model_type is ["llama"]'),
    "an unknown model type": (
        with_config(model_type="nonesuch"),
        "no model of type nonesuch",
    ),
    "a width in words": (with_config(hidden_size="wide"), "hidden_size"),
    "no heads": (with_config(num_attention_heads=0), "by zero"),
    "a list of heads": (with_config(num_attention_heads=[4]), "num_attention_heads"),
    "minus four heads": (with_config(num_attention_heads=-4), "negative"),
    "a huge width": (with_config(hidden_size=10**12), "different models"),
    "a huge vocabulary": (with_config(vocab_size=10**15), "different models"),
    "a number without end": (with_config(intermediate_size=10**400), "cannot be loaded"),
    "no layers": (with_config(num_hidden_layers=0), "num_hidden_layers is 0"),
    "a billion layers": (with_config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
    "no kind of activation": (with_config(hidden_act="nonesuch"), "nonesuch"),
    "a window of nothing": (
        with_config(model_type="mistral", sliding_window=0),
        "has 0 tokens; correct sliding_window",
    ),
    "a window of minus one": (
        with_config(model_type="mistral", sliding_window=-1),
        "has -1 tokens; correct sliding_window",
    ),
    "rope of no type": (with_config(rope_parameters={"rope_type": "nonesuch"}), "nonesuch"),
    "positions in words": (with_config(max_position_embeddings="many"), "max_position"),
    "weights of another name": (
        with_config(transformers_weights="adapter_model.bin"),
        "transformers_weights",
    ),
    # Architectures and formats that are not decoded.
    "bert": (with_config(model_type="bert"), NO_DECODER),
    "t5": (with_config(model_type="t5"), NO_DECODER),
    "bart": (with_config(model_type="bart"), NO_DECODER),
    "vit": (with_config(model_type="vit"), NO_DECODER),
    "clip": (with_config(model_type="clip"), NO_DECODER),
    "whisper": (with_config(model_type="whisper"), NO_DECODER),
    "mixtral": (with_config(model_type="mixtral"), "lacks"),
    "gptq": (
        with_config(quantization_config={"quant_method": "gptq", "bits": 4}),
        "describes weights of 4 bits, and no tensor has such",
    ),
    # Tokenizers.
    "a broken tokenizer": (written("tokenizer.json", "{"), NO_TOKENIZER),
    "an empty tokenizer": (written("tokenizer.json", ""), NO_TOKENIZER),
    "a tokenizer of another kind": (
        written("tokenizer.json", '{"model": 3}'),
        NO_TOKENIZER,
    ),
    "a tokenizer of no fields": (
        written("tokenizer_config.json", "[]"),
        NO_TOKENIZER,
    ),
    "a nested tokenizer": (
        written("tokenizer_config.json", "[" * 200_000),
        NO_TOKENIZER,
    ),
    "a larger tokenizer": (
        then(with_weights(_small_tables), with_config(vocab_size=100)),
        "vocabulary ends at 99",
    ),
}
