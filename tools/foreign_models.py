"""Models of transformers and torch with random weights, recorded without decodescope's ranges."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

_STEPS, _WARM, _PROMPT = 4, 3, 64
_SMALL: dict[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32_000,
    "tie_word_embeddings": False,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
}


def small_decoder(family: str, attention: str = "sdpa", **changes: Any) -> tuple[Any, Any]:
    """The config and the model of a family, with few layers and random weights, on the GPU."""
    torch.manual_seed(18)
    config = AutoConfig.for_model(family, **(_SMALL | changes))
    config._attn_implementation = attention
    with torch.device("cuda"):
        return config, AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def _decoder(
    family: str, batch: int = 1, attention: str = "sdpa", compiled: bool = False, **changes: Any
) -> Callable[[], object]:
    """One decode step of a causal model, as `generate` makes it."""
    config, model = small_decoder(family, attention, **changes)
    ids = torch.randint(0, 1000, (batch, _PROMPT), device="cuda")
    options: dict[str, Any] = {"use_cache": True}
    if compiled:
        options["past_key_values"] = StaticCache(config=config, max_cache_len=256)
    output = model(ids, **options)
    state = [output.logits[:, -1:].argmax(-1), output.past_key_values, _PROMPT]
    forward = torch.compile(model, mode="reduce-overhead") if compiled else model

    def step() -> None:
        more = {"position_ids": torch.full((batch, 1), state[2], device="cuda")} if compiled else {}
        found = forward(state[0].clone(), past_key_values=state[1], use_cache=True, **more)
        state[0] = found.logits[:, -1:].argmax(-1)
        state[2] += 1

    return step


def _vision() -> Callable[[], object]:
    """A convolutional network with residual blocks."""
    nn = torch.nn

    def block(size: int) -> torch.nn.Module:
        return nn.Sequential(
            nn.Conv2d(size, size, 3, padding=1),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1),
            nn.BatchNorm2d(size),
        )

    with torch.device("cuda"):
        blocks = nn.ModuleList(block(64) for _ in range(8))
        down = nn.Conv2d(3, 64, 7, stride=4)
        head = nn.Linear(64, 1000)
        x = torch.randn(8, 3, 224, 224)

    def step() -> object:
        y = down(x)
        for one in blocks.eval():
            y = torch.relu(y + one(y))
        return head(y.mean((2, 3)))

    return step


def _diffusion() -> Callable[[], object]:
    """A small U-Net step: convolutions, group norms, and attention in the middle only."""
    nn = torch.nn
    with torch.device("cuda"):
        first, last = nn.Conv2d(4, 128, 3, padding=1), nn.Conv2d(128, 4, 3, padding=1)
        convs = nn.ModuleList(nn.Conv2d(128, 128, 3, padding=1) for _ in range(8))
        norms = nn.ModuleList(nn.GroupNorm(8, 128) for _ in range(8))
        attention = nn.MultiheadAttention(128, 4, batch_first=True)
        x = torch.randn(2, 4, 64, 64)

    def step() -> object:
        y = first(x)
        for index, (conv, norm) in enumerate(zip(convs, norms, strict=True)):
            y = y + conv(torch.nn.functional.silu(norm(y)))
            if index == 3:
                tokens = y.flatten(2).transpose(1, 2)
                y = y + attention(tokens, tokens, tokens)[0].transpose(1, 2).reshape(y.shape)
        return x - 0.1 * last(y)

    return step


def _random() -> Callable[[], object]:
    """Operators in a fixed random order."""
    torch.manual_seed(0)
    a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    choices: list[Callable[[torch.Tensor], torch.Tensor]] = [
        *(torch.relu, torch.tanh, lambda x: x @ a, lambda x: x + a, lambda x: x.softmax(-1)),
        *(lambda x: x.cumsum(0), lambda x: x.sort(-1)[0], lambda x: x.transpose(0, 1).contiguous()),
        lambda x: torch.nn.functional.layer_norm(x, (512,)),
    ]
    order = torch.randint(0, len(choices), (300,)).tolist()

    def step() -> None:
        x = a
        for index in order:
            x = choices[index](x)

    return step


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "llama eager": partial(_decoder, "llama"),
    "llama eager batch 8": partial(_decoder, "llama", 8),
    "llama math attention": partial(_decoder, "llama", attention="eager"),
    "llama compiled": partial(_decoder, "llama", compiled=True),
    "mistral eager": partial(_decoder, "mistral", sliding_window=32),
    "qwen2 eager": partial(_decoder, "qwen2"),
    "qwen3 eager": partial(_decoder, "qwen3"),
    "qwen3 compiled": partial(_decoder, "qwen3", compiled=True),
    "gemma2 eager": partial(_decoder, "gemma2", sliding_window=32),
    "gemma3 eager": partial(_decoder, "gemma3_text", sliding_window=32, num_hidden_layers=12),
    "gemma3 compiled": partial(
        _decoder, "gemma3_text", compiled=True, sliding_window=32, num_hidden_layers=12
    ),
    "phi3 eager": partial(_decoder, "phi3", pad_token_id=0),
    "olmo2 eager": partial(_decoder, "olmo2"),
    "gpt2 eager": partial(_decoder, "gpt2", n_embd=1024, n_layer=6, n_head=16),
    "opt eager": partial(_decoder, "opt", ffn_dim=2816, word_embed_proj_dim=1024),
    "mixtral eager": partial(_decoder, "mixtral", 4, **_EXPERTS),
    "qwen3-moe eager": partial(_decoder, "qwen3_moe", 4, **_EXPERTS),
    "gpt-oss eager": partial(_decoder, "gpt_oss", 4, attention="eager", **_EXPERTS),
    "deepseek-v3 eager": partial(
        _decoder,
        "deepseek_v3",
        4,
        num_key_value_heads=16,
        n_routed_experts=8,
        n_group=1,
        topk_group=1,
        q_lora_rank=256,
        kv_lora_rank=128,
        first_k_dense_replace=2,
        **_EXPERTS,
    ),
    "vision": _vision,
    "diffusion": _diffusion,
    "random ops": _random,
}


def record(case: str, path: Path) -> None:
    """Profile some steps of a case with Python stacks, each in a range `step`."""
    torch._dynamo.reset()
    with torch.no_grad():
        step = CASES[case]()
        for _ in range(_WARM):
            step()
        torch.cuda.synchronize()
        with profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            with_stack="compiled" not in case,
        ) as profiler:
            for _ in range(_STEPS):
                with record_function("step"):
                    step()
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    torch.cuda.empty_cache()
