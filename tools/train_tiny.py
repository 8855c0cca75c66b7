"""Trains `tiny`, the small model that comes with decodescope: `python -m tools.train_tiny -o DIR`.

It is a Llama (GQA, tied embeddings) of 3.8 M parameters, trained on the sources of CPython's
standard library. Seeds are fixed; the checkpoint with the lowest validation loss is kept. The
folder receives the model in bf16 safetensors, the tokenizer, `prompts.json` (held-out snippets),
`training.json` (figures, corpus digest and environment) and README.md (the model card).
"""

import argparse
import json
import math
import platform
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer

from benchmarks.quality.corpus import (
    END_OF_TEXT,
    VOCAB_SIZE,
    Corpus,
    Sources,
    digest_of,
    read_corpus,
)
from benchmarks.quality.corpus import train_tokenizer as train_bpe
from decodescope.analyzer.errors import DecodescopeError


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything except the corpus that determines the result."""

    seed: int = 20260
    context: int = 1024
    batch: int = 48
    steps: int = 2400
    warmup_steps: int = 150
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    evaluate_every: int = 300


def model_config() -> transformers.LlamaConfig:
    """3.8 M parameters: 4 layers, 4 query heads over 2 KV heads of 64, tied embeddings."""
    return transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )


def encode_files(tokenizer: Tokenizer, files: Sources) -> torch.Tensor:
    """All files as one int64 stream [tokens]; each starts with the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert end is not None
    stream: list[int] = []
    for encoding in tokenizer.encode_batch([text for _, text in files]):
        stream.append(end)
        stream.extend(encoding.ids)
    return torch.tensor(stream, dtype=torch.int64)


def batches(stream: torch.Tensor, recipe: Recipe, device: str) -> Iterator[torch.Tensor]:
    """Random windows [batch, context + 1] of the stream, drawn from the recipe's seed."""
    generator = torch.Generator().manual_seed(recipe.seed)
    stream = stream.to(device)
    offsets = torch.arange(recipe.context + 1, device=device)
    while True:
        starts = torch.randint(
            len(stream) - recipe.context - 1, (recipe.batch, 1), generator=generator
        )
        yield stream[starts.to(device) + offsets]


def next_token_loss(model: torch.nn.Module, window: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy (nats) of the next token over a window [batch, context + 1]."""
    with torch.autocast(window.device.type, torch.bfloat16, enabled=window.is_cuda):
        logits = model(input_ids=window[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model: torch.nn.Module, stream: torch.Tensor, context: int) -> float:
    """Mean loss (nats per token) over consecutive windows that cover the validation stream once."""
    device = next(model.parameters()).device
    count = (len(stream) - 1) // context
    windows = torch.stack([stream[i * context : (i + 1) * context + 1] for i in range(count)])
    losses = [
        next_token_loss(model, part.to(device)).item() * len(part)
        for part in torch.split(windows, 16)
    ]
    return sum(losses) / count


def learning_rate_at(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then cosine decay to a twentieth of the peak."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return recipe.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def train(
    recipe: Recipe, train_stream: torch.Tensor, validation_stream: torch.Tensor, device: str
) -> tuple[transformers.LlamaForCausalLM, list[dict[str, float]]]:
    """Run the recipe; returns the model with the lowest validation loss and the loss history."""
    torch.manual_seed(recipe.seed)
    model = transformers.LlamaForCausalLM(model_config()).to(device)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": recipe.weight_decay},
            {"params": plain, "weight_decay": 0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    best_loss, best_state = math.inf, dict(model.state_dict())
    history = []
    source = batches(train_stream, recipe, device)
    for step in range(1, recipe.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step - 1, recipe)
        loss = next_token_loss(model, next(source))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % recipe.evaluate_every == 0 or step == recipe.steps:
            held_out = validation_loss(model, validation_stream, recipe.context)
            history.append({"step": step, "train": loss.item(), "validation": held_out})
            sys.stderr.write(f"step {step}: train {loss.item():.4f}, validation {held_out:.4f}\n")
            if held_out < best_loss:
                best_loss = held_out
                best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    model.load_state_dict(best_state)
    return model, history


def pick_prompts(corpus: Corpus, tokenizer: Tokenizer, count: int = 8) -> list[str]:
    """Held-out snippets of at least 300 tokens and several functions, each from a line's start."""
    prompts: list[str] = []
    for name, text in corpus.validation:
        start = max(text.find("\nclass "), text.find("\ndef "))
        if "test" in name or start < 0:
            continue
        ids = tokenizer.encode(text[start + 1 :]).ids[:320]
        snippet = tokenizer.decode(ids)
        if len(ids) >= 300 and snippet.count("def ") >= 4:
            prompts.append(snippet)
    return prompts[:count]


def save(
    folder: Path, model: transformers.LlamaForCausalLM, tokenizer: Tokenizer, corpus: Corpus
) -> None:
    """Write the checkpoint as a folder that transformers opens."""
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT
    ).save_pretrained(folder)
    prompts = pick_prompts(corpus, tokenizer)
    (folder / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")


def model_card(training: dict[str, object], sample: str) -> str:
    """README.md of the checkpoint: what it is, its sources and its quality."""
    return (
        "---\nlicense: apache-2.0\nlanguage: code\n---\n\n# tiny\n\n"
        f"A Llama of {training['parameters']:,} parameters (GQA 4:2, tied embeddings, byte-level "
        f"BPE of {VOCAB_SIZE:,} tokens, bf16) that comes with decodescope, so that a real decode "
        "step runs on a machine with no GPU and no network.\n\n"
        f"Trained on the sources of CPython {training['python']}'s standard library "
        f"({training['corpus_files']:,} files, {training['corpus_bytes']:,} bytes), which are "
        "under the PSF License Agreement, © Python Software Foundation. Files are split whole; "
        f"{training['validation_files']} of them are held out.\n\n"
        f"Validation perplexity: **{training['validation_perplexity']:.3f}** per token "
        f"({training['validation_bits_per_byte']:.3f} bits per byte).\n\n"
        "Trained by `python -m tools.train_tiny`; `training.json` holds the recipe, the corpus "
        "digest and the environment.\n\n"
        f"A held-out prompt, continued greedily:\n\n```python\n{sample}\n```\n"
    )


@torch.no_grad()
def continue_greedily(folder: Path, new_tokens: int = 120) -> str:
    """The first 64 tokens of the first held-out prompt, and their greedy continuation."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    prompt = json.loads((folder / "prompts.json").read_text())[0]
    ids = torch.tensor([tokenizer(prompt)["input_ids"][:64]])
    out = model.generate(ids, do_sample=False, max_new_tokens=new_tokens, pad_token_id=0)
    return str(tokenizer.decode(out[0])).rstrip()


def main() -> None:
    """Train, and write the checkpoint to the folder given by -o."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--stdlib",
        type=Path,
        default=Path(sysconfig.get_path("stdlib")),
        help="the standard library's folder (default: this Python's)",
    )
    parser.add_argument("--python-version", default=platform.python_version())
    parser.add_argument("--steps", type=int, default=Recipe().steps)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    try:
        corpus = read_corpus(options.stdlib)
    except DecodescopeError as error:
        parser.error(str(error))
    recipe = Recipe(steps=options.steps)
    tokenizer = train_bpe(corpus)
    train_stream = encode_files(tokenizer, corpus.train)
    validation_stream = encode_files(tokenizer, corpus.validation)
    started = time.perf_counter()
    model, history = train(recipe, train_stream, validation_stream, options.device)
    seconds = time.perf_counter() - started
    save(options.output, model, tokenizer, corpus)
    saved = transformers.LlamaForCausalLM.from_pretrained(options.output, dtype=torch.float32)
    loss = validation_loss(saved.to(options.device), validation_stream, recipe.context)
    validation_bytes = sum(len(text.encode()) for _, text in corpus.validation)
    training: dict[str, object] = {
        "validation_perplexity": math.exp(loss),
        "validation_bits_per_byte": loss * len(validation_stream) / math.log(2) / validation_bytes,
        "parameters": sum(p.numel() for p in saved.parameters()),
        "python": options.python_version,
        "corpus_files": len(corpus.train) + len(corpus.validation),
        "corpus_bytes": corpus.size_bytes,
        "corpus_sha256": corpus.sha256,
        "validation_files": len(corpus.validation),
        "validation_sha256": digest_of(corpus.validation),
        "train_tokens": len(train_stream),
        "validation_tokens": len(validation_stream),
        "recipe": asdict(recipe),
        "history": history,
        "seconds": round(seconds, 1),
        "environment": {
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    (options.output / "training.json").write_text(json.dumps(training, indent=1) + "\n")
    card = model_card(training, continue_greedily(options.output))
    (options.output / "README.md").write_text(card)
    sys.stderr.write(f"validation perplexity {math.exp(loss):.3f}, {seconds:.0f} s\n")


if __name__ == "__main__":
    main()
